"""No command imports code that only a run folder names, unless the user trusts it."""

import json
import sys
from pathlib import Path

import pytest

import airsplit as air
from airsplit.core.errors import InvalidValue
from airsplit.dashboard.live_runs import LiveRuns
from airsplit.report.page import write_report
from cli.small_net import write_small_net

SCENARIO = """
[model]
name = "small_net:mlp"
input_shape = [6]

[fleet]
devices = 2

[training]
dataset = "small_net:blobs"
rounds = 2
iterations_per_round = 1
batch_size = 4
"""

# Code of a folder from somebody else: importing it is enough to leave a trace.
EVIL = """
from pathlib import Path

Path(__file__).with_name("imported").touch()

def __getattr__(name):
    raise AttributeError(name)
"""

CODE_KEYS = (
    "model.name",
    "plan.method",
    "training.algorithm",
    "training.dataset",
    "training.loss",
    "training.metric",
)


@pytest.fixture
def scenario(tmp_path, monkeypatch):
    """Return a scenario whose folder has code of the user, and code of somebody else."""
    file = write_small_net(tmp_path, scenario=SCENARIO)
    (tmp_path / "evil_code.py").write_text(EVIL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for module in ("small_net", "evil_code"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    return file


def is_refused(result, key):
    """Check that a command failed with the one line that offers a way out."""
    code, out, err = result
    assert (code, out, len(err.splitlines())) == (2, "", 1), err
    assert f"{key} 'evil_code:run' is code that only the run folder" in err
    assert "--trust-run" in err
    assert not Path("imported").exists()
    return True


def plant(file, key):
    """Name code of somebody else in a scenario.toml."""
    table, name = key.split(".")
    lines = [line for line in file.read_text().splitlines() if not line.startswith(f"{name} =")]
    lines.insert(lines.index(f"[{table}]") + 1, f'{name} = "evil_code:run"')
    file.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("key", CODE_KEYS)
def test_code_in_recorded_changes_is_not_imported(run, scenario, tmp_path, key):
    assert run("run", scenario, "--out", "run")[0] == 0
    Path("run/changes.json").write_text(json.dumps({key: "evil_code:run"}))
    assert is_refused(run("run", scenario, "--out", "run", "--resume"), key)
    assert is_refused(
        run("serve", scenario, "--out", "run", "--resume", "--listen", "127.0.0.1:0"), key
    )
    Path("compared").mkdir()
    Path("compared/changes.json").write_text(json.dumps({key: "evil_code:run"}))
    assert is_refused(run("compare", scenario, "--out", "compared", "--resume"), key)


@pytest.mark.parametrize("key", CODE_KEYS)
def test_code_in_a_runs_own_scenario_is_not_imported(run, scenario, tmp_path, key):
    changes = ("--set", "training.rounds=1", "--set", "fleet.devices=2")
    assert run("run", "demo", "--out", "run", *changes)[0] == 0
    plant(Path("run/scenario.toml"), key)
    for command in ("run", "serve", "plan", "clock", "probe", "compare"):
        assert is_refused(run(command, "run/scenario.toml"), key)
    with pytest.raises(
        InvalidValue, match=f"{key} 'evil_code:run' is code that only the run folder"
    ):
        air.Scenario.load("run/scenario.toml")
    Path("run/scenario.toml").rename("run/other.toml")
    assert is_refused(run("plan", "run/other.toml"), key)
    assert not Path("imported").exists()


def test_reading_a_run_imports_no_code(run, scenario, tmp_path):
    assert run("run", scenario, "--out", "run")[0] == 0
    for key in CODE_KEYS:
        plant(Path("run/scenario.toml"), key)
    Path("run/changes.json").write_text(json.dumps(dict.fromkeys(CODE_KEYS, "evil_code:run")))
    plan = json.loads(Path("run/plan.json").read_text())
    Path("run/plan.json").write_text(json.dumps(plan | {"method": "evil_code:run"}))
    del sys.modules["small_net"]

    assert run("report", "run")[0] == 0
    assert run("export", "run", "--average")[0] == 0
    assert run("export", "run", "--device", 0)[0] == 0
    write_report("run")
    air.load_state("run", average=True)
    runs = LiveRuns(tmp_path)
    assert [line["name"] for line in runs.overview() if "problem" not in line] == ["run"]
    runs.run("run").series()
    runs.run("run").report()

    assert not Path("imported").exists()
    assert "small_net" not in sys.modules


def test_code_that_the_user_names_or_trusts_is_used(run, scenario, tmp_path):
    loss = "training.loss=torch.nn.functional:cross_entropy"
    words = ("run", scenario, "--out", "run", "--set", loss)
    assert run(*words)[0] == 0
    code, _, err = run(*words[:4], "--resume", "--set", "training.rounds=3")
    assert (code, "--set training.loss=torch.nn.functional:cross_entropy" in err) == (2, True)
    assert run(*words, "--resume", "--set", "training.rounds=3")[0] == 0
    assert run(*words[:4], "--resume", "--trust-run", "--set", "training.rounds=4")[0] == 0
    assert len(Path("run/rounds.jsonl").read_text().splitlines()) == 4
    assert run("run", "run/scenario.toml", "--out", "again")[0] == 2
    assert run("run", "run/scenario.toml", "--out", "again", "--trust-run")[0] == 0
    assert (
        air.Scenario.load("run/scenario.toml", trust_run=True).training.loss
        == "torch.nn.functional:cross_entropy"
    )


def test_recorded_settings_without_code_hold(run, scenario, tmp_path):
    words = ("run", scenario, "--out", "run")
    changes = ("--set", "training.learning_rate=0.5", "--set", "training.device=cpu")
    assert run(*words, *changes)[0] == 0
    assert run(*words, "--resume", "--set", "training.rounds=3")[0] == 0
