"""The command clock, in process."""

import json
import math
import re

import pytest

import airsplit as air
from airsplit.runs.folder import RunFolder
from airsplit.scenario.settings import ALGORITHMS
from airsplit.simulation.clock_simulation import PLAIN


def test_the_report_has_everything_a_newcomer_asks_for(run):
    code, out, err = run("clock", "paper-alexnet", "--rounds", "200")
    assert (code, err) == (0, "")
    for word in (
        "alexnet",
        "20 devices",
        "sfl",
        "median",
        "95 %",
        "computing",
        "on the air",
        "waiting",
        "virtual time",
        "planned",
        "sent",
    ):
        assert word in out, word
    assert "Latency of a round of 5 iterations of 32 samples, over 200 rounds" in out
    assert "E[max]; these rounds took" in out
    assert "note" not in out


def test_every_printed_latency_names_its_batch(run):
    _, out, _ = run("clock", "demo", "--rounds", "3")
    for line in out.splitlines():
        if re.match(r"(virtual time|mean|planned) ", line):
            assert "5 iterations of 16 samples" in line
    assert "3 rounds say little about the outer quantiles" in out


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_can_be_clocked(run, algorithm):
    code, out, err = run(
        "clock", "demo", "--set", f"training.algorithm={algorithm}", "--rounds", "2"
    )
    assert (code, err) == (0, "")
    assert f" · {algorithm} · " in out
    assert (f"a plan is for sfl, and this is {algorithm}" in out) == (algorithm != "sfl")
    assert ("splits up to" in out) == (algorithm != "fedavg")
    waiting = {
        "split-learning": "one device after the other",
        "fedavg": "waiting after every round",
    }
    assert waiting.get(algorithm, "waiting after every iteration") in out


def test_deviations_from_the_plan_are_reported(run):
    sentence = "a plan is for all devices"
    assert sentence not in run("clock", "demo", "--rounds", "2")[1]
    for setting in (
        "training.participation=0.5",
        "training.dropout_probability=0.1",
        "fleet.redraw_fading=true",
    ):
        assert sentence in run("clock", "demo", "--rounds", "2", "--set", setting)[1]
    changes = ["training.participation=0.5", "clock.server_seconds_per_mac=1e-9"]
    words = [word for change in changes for word in ("--set", change)]
    _, out, _ = run("clock", "demo", "--rounds", "20", *words)
    assert "not taking part" in out
    assert "at the server" in out


def test_energy_is_reported_only_if_it_includes_computing(run):
    assert re.search(
        r"energy +[\d.]+ m?J, of all devices", run("clock", "demo", "--rounds", "2")[1]
    )
    assert (
        "left out because computing would be missing from it"
        in run("clock", "paper-alexnet", "--rounds", "2")[1]
    )


def test_a_single_device_has_no_stragglers(run):
    code, out, _ = run("clock", "demo", "--set", "fleet.devices=1", "--rounds", "1")
    assert code == 0
    assert "1 device · " in out
    assert "The stragglers" not in out
    assert "for 1 round of" in out


def test_named_devices_keep_their_names(run, tmp_path):
    (tmp_path / "fleet.csv").write_text(
        "name,seconds_per_mac,fluctuation,full_band_rate_bps\nkitchen,4e-8,5e9,6e7\nattic,3e-10,7e9,8e6\n"
    )
    (tmp_path / "my.toml").write_text('[model]\nname = "alexnet"\n[fleet]\nfile = "fleet.csv"\n')
    code, out, _ = run("clock", tmp_path / "my.toml", "--rounds", "9")
    assert code == 0
    assert "kitchen" in out


def test_a_large_fleet_is_summarized(run):
    code, out, err = run("clock", "paper-alexnet", "--set", "fleet.devices=30000", "--rounds", "2")
    assert (code, err) == (0, "")
    assert "30,000 devices" in out
    assert len(out.splitlines()) < 40


