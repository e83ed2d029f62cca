"""The examples of docs/extending.md work as they stand, and are short."""

from __future__ import annotations

import ast
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import airsplit as air
from airsplit.cli.app import main

PAGE = (Path(__file__).parents[1] / "docs" / "extending.md").read_text(encoding="utf-8")
MODULES = dict(re.findall(r"```python\n(?:# (\w+)\.py\n)(.*?)```", PAGE, flags=re.DOTALL))

# Changes of the demo that make a training of a second.
SMALL = {
    "fleet.devices": 3,
    "training.rounds": 2,
    "training.iterations_per_round": 2,
    "training.evaluate_samples": 20,
}


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with the page's files in it."""
    for name, code in MODULES.items():
        (tmp_path / f"{name}.py").write_text(code)
        monkeypatch.delitem(sys.modules, name, raising=False)
    ((scenario,)) = re.findall(r"```text\n(.*?)```", PAGE, flags=re.DOTALL)
    (tmp_path / "tones.toml").write_text(scenario)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def write_module(folder: Path, name: str, code: str) -> None:
    """Write a module, and forget the one of that name that was imported before."""
    (folder / f"{name}.py").write_text(code)
    sys.modules.pop(name, None)


def set_options(**changes: object) -> list[str]:
    """Return --set options for small trainings; two underscores stand for a dot."""
    settings = SMALL | {key.replace("__", "."): value for key, value in changes.items()}
    return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]


def commands(start: str) -> list[list[str]]:
    """Return the page's commands that start with these words, without "airsplit"."""
    lines = re.findall(rf"^airsplit ({start}.*)$", PAGE, flags=re.MULTILINE)
    assert lines
    return [line.split() for line in lines]


# The page
def test_each_example_is_short_and_tested_here() -> None:
    names = (
        "thrifty",
        "median",
        "tones",
        "focal",
        "calibration",
        "unequal",
        "walls",
    )
    assert {name: code.count("\n") < 40 for name, code in MODULES.items()} == dict.fromkeys(
        names, True
    )


@pytest.mark.parametrize("name", sorted(set(MODULES) - {"median"}))
def test_an_example_imports_nothing_of_airsplit_but_airsplit(name: str) -> None:
    imported: set[str] = set()
    for node in ast.walk(ast.parse(MODULES[name])):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(str(node.module))
    assert not {module for module in imported if module.startswith("airsplit.")}


