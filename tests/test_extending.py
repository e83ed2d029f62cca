"""What "Extending" shows works as it stands there, and is short."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import airsplit as air
from airsplit.cli.app import main
from airsplit.core.errors import InvalidValue, UnknownName

PAGE = (Path(__file__).parents[1] / "docs" / "extending.md").read_text(encoding="utf-8")
MODULES = dict(re.findall(r"```python\n(?:# (\w+)\.py\n)(.*?)```", PAGE, flags=re.DOTALL))


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the page's files in it."""
    for name, code in MODULES.items():
        (tmp_path / f"{name}.py").write_text(code)
        monkeypatch.delitem(sys.modules, name, raising=False)
    ((scenario,)) = re.findall(r"```text\n(.*?)```", PAGE, flags=re.DOTALL)
    (tmp_path / "tones.toml").write_text(scenario)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_each_piece_is_short() -> None:
    assert {name: code.count("\n") < 40 for name, code in MODULES.items()} == dict.fromkeys(
        ("thrifty", "median", "tones", "calibration", "walls"), True
    )


def test_a_method_of_ones_own_plans_and_is_bounded(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "paper-alexnet", "--method", "thrifty:least_data", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    profile = air.profile("alexnet")
    assert (made["method"], made["objective"]) == ("thrifty:least_data", "largest mean")
    assert set(made["splits"]) == {1 + int(np.argmin(profile.activation_elements[:8]))}
    best = air.plan(
        profile, air.Fleet.sample(20, seed=0), method="exact", max_split=8, batch_size=32
    )
    assert made["lower_bound_s"] == pytest.approx(best.objective_s)
    assert made["gap"] > 0


def test_what_is_no_method_is_refused(workplace: Path) -> None:
    (workplace / "wrong.py").write_text("def nothing(problem): pass\nnumber = 3\n")
    profile, fleet = air.profile("alexnet"), air.Fleet.sample(3, seed=0)
    with pytest.raises(
        InvalidValue,
        match=r"method 'wrong:nothing' must return an airsplit\.Proposal\(splits, shares\), got None",
    ):
        air.plan(profile, fleet, method="wrong:nothing")
    with pytest.raises(
        InvalidValue,
        match="method 'wrong:number' must be a function or class that returns a Proposal, got 3",
    ):
        air.plan(profile, fleet, method="wrong:number")
    with pytest.raises(UnknownName, match="wrong has no 'nothin'; did you mean 'nothing'"):
        air.plan(profile, fleet, method="wrong:nothin")


def small(algorithm: str) -> air.Scenario:
    changes = {
        "training.rounds": 2,
        "training.iterations_per_round": 2,
        "fleet.devices": 3,
        "training.evaluate_samples": 20,
    }
    return air.Scenario.load("demo").replace(**changes, **{"training.algorithm": algorithm})


def test_an_algorithm_of_ones_own_trains_on_the_same_clock_and_resumes(workplace: Path) -> None:
    ours, theirs = (
        list(air.simulate(small(name), out=workplace / name[:3]))
        for name in ("median:MEDIAN", "sfl")
    )
    assert [record.latency_s for record in ours] == [record.latency_s for record in theirs]
    assert ours[0].train_loss == theirs[0].train_loss  # from the same weights, on the same samples
    assert ours[1].train_loss != theirs[1].train_loss
    longer = small("median:MEDIAN").replace(**{"training.rounds": 3})
    with pytest.warns(
        UserWarning,
        match="'median:MEDIAN': state that an algorithm of one's own keeps is not in the checkpoint",
    ):
        (more,) = air.simulate(longer, out=workplace / "med", resume=True)
    assert more.round == 3
    assert (
        list(air.simulate(longer, out=workplace / "med", resume=True)) == []
    )  # nothing goes on, so nothing is said
    (third,) = air.simulate(
        small("sfl").replace(**{"training.rounds": 3}), out=workplace / "sfl", resume=True
    )  # and of ours, neither
    assert third.round == 3


def test_the_command_line_says_that_an_algorithms_own_state_starts_over(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "run",
        "demo",
        "--out",
        "run",
        "--set",
        "fleet.devices=2",
        "--set",
        "training.iterations_per_round=1",
    ]
    words += ["--set", "training.evaluate_samples=20", "--set", "training.algorithm=median:MEDIAN"]
    assert main([*words, "--set", "training.rounds=1"]) == 0
    assert "start" not in capsys.readouterr().err
    assert main([*words, "--set", "training.rounds=2", "--resume"]) == 0
    (note,) = [
        line for line in capsys.readouterr().err.splitlines() if "not in the checkpoint" in line
    ]
    assert note.startswith("airsplit: note: training.algorithm 'median:MEDIAN'")


def test_the_median_of_three_copies_is_the_middle_one(workplace: Path) -> None:
    scenario = small("median:MEDIAN").replace(**{"training.rounds": 1})
    for _ in air.simulate(scenario, out=workplace / "run"):
        pass
    median = air.load_state(workplace / "run", device=0)["fc8.bias"].numpy()
    alone = []
    for k in range(3):  # one that takes the copies apart: what each device would have come to
        (workplace / "apart.py").write_text(APART.format(device=k))
        sys.modules.pop("apart", None)
        for _ in air.simulate(
            scenario.replace(**{"training.algorithm": "apart:ONE"}), out=workplace / f"alone{k}"
        ):
            pass
        alone.append(air.load_state(workplace / f"alone{k}", device=0)["fc8.bias"].numpy())
    assert np.array_equal(median, np.median(alone, axis=0))


APART = """
import dataclasses
from median import MEDIAN, median_round

def one(crew, state, task):
    iterations = task.iterations.copy()
    iterations[[k for k in range(len(iterations)) if k != {device}]] = 0
    return median_round(crew, state, dataclasses.replace(task, iterations=iterations))

ONE = dataclasses.replace(MEDIAN, round=one)
"""


def test_algorithms_of_ones_own_are_compared_with_others(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small_run = [
        "--set",
        "fleet.devices=3",
        "--set",
        "training.rounds=2",
        "--set",
        "training.evaluate_samples=20",
    ]
    words = [
        "compare",
        "demo",
        "--algorithms",
        "sfl,median:MEDIAN",
        "--seeds",
        "1",
        "--out",
        "both",
        *small_run,
    ]
    assert main(words) == 0
    assert "median:MEDIAN" in capsys.readouterr().out
    assert (workplace / "both" / "median.MEDIAN-seed0" / "report.html").exists()
    assert (
        'href="median.MEDIAN-seed0/report.html"' in (workplace / "both" / "report.html").read_text()
    )


def test_what_is_no_algorithm_is_refused(workplace: Path) -> None:
    (workplace / "worse.py").write_text("def train(crew, state, task): pass\n")
    with pytest.raises(
        InvalidValue,
        match=r"training\.algorithm 'worse:train' must be an airsplit\.training\.algorithms\.algorithm\.Algorithm, got <function",
    ):
        list(air.simulate(small("worse:train")))


def test_a_server_takes_no_algorithm_by_its_path(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(
            [
                "serve",
                "demo",
                "--devices",
                "2",
                "--listen",
                "127.0.0.1:0",
                "--set",
                "training.algorithm=median:MEDIAN",
            ]
        )
        == 2
    )
    assert (
        "training.algorithm must be one of sfl, fedavg over a network, got 'median:MEDIAN'"
        in capsys.readouterr().err
    )


def test_a_model_and_a_data_set_of_ones_own_learn(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "tones.toml", "--out", "runs/tones", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["test_accuracy"] > 0.9


def test_an_algorithm_of_ones_own_is_clocked(capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = re.findall(r"^airsplit (clock .*)$", PAGE, flags=re.MULTILINE)
    assert main(line.split()) == 0
    assert "median:MEDIAN" in capsys.readouterr().out


def test_a_metric_of_ones_own_is_in_the_records_and_in_what_is_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    few = (
        "training.rounds=2",
        "training.iterations_per_round=1",
        "fleet.devices=3",
        "training.metric_arguments.bins=4",
    )
    wanted = ("training.metric=calibration:calibration_error", "training.metric_goal=min")
    assert (
        main(
            [
                "run",
                "demo",
                "--out",
                "run",
                "--json",
                *(part for each in (*few, *wanted) for part in ("--set", each)),
            ]
        )
        == 0
    )
    shown = capsys.readouterr()
    found = json.loads(shown.out)
    assert 0 <= found["test_metric"] <= found["test_metric_worst"] <= 1
    assert f"round 2 of 2 · calibration_error {found['test_metric']:.4g} · loss" in shown.err


def test_the_calibration_error_by_hand(workplace: Path) -> None:
    """Three answers of which 90 % are sure: two are right, one is not; in one bin of ten."""
    import torch
    from calibration import calibration_error  # type: ignore[import-not-found]

    scores = torch.tensor([[0.9, 0.1]] * 3).log()
    assert calibration_error(scores, torch.tensor([0, 0, 1])) == pytest.approx(abs(3 * 0.9 - 2) / 3)


def test_a_path_loss_of_ones_own_changes_the_rates(capsys: pytest.CaptureFixture[str]) -> None:
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