def test_json_has_the_names_of_the_attributes(document):
    result = document("clock", "demo", "--rounds", "4")
    assert list(result) == [*PLAIN, "latency_s", "devices"]
    assert (result["rounds"], len(result["latency_s"])) == (4, 4)
    assert len(result["devices"]["last"]) == 20
    assert sum(result["mean_time_shares"].values()) == pytest.approx(1)


def test_the_latencies_are_those_of_a_run(document, run, tmp_path):
    settings = (
        "training.rounds=2",
        "fleet.devices=3",
        "training.dropout_probability=0.2",
        "training.samples_per_device=32",
    )
    words = ("demo", *(word for setting in settings for word in ("--set", setting)))
    assert run("run", *words, "--out", tmp_path / "run")[0] == 0
    records = RunFolder(tmp_path / "run").read_records()
    result = document("clock", *words)
    assert result["latency_s"] == [record.latency_s for record in records]
    assert result["virtual_time_s"] == records[-1].virtual_time_s
    # This file has the profile's fingerprint, which must be the same.
    resolved = document("clock", tmp_path / "run" / "scenario.toml")
    assert resolved["latency_s"] == result["latency_s"]


@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize(
    "changes",
    [
        ("fleet.devices=3",),
        ("fleet.devices=80", "training.participation=0.2"),
        ("training.algorithm=fedavg",),
    ],
)
def test_a_plot_is_saved(run, tmp_path, monkeypatch, changes, rounds):
    # A busy machine may take long enough to report progress.
    monkeypatch.setattr("airsplit.cli.planning_commands.QUIET_S", math.inf)
    words = [word for change in changes for word in ("--set", change)]
    code, out, err = run(
        "clock", "demo", "--rounds", rounds, "--plot", tmp_path / "clock.png", *words
    )
    assert (code, err) == (0, f"airsplit: wrote {tmp_path / 'clock.png'}\n")
    assert "virtual time" in out
    assert (tmp_path / "clock.png").read_bytes().startswith(b"\x89PNG")


def test_the_same_plot_has_the_same_bytes(run, tmp_path):
    for name in ("one.svg", "two.svg"):
        assert run("clock", "demo", "--plot", tmp_path / name, "--json")[0] == 0
    text = (tmp_path / "one.svg").read_text()
    assert text == (tmp_path / "two.svg").read_text()


