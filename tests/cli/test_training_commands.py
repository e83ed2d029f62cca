"""The commands run, export and compare, with a model that trains in an instant."""

import json
import re
import signal
import sys
import tomllib

import pytest
import torch
from safetensors.torch import load_file

import airsplit as air
from cli.small_net import NET, SCENARIO


def test_a_run_prints_its_results_and_leaves_a_folder(run, scenario, tmp_path):
    out = tmp_path / "run"
    code, printed, err = run("run", scenario, "--out", out)
    assert code == 0
    assert "accuracy" in printed
    assert str(out) in printed
    assert "round 3 of 3" in err
    assert {file.name for file in out.iterdir()} >= {
        "scenario.toml",
        "plan.json",
        "rounds.jsonl",
        "checkpoint",
        "report.html",
    }
    resolved = tomllib.loads((out / "scenario.toml").read_text())
    assert resolved["plan"]["split"] == ["0", "2", "0"]
    assert len(resolved["model"]["fingerprint"]) == 16
    assert len((out / "rounds.jsonl").read_text().splitlines()) == 3


def test_json_has_the_names_of_the_records(run, scenario, tmp_path):
    code, printed, _ = run("run", scenario, "--out", tmp_path / "run", "--json")
    result = json.loads(printed)
    assert code == 0
    assert result["rounds"] == 3
    assert result["folder"] == str(tmp_path / "run")
    assert 0 <= result["test_accuracy"] <= 1


def test_energy_is_reported_only_if_it_includes_computing(run, scenario, tmp_path):
    without = tmp_path / "without"
    complete = tmp_path / "complete"
    assert run("run", scenario, "--out", without)[0] == 0
    summary = json.loads(run("run", scenario, "--out", without, "--resume", "--json")[1])
    assert summary["energy_j"] is None
    _, printed, _ = run("run", scenario, "--out", without, "--resume")
    assert "left out because computing would be missing from it" in " ".join(printed.split())
    assert " J" not in printed
    summary = json.loads(
        run("run", scenario, "--out", complete, "--set", "fleet.joules_per_mac=1e-9", "--json")[1]
    )
    records = [json.loads(line) for line in (complete / "rounds.jsonl").read_text().splitlines()]
    assert summary["energy_j"] == pytest.approx(sum(sum(record["energy_j"]) for record in records))


def test_a_run_and_its_report_agree_on_waiting(run, scenario, tmp_path):
    _, printed, _ = run("run", scenario, "--out", tmp_path / "run")
    (share,) = re.findall(r"waiting +(\d+ %) of the devices' time", printed)
    page = (tmp_path / "run" / "report.html").read_text()
    assert f"<dt>Waiting</dt><dd>{share}" in page
    assert f"{share} waiting for the slowest one".replace(" %", "\N{NO-BREAK SPACE}%") in page


def test_a_run_writes_no_report_into_the_runs_below_its_folder(run, scenario, tmp_path):
    below = tmp_path / "runs" / "first"
    assert run("run", scenario, "--out", below)[0] == 0
    (below / "report.html").write_text("an older page")
    assert run("run", scenario, "--out", tmp_path / "runs")[0] == 0
    assert (tmp_path / "runs" / "report.html").exists()
    assert (below / "report.html").read_text() == "an older page"


def test_a_folder_with_a_run_needs_resume(run, scenario, tmp_path):
    out = tmp_path / "run"
    assert run("run", scenario, "--out", out)[0] == 0
    before = (out / "rounds.jsonl").read_bytes()
    code, printed, err = run("run", scenario, "--out", out)
    assert (code, printed) == (2, "")
    assert "--resume" in err
    assert (out / "rounds.jsonl").read_bytes() == before
    assert run("run", scenario, "--out", out, "--resume", "--set", "training.rounds=5")[0] == 0
    assert (out / "rounds.jsonl").read_bytes().startswith(before)
    assert len((out / "rounds.jsonl").read_text().splitlines()) == 5
    changes = ("--set", "training.rounds=6", "--set", "training.batch_size=5")
    code, _, err = run("run", scenario, "--out", out, "--resume", *changes)
    assert code == 2
    assert "training.batch_size" in err