# A planning method
def test_a_method_by_path_plans_and_is_bounded(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "paper-alexnet", "--method", "thrifty:least_data", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    profile = air.profile("alexnet")
    assert (plan["method"], plan["objective"]) == ("thrifty:least_data", "largest mean")
    assert set(plan["splits"]) == {1 + int(np.argmin(profile.activation_elements[:8]))}
    best = air.plan(
        profile, air.Fleet.sample(20, seed=0), method="exact", max_split=8, batch_size=32
    )
    assert plan["lower_bound_s"] == pytest.approx(best.objective_s)
    assert plan["gap"] > 0


def test_a_method_by_path_gets_its_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    profile = air.profile("alexnet")
    fleet = air.Fleet.sample(3, seed=0)
    arguments = {"bits_per_mac": 1e3}
    plan = air.plan(profile, fleet, method="thrifty:least_data", method_arguments=arguments)
    assert plan.splits.tolist() == [1, 1, 1]

    name = "plan.method_arguments.bits_per_mac"
    words = ["plan", "paper-alexnet", "--method", "thrifty:least_data", "--json"]
    assert main([*words, "--set", f"{name}=1e3"]) == 0
    assert set(json.loads(capsys.readouterr().out)["splits"]) == {1}
    assert main([*words, "--set", f"{name}s=1e3"]) == 2
    assert (
        "method 'thrifty:least_data' failed: TypeError: least_data() got an unexpected keyword "
        "argument 'bits_per_macs' (thrifty.py:8)"
    ) in capsys.readouterr().err


def test_arguments_for_a_built_in_method_are_rejected() -> None:
    profile = air.profile("alexnet")
    fleet = air.Fleet.sample(3, seed=0)
    with pytest.raises(
        air.InvalidValue,
        match=r"^method_arguments are for a method of your own, "
        r'method = "package\.module:function"; leave them out for "exact", got \{\'level\': 1\}$',
    ):
        air.plan(profile, fleet, method="exact", method_arguments={"level": 1})


def test_code_that_is_not_a_method_is_rejected(workplace: Path) -> None:
    write_module(workplace, "wrong", "def nothing(problem): pass\nnumber = 3\n")
    profile = air.profile("alexnet")
    fleet = air.Fleet.sample(3, seed=0)
    with pytest.raises(
        air.InvalidValue,
        match=r"method 'wrong:nothing' must return an airsplit\.Proposal\(splits, shares\), "
        r"got None",
    ):
        air.plan(profile, fleet, method="wrong:nothing")
    with pytest.raises(
        air.InvalidValue,
        match="method 'wrong:number' must be a function or class that returns a Proposal, got 3",
    ):
        air.plan(profile, fleet, method="wrong:number")
    with pytest.raises(air.UnknownName, match="wrong has no 'nothin'; did you mean 'nothing'"):
        air.plan(profile, fleet, method="wrong:nothin")


# A training algorithm
def small_demo(algorithm: str) -> air.Scenario:
    return air.Scenario.load("demo").replace(**SMALL, **{"training.algorithm": algorithm})


def test_an_algorithm_by_path_trains_on_the_same_clock_and_resumes(workplace: Path) -> None:
    ours = list(air.simulate(small_demo("median:MEDIAN"), out=workplace / "median"))
    sfl = list(air.simulate(small_demo("sfl"), out=workplace / "sfl"))
    assert [record.latency_s for record in ours] == [record.latency_s for record in sfl]
    # The first round starts from the same weights and samples.
    assert ours[0].train_loss == sfl[0].train_loss
    assert ours[1].train_loss != sfl[1].train_loss

    longer = small_demo("median:MEDIAN").replace(**{"training.rounds": 3})
    with pytest.warns(
        UserWarning,
        match="'median:MEDIAN': state that an algorithm of one's own keeps "
        "is not in the checkpoint",
    ):
        (third,) = air.simulate(longer, out=workplace / "median", resume=True)
    assert third.round == 3
    # A run that is complete does not go on, so there is nothing to warn of.
    assert list(air.simulate(longer, out=workplace / "median", resume=True)) == []
    # A built-in algorithm has all of its state in the checkpoint.
    longer = small_demo("sfl").replace(**{"training.rounds": 3})
    (third,) = air.simulate(longer, out=workplace / "sfl", resume=True)
    assert third.round == 3


def test_the_command_line_notes_that_an_algorithms_own_state_starts_over(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["run", "demo", "--out", "run"]
    options = set_options(training__algorithm="median:MEDIAN")
    assert main([*words, *options, "--set", "training.rounds=1"]) == 0
    assert "start" not in capsys.readouterr().err
    assert main([*words, *options, "--resume"]) == 0
    lines = capsys.readouterr().err.splitlines()
    (note,) = [line for line in lines if "not in the checkpoint" in line]
    assert note.startswith("airsplit: note: training.algorithm 'median:MEDIAN'")


def test_the_median_of_three_copies_is_the_middle_one(workplace: Path) -> None:
    scenario = small_demo("median:MEDIAN").replace(**{"training.rounds": 1})
    list(air.simulate(scenario, out=workplace / "run"))
    median = air.load_state(workplace / "run", device=0)["fc8.bias"].numpy()

    copies = []
    for k in range(3):
        write_module(workplace, "apart", ONE_DEVICE.format(device=k))
        alone = scenario.replace(**{"training.algorithm": "apart:ONE"})
        list(air.simulate(alone, out=workplace / f"alone{k}"))
        copies.append(air.load_state(workplace / f"alone{k}", device=0)["fc8.bias"].numpy())
    assert np.array_equal(median, np.median(copies, axis=0))


# The same algorithm with one device that trains, which shows that device's copy.
ONE_DEVICE = """
import dataclasses
from median import MEDIAN, median_round

def one(crew, state, task):
    iterations = task.iterations.copy()
    iterations[[k for k in range(len(iterations)) if k != {device}]] = 0
    return median_round(crew, state, dataclasses.replace(task, iterations=iterations))

ONE = dataclasses.replace(MEDIAN, round=one)
"""


def test_algorithms_by_path_are_compared_with_others(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["compare", "demo", "--algorithms", "sfl,median:MEDIAN", "--seeds", "1", "--out", "out"]
    assert main([*words, *set_options()]) == 0
    assert "median:MEDIAN" in capsys.readouterr().out
    assert (workplace / "out" / "median.MEDIAN-seed0" / "report.html").exists()
    report = (workplace / "out" / "report.html").read_text()
    assert 'href="median.MEDIAN-seed0/report.html"' in report


def test_an_algorithm_by_path_is_timed_by_airsplit_clock(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (words,) = commands("clock")
    assert main(words) == 0
    assert "median:MEDIAN" in capsys.readouterr().out


def test_code_that_is_not_an_algorithm_is_rejected(workplace: Path) -> None:
    write_module(workplace, "worse", "def train(crew, state, task): pass\n")
    with pytest.raises(
        air.InvalidValue,
        match=r"training\.algorithm 'worse:train' must be an "
        r"airsplit\.training\.algorithms\.algorithm\.Algorithm, got <function",
    ):
        list(air.simulate(small_demo("worse:train")))


def test_a_server_rejects_an_algorithm_by_path(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["serve", "demo", "--devices", "2", "--listen", "127.0.0.1:0"]
    assert main([*words, "--set", "training.algorithm=median:MEDIAN"]) == 2
    assert (
        "training.algorithm must be one of sfl, fedavg over a network, got 'median:MEDIAN'"
        in capsys.readouterr().err
    )


# A model, a data set, a loss, a metric, a partition, a path loss
def test_a_model_and_a_data_set_by_path_learn(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "tones.toml", "--out", "runs/tones", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["test_accuracy"] > 0.9


@pytest.mark.parametrize("command", [["run"], ["compare", "--algorithms", "sfl", "--seeds", "1"]])
def test_a_loss_by_path_gets_its_arguments(
    command: list[str], workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    losses = []
    for gamma in (0, 2):
        options = set_options(
            training__loss="focal:focal_loss", training__loss_arguments__gamma=gamma
        )
        out = workplace / f"gamma{gamma}"
        assert main([command[0], "demo", *command[1:], "--out", str(out), *options]) == 0
        (records,) = out.rglob("rounds.jsonl")
        losses.append(json.loads(records.read_text().splitlines()[0])["train_loss"])
    (plain,) = air.simulate(small_demo("sfl").replace(**{"training.rounds": 1}))
    assert losses[0] == pytest.approx(plain.train_loss, rel=1e-6)
    assert losses[1] < losses[0]


def test_a_metric_by_path_is_in_the_records_and_on_the_screen(
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = set_options(
        training__metric="calibration:calibration_error",
        training__metric_goal="min",
        training__metric_arguments__bins=4,
    )
    assert main(["run", "demo", "--out", "run", "--json", *options]) == 0
    printed = capsys.readouterr()
    result = json.loads(printed.out)
    assert 0 <= result["test_metric"] <= result["test_metric_worst"] <= 1
    line = f"round 2 of 2 · calibration_error {result['test_metric']:.4g} · loss"
    assert line in printed.err


def test_the_calibration_error_by_hand() -> None:
    """Three answers with 90 % confidence, two of them right, all in one bin of ten."""
    import torch
    from calibration import calibration_error  # type: ignore[import-not-found]

    scores = torch.tensor([[0.9, 0.1]] * 3).log()
    assert calibration_error(scores, torch.tensor([0, 0, 1])) == pytest.approx(abs(3 * 0.9 - 2) / 3)


def test_a_partition_by_path_is_the_same_in_the_table_and_in_a_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["data", "digits", "--devices", "3", "--partition", "unequal:unequal_sizes", "--json"]
    tables = {}
    for alpha in ("0.5", "1e6"):
        assert main([*words, "--partition-arg", f"alpha={alpha}"]) == 0
        document = json.loads(capsys.readouterr().out)
        tables[alpha] = np.array(document["label_counts"]).sum(axis=1)
    assert tables["0.5"].sum() == tables["1e6"].sum() == 1437
    assert np.ptp(tables["1e6"]) < 10 < np.ptp(tables["0.5"])

    from airsplit.training.coordinator import Training

    changes = {
        "training.partition": "unequal:unequal_sizes",
        "training.partition_arguments.alpha": 0.5,
    }
    training = Training(small_demo("sfl").replace(**changes))
    assert training.sample_counts.tolist() == tables["0.5"].tolist()


def test_a_partition_by_path_trains(capsys: pytest.CaptureFixture[str]) -> None:
    options = set_options(training__partition="unequal:unequal_sizes")
    assert main(["run", "demo", "--out", "run", "--json", *options]) == 0
    assert json.loads(capsys.readouterr().out)["rounds"] == 2


def test_a_partition_that_gives_a_sample_twice_is_rejected(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_module(
        workplace, "greedy", "def all_of_them(labels, devices, rng):\n    return [[7]] * devices\n"
    )
    options = set_options(training__partition="greedy:all_of_them")
    assert main(["run", "demo", "--out", "run", *options]) == 2
    assert (
        "training.partition 'greedy:all_of_them' must give each sample to at most one device and "
        "once, got sample 7 for devices 0 and 1"
    ) in capsys.readouterr().err


def test_a_path_loss_by_path_changes_the_rates(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "paper-alexnet", "--json", "--set", "cell.path_loss=walls:shadowed_path_loss"]
    latencies = []
    for shadowing_db in (0, 6):
        changed = f"cell.path_loss_arguments.shadowing_db={shadowing_db}"
        assert main([*words, "--set", changed]) == 0
        latencies.append(json.loads(capsys.readouterr().out)["expected_latency_s"])
    assert main(["plan", "paper-alexnet", "--json"]) == 0
    built_in = json.loads(capsys.readouterr().out)["expected_latency_s"]
    assert latencies[0] == pytest.approx(built_in)
    assert latencies[1] != pytest.approx(built_in)


def test_code_that_raises_is_an_error_with_its_line(workplace: Path) -> None:
    write_module(workplace, "broken", "def plan(problem):\n    return problem.nothing\n")
    with pytest.raises(air.UserCodeError, match=r"AttributeError: .* \(broken\.py:2\)$") as caught:
        air.plan(air.profile("alexnet"), air.Fleet.sample(2, seed=0), method="broken:plan")
    assert isinstance(caught.value.__cause__, AttributeError)