def test_the_help_has_examples_and_no_broken_lines(run):
    code, out, err = run("clock", "--help")
    assert (code, err) == (0, "")
    assert "Examples:\n    airsplit clock" in out
    assert max(map(len, out.splitlines())) <= 80
    listed = [
        line.split()[0] for line in run("--help")[1].splitlines() if re.match(r"  [a-z]+  ", line)
    ]
    assert listed.index("plan") + 1 == listed.index("clock") == listed.index("run") - 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("demo", "--rounds", "0"), "--rounds must be a whole number >= 1, got 0"),
        (("demo", "--rounds", "many"), "--rounds"),
        (("demo", "--plot", "clock.jpeg"), "must end in .png, .svg or .pdf"),
        (("dmo",), "did you mean 'demo'?"),
        (("demo", "--set", "training.algorithm=sgd"), "training.algorithm"),
        (("demo", "--set", "fleet.file=none.csv"), "none.csv"),
        (("demo", "--set", "plan.max_split=pool9"), "pool9"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(run, words, message):
    code, out, err = run("clock", *words)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert message in err


def test_a_plot_that_cannot_be_written_is_one_line(run, tmp_path):
    (tmp_path / "file").write_text("")
    code, out, err = run(
        "clock", "demo", "--rounds", "1", "--plot", tmp_path / "file" / "clock.png"
    )
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert "clock.png" in err


def test_ctrl_c_exits_with_130_and_no_traceback(run, tmp_path, monkeypatch):
    (tmp_path / "impatient_net.py").write_text("raise KeyboardInterrupt\n")
    (tmp_path / "my.toml").write_text('[model]\nname = "impatient_net:make"\ninput_shape = [8]\n')
    monkeypatch.syspath_prepend(tmp_path)
    code, out, err = run("clock", tmp_path / "my.toml")
    assert (code, out) == (130, "")
    assert "Traceback" not in err


def test_a_long_simulation_reports_progress(run, monkeypatch):
    monkeypatch.setattr("airsplit.cli.planning_commands.QUIET_S", 0.0)
    code, _, err = run("clock", "demo", "--rounds", "3")
    assert code == 0
    assert "airsplit: round 1 of 3, virtual time" in err


def test_prints_of_a_factory_go_to_stderr(run, tmp_path, monkeypatch):
    net = (
        "from torch import nn\n\ndef make():\n    print('hello')\n"
        "    return nn.Sequential(nn.Linear(8, 4), nn.Linear(4, 2))\n"
    )
    (tmp_path / "talking_net.py").write_text(net)
    (tmp_path / "my.toml").write_text(
        '[model]\nname = "talking_net:make"\ninput_shape = [8]\n[fleet]\ndevices = 2\n'
    )
    monkeypatch.syspath_prepend(tmp_path)
    # A busy machine may take long enough to report progress.
    monkeypatch.setattr("airsplit.cli.planning_commands.QUIET_S", math.inf)
    code, out, err = run("clock", tmp_path / "my.toml", "--json")
    assert (code, err) == (0, "hello\n")
    assert json.loads(out)["rounds"] == 20


def test_json_equals_the_result_in_python(document):
    from airsplit.simulation.clock_simulation import clock_run

    result = clock_run(air.Scenario.load("demo"), rounds=2).to_dict()
    assert document("clock", "demo", "--rounds", "2") == json.loads(json.dumps(result))


def test_a_plot_of_few_devices_has_their_names(run, tmp_path):
    names = ["kitchen", "garage", "an-attic-that-is-far-away"]
    lines = [f"{name},4e-10,5e9,6e7\n" for name in names]
    heading = "name,seconds_per_mac,fluctuation,full_band_rate_bps\n"
    (tmp_path / "fleet.csv").write_text(heading + "".join(lines))
    (tmp_path / "mine.toml").write_text(
        '[model]\nname = "alexnet"\n\n[fleet]\nfile = "fleet.csv"\n'
    )
    file = tmp_path / "clock.svg"
    assert run("clock", tmp_path / "mine.toml", "--rounds", "5", "--plot", file)[0] == 0
    plot = file.read_text()
    assert [name[:10] in plot for name in names] == [True] * 3
    assert names[2] not in plot


def test_devices_with_less_than_a_batch_are_reported(run):
    # Of the 1,437 samples of digits, 17 of 20 devices hold 72, the others 71.
    code, _, err = run("clock", "demo", "--rounds", 1, "--set", "training.batch_size=72")
    assert code == 0
    assert err.splitlines() == [
        "airsplit: note: training.batch_size is 72, but 3 of 20 devices hold fewer samples "
        "(17: 71, 18: 71, 19: 71); they use all of them in every iteration, "
        "while plan and clock count a whole batch"
    ]
    assert run("clock", "demo", "--rounds", 1, "--set", "training.batch_size=71")[2] == ""
    changes = set_training("batch_size=51", "samples_per_device=50")
    assert "(0: 50, 1: 50, 2: 50, …)" in run("clock", "demo", "--rounds", 1, *changes)[2]


def test_nothing_is_reported_that_needs_the_data(run):
    words = ("clock", "demo", "--rounds", 1)
    changes = set_training("batch_size=1000000", "dataset=not_there:at_all")
    assert run(*words, *changes)[2] == ""
    # More devices than samples.
    changes = ["--set", "fleet.devices=2000", *set_training("batch_size=100")]
    assert run(*words, *changes)[2] == ""


def set_training(*settings):
    return [word for setting in settings for word in ("--set", f"training.{setting}")]