def test_changed_settings_hold_until_they_are_overridden(run, scenario, tmp_path):
    out = tmp_path / "run"
    changes = ("--set", "training.rounds=2", "--set", "training.learning_rate=0.5")
    assert run("run", scenario, "--out", out, "--plain", *changes)[0] == 0
    before = (out / "scenario.toml").read_bytes()
    code, printed, err = run("run", scenario, "--out", out, "--resume")
    assert (code, (out / "scenario.toml").read_bytes()) == (0, before)
    assert "all rounds are done" in err
    assert "2, " in printed
    assert run("run", scenario, "--out", out, "--resume", "--set", "training.rounds=4")[0] == 0
    assert run("run", scenario, "--out", out, "--resume")[0] == 0
    assert len((out / "rounds.jsonl").read_text().splitlines()) == 4
    code, printed, err = run(
        "run", scenario, "--out", out, "--resume", "--set", "training.learning_rate=0.1"
    )
    assert (code, printed) == (2, "")
    assert (
        f"training.learning_rate must be as in the run in '{out}' that is resumed, 0.5, got 0.1"
        in err
    )
    scenario.write_text(SCENARIO.replace("batch_size = 4", "batch_size = 5"))
    assert (
        "training.batch_size must be as in the run"
        in run("run", scenario, "--out", out, "--resume")[2]
    )


def test_a_run_and_its_export_warn_if_little_is_averaged(run, scenario, tmp_path):
    warning = "so each device trains nearly a model of its own"
    assert warning not in run("run", scenario, "--out", tmp_path / "one")[2]
    (tmp_path / "small_net.py").write_text(
        NET.replace(
            "nn.Linear(6, 7), nn.Tanh(), nn.Linear(7, 5)",
            "nn.Linear(6, 99), nn.Tanh(), nn.Linear(99, 5)",
        )
    )
    sys.modules.pop("small_net", None)
    code, _, err = run("run", scenario, "--out", tmp_path / "two")
    assert code == 0
    assert warning in err
    assert warning in " ".join(run("clock", scenario)[1].split())
    assert re.search(
        r"SFL averages 18 parameters of [\d,]+ \(1\.\d\s%\): those after 2",
        (tmp_path / "two" / "report.html").read_text(),
    )
    assert "share few of their parameters" in run("export", tmp_path / "two", "--average")[2]
    assert "share" not in run("export", tmp_path / "two", "--device", 0)[2]
    assert (
        run("run", scenario, "--out", tmp_path / "three", "--set", "training.algorithm=fedavg")[0]
        == 0
    )
    assert "share" not in run("export", tmp_path / "three", "--average")[2]


def test_changes_of_a_run_that_never_started_are_dropped(run, scenario, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "changes.json").write_text('{"training.rounds": 7}')
    assert run("run", scenario, "--out", tmp_path / "run", "--resume")[0] == 0
    assert len((tmp_path / "run" / "rounds.jsonl").read_text().splitlines()) == 3
    assert run("run", scenario, "--out", tmp_path / "run", "--resume")[0] == 0
    (tmp_path / "run" / "changes.json").write_text("{")
    code, _, err = run("run", scenario, "--out", tmp_path / "run", "--resume")
    assert code == 2
    assert "changes of the run" in err


def test_a_model_with_an_input_spec_needs_no_input_shape(run, scenario, tmp_path):
    scenario.write_text(SCENARIO.replace("input_shape = [6]\n", ""))
    code, _, err = run("run", scenario, "--out", tmp_path / "run")
    assert code == 2
    assert "in a scenario model.input_shape = [3, 32, 32]), or set its attribute input_spec" in err
    own = "\n\ndef mlp_with_spec():\n    net = mlp()\n    net.input_spec = '6'\n    return net\n"
    (tmp_path / "small_net.py").write_text(NET + own)
    sys.modules.pop("small_net", None)
    change = "model.name=small_net:mlp_with_spec"
    assert run("run", scenario, "--out", tmp_path / "run", "--set", change)[0] == 0


def test_a_run_of_a_recorded_scenario_has_the_name_of_its_run(run, scenario, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run("run", scenario)[0] == 0
    assert run("run", "runs/small/scenario.toml", "--trust-run")[0] == 0
    assert (tmp_path / "runs" / "small-2" / "report.html").exists()


def test_labels_beyond_the_classes_are_rejected_before_a_folder_is_created(run, scenario, tmp_path):
    (tmp_path / "small_net.py").write_text(NET.replace("nn.Linear(5, 3)", "nn.Linear(5, 2)"))
    code, _, err = run("run", scenario, "--out", tmp_path / "run")
    assert code == 2
    assert (
        "training.dataset 'small_net:blobs': labels must be below the number of classes "
        "that the model tells apart, 2, got 2" in err
    )
    assert not (tmp_path / "run" / "scenario.toml").exists()


def test_run_folders_are_numbered_by_default(run, scenario, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run("run", scenario)[0] == 0
    assert run("run", scenario, "--plain")[0] == 0
    assert (tmp_path / "runs" / "small" / "report.html").exists()
    assert "fast_paths = false" in (tmp_path / "runs" / "small-2" / "scenario.toml").read_text()
    assert run("run", scenario, "--plain", "--resume", "--set", "training.rounds=4")[0] == 0
    assert len((tmp_path / "runs" / "small-2" / "rounds.jsonl").read_text().splitlines()) == 4


@pytest.mark.parametrize(("asked", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.usefixtures("ignored_signals")
def test_a_stopped_run_says_how_to_continue_it(
    run, scenario, tmp_path, monkeypatch, asked, exit_code
):
    out = tmp_path / "run"

    def stop_after_one_round(reporter, records):
        yield next(iter(records))
        signal.raise_signal(asked)

    def stop_before_the_first_round(reporter, records):
        signal.raise_signal(asked)
        yield

    monkeypatch.setattr("airsplit.cli.progress.ProgressReporter.follow", stop_after_one_round)
    code, printed, err = run("run", scenario, "--out", out)
    assert (code, printed) == (exit_code, "")
    assert (
        f"stopped after round 1; the run is in {out}, and the same command with --resume "
        "continues it" in err
    )
    assert (out / "report.html").exists()
    monkeypatch.setattr(
        "airsplit.cli.progress.ProgressReporter.follow", stop_before_the_first_round
    )
    assert (
        "stopped before the end of the first round; nothing was kept"
        in run("run", scenario, "--out", tmp_path / "none")[2]
    )
    assert signal.getsignal(asked) is signal.SIG_IGN  # as it was before the command
    monkeypatch.undo()
    assert run("run", scenario, "--out", out, "--resume")[0] == 0
    assert run("run", scenario, "--out", tmp_path / "unstopped")[0] == 0
    unstopped = (tmp_path / "unstopped" / "rounds.jsonl").read_bytes()
    assert (out / "rounds.jsonl").read_bytes() == unstopped


def test_an_exported_model_can_be_trained_further(run, scenario, tmp_path):
    out = tmp_path / "run"
    file = tmp_path / "one.safetensors"
    assert run("run", scenario, "--out", out)[0] == 0
    code, printed, _ = run("export", out, "--device", 1, "--out", file)
    assert code == 0
    assert str(file) in printed
    state = air.load_state(out, device=1)
    assert all(torch.equal(tensor, state[name]) for name, tensor in load_file(file).items())
    assert run("export", out, "--average", "--json")[0] == 0
    mean = load_file(out / "model-average.safetensors")
    torch.testing.assert_close(
        mean["0.weight"],
        torch.stack([air.load_state(out, device=k)["0.weight"] for k in range(3)]).mean(0),
    )
    assert (
        run("run", scenario, "--out", tmp_path / "again", "--set", f"model.weights={file}")[0] == 0
    )


@pytest.mark.parametrize(
    ("words", "err"),
    [
        (["export", "RUN"], "device"),
        (["export", "RUN", "--device", "3"], "from 0 to 2"),
        (["export", "RUN", "--device", "0", "--average"], "either"),
        (["export", "nowhere", "--average"], "no checkpoint"),
        (["run", "TOML", "--out", "RUN"], "--resume"),
        (["run", "TOML", "--set", "training.algorithm=sffl"], "did you mean"),
        (["run", "TOML", "--set", "training.dataset=mnist", "--data", "nowhere"], "mnist"),
        (["compare", "TOML", "--algorithms", "sfl,fedavgg"], "did you mean 'fedavg'"),
        (["compare", "TOML", "--seeds", "0"], "seeds"),
        (["compare", "TOML", "--target", "90"], "target"),
    ],
)
def test_a_mistake_is_one_line(run, scenario, tmp_path, monkeypatch, words, err):
    monkeypatch.chdir(tmp_path)
    if "RUN" in words:
        assert run("run", scenario, "--out", "RUN")[0] == 0
    code, printed, errors = run(*(str(scenario) if word == "TOML" else word for word in words))
    assert (code, printed) == (2, "")
    assert err in errors
    assert len(errors.splitlines()) == 1


def test_a_divergence_is_kept_until_the_run_starts_over(run, scenario, tmp_path):
    out = tmp_path / "run"
    code, _, err = run("run", scenario, "--out", out, "--set", "training.learning_rate=1e38")
    assert (code, "training stopped" in err) == (2, True)
    assert "The training diverged in round 1." in (out / "report.html").read_text()
    assert run("run", scenario, "--out", out)[0] == 0
    assert "diverged" not in (out / "report.html").read_text()


def test_a_comparison_shows_divergences(run, scenario, tmp_path):
    options = ("--seeds", 2, "--algorithms", "sfl,fedavg", "--jobs", 1)
    words = ("compare", scenario, "--out", tmp_path / "compared", *options)
    code, printed, err = run(*words, "--set", "training.learning_rate=1e38", "--json")
    assert code == 0
    result = json.loads(printed)
    assert [row["diverged"] for row in result["algorithms"]] == [{"0": 1, "1": 1}] * 2
    assert [row["accuracy"] for row in result["algorithms"]] == [None, None]
    assert result["headline"].startswith(
        "Diverged: SFL with seed 0 in round 1, SFL with seed 1 in round 1, FedAvg "
    )
    assert err.count("training stopped") == 4
    assert run("report", tmp_path / "compared")[0] == 0


def test_algorithms_are_compared_on_the_same_seeds(run, scenario, tmp_path):
    out = tmp_path / "compared"
    options = ("--seeds", 2, "--algorithms", "sfl,fedavg,splitfed-v1", "--jobs", 1)
    words = ("compare", scenario, "--out", out, *options)
    code, printed, _ = run(*words, "--json")
    assert code == 0
    result = json.loads(printed)
    assert [row["algorithm"] for row in result["algorithms"]] == ["sfl", "fedavg", "splitfed-v1"]
    fedavg, splitfed = result["algorithms"][1:]
    assert fedavg["accuracy"] == splitfed["accuracy"]  # the same weights, by another way
    assert fedavg["sent_bytes"] != splitfed["sent_bytes"]
    assert result["seeds"] == [0, 1]
    written = {
        "compared.png",
        "compared.svg",
        "comparison.json",
        "report.html",
        "sfl-seed0",
        "splitfed-v1-seed1",
    }
    assert written <= {file.name for file in out.iterdir()}
    page = (out / "report.html").read_bytes()
    (out / "report.html").unlink()
    assert run("report", out)[:2] == (0, f"{out / 'report.html'}\n")
    assert (out / "report.html").read_bytes() == page
    assert run(*words)[0] == 2
    code, printed, _ = run(*words, "--resume")
    assert code == 0
    assert "95 % interval" in printed
    assert " ".join(printed.split()).startswith(result["headline"])
    assert result["headline"].startswith("After the last round ")


SHORT = (
    "airsplit: note: training.batch_size is 100, but 3 of 3 devices hold fewer samples "
    "(0: 8, 1: 8, 2: 8); they use all of them in every iteration, "
    "while plan and clock count a whole batch"
)


def test_devices_with_less_than_a_batch_are_reported_before_the_first_round(
    run, scenario, tmp_path
):
    code, _, err = run(
        "run", scenario, "--out", tmp_path / "run", "--set", "training.batch_size=100"
    )
    lines = err.splitlines()
    assert code == 0
    assert [line for line in lines if "training.batch_size" in line] == [SHORT]
    assert lines.index(SHORT) < next(at for at, line in enumerate(lines) if "round 1 of 3" in line)
    assert json.loads((tmp_path / "run" / "plan.json").read_text())["samples"] == [8, 8, 8]


def test_devices_with_a_full_batch_are_not_reported(run, scenario, tmp_path):
    assert "training.batch_size" not in run("run", scenario, "--out", tmp_path / "run")[2]


def test_compare_reports_short_devices_once(run, scenario, tmp_path):
    options = ("--seeds", 2, "--algorithms", "sfl,fedavg", "--jobs", 1)
    changes = ("--set", "training.batch_size=100", "--set", "training.rounds=1")
    code, _, err = run("compare", scenario, "--out", tmp_path / "compared", *options, *changes)
    assert code == 0
    assert [line for line in err.splitlines() if "training.batch_size" in line] == [SHORT]
