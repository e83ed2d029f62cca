"""simulate: run folders, stopping and going on - bit for bit, wherever a run was stopped."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import airsplit as air
from airsplit import AirsplitError, Diverged, FileProblem, InvalidValue
from airsplit.runs.folder import RunFolder
from airsplit.scenario.scenario import Scenario
from airsplit.scenario.settings import ALGORITHMS
from airsplit.training.checkpoint import read_checkpoint
from training import killed, tiny

TESTS = Path(__file__).parents[1]


def scenario(**settings: Any) -> Scenario:
    return tiny.scenario(**{"splits": [1, 2, 3, 1, 2], "rounds": 4, "momentum": 0.5} | settings)


def train(wanted: Scenario, folder: Path, rounds: int | None = None, resume: bool = False) -> None:
    """So many rounds, then stop as a user stops who has had enough; or all."""
    records = air.simulate(wanted, out=folder, resume=resume)
    for _ in itertools.islice(records, rounds):
        pass
    records.close()  # type: ignore[attr-defined]


def tensors_of(run: Path) -> dict[str, torch.Tensor]:
    whole = read_checkpoint(run / "checkpoint")
    assert whole is not None
    return whole.tensors


def assert_same_run(found: Path, wanted: Path) -> None:
    assert (found / "rounds.jsonl").read_bytes() == (wanted / "rounds.jsonl").read_bytes()
    assert (found / "scenario.toml").read_text() == (wanted / "scenario.toml").read_text()
    assert (found / "plan.json").read_text() == (wanted / "plan.json").read_text()
    assert (found / "checkpoint/checkpoint.json").read_text() == (
        wanted / "checkpoint/checkpoint.json"
    ).read_text()
    one, two = tensors_of(found), tensors_of(wanted)
    assert one.keys() == two.keys()
    assert [name for name in two if not torch.equal(one[name], two[name])] == []


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two rounds, to be copied."""
    folder = tmp_path_factory.mktemp("runs") / "done"
    train(scenario(rounds=2), folder)
    return folder


# ---- stopping and going on ---------------------------------------------------------------------------------------------------
CHANGING = {
    "plain": {},
    "momentum, absent and dropped devices": {"participation": 0.6, "dropout_probability": 0.3},
    "adam, weighted": {
        "optimizer": "adam",
        "momentum": None,
        "learning_rate": 0.03,
        "weighting": "samples",
    },
    "dropout": {
        "model": "dropout_mlp",
        "splits": [1, 3, 2, 1, 4],
        "model__arguments": {"front": 0.3, "back": 0.3},
    },
    "batch norm": {"model": "norm_mlp", "data": "parted_evenly", "splits": [1, 2, 3, 1]},
    "one iteration a round": {"iterations_per_round": 1},
    "fronts averaged": {"average_fronts_every": 2},
    "evaluated now and then": {"evaluate_every": 3, "evaluate_devices": 2},
}


@pytest.mark.parametrize(
    ("name", "every"),
    [*((name, 1) for name in CHANGING), ("plain", 3), ("evaluated now and then", 3)],
)
def test_a_run_that_was_stopped_goes_on_as_if_it_had_not(
    tmp_path: Path, name: str, every: int
) -> None:
    wanted = scenario(checkpoint_every=every, **CHANGING[name])
    train(wanted, tmp_path / "whole")
    train(wanted, tmp_path / "parts", rounds=1)
    train(wanted, tmp_path / "parts", rounds=1, resume=True)
    train(wanted, tmp_path / "parts", resume=True)
    assert_same_run(tmp_path / "parts", tmp_path / "whole")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_goes_on_as_if_it_had_not_been_stopped(
    tmp_path: Path, algorithm: str
) -> None:
    wanted = scenario(algorithm=algorithm, participation=0.8, dropout_probability=0.2)
    train(wanted, tmp_path / "whole")
    train(wanted, tmp_path / "parts", rounds=2)
    train(wanted, tmp_path / "parts", resume=True)
    assert_same_run(tmp_path / "parts", tmp_path / "whole")


@pytest.mark.parametrize(("algorithm", "every"), [("sfl", 1), ("sfl", 3), ("fedavg", 1)])
def test_a_run_goes_on_from_wherever_it_was_cut_off(
    tmp_path: Path, algorithm: str, every: int
) -> None:
    """A picture of the folder after each record, as a power cut would leave it; splits, channels and who is there change all the time."""
    changes = {
        "training.algorithm": algorithm,
        "training.rounds": 6,
        "training.checkpoint_every": every,
    }
    wanted = killed.scenario().replace(**changes)
    pictures = []
    for record in air.simulate(wanted, out=tmp_path / "whole"):
        pictures.append(tmp_path / f"cut-{record.round}")
        shutil.copytree(tmp_path / "whole", pictures[-1])
    for picture in pictures:
        train(wanted, picture, resume=True)
        assert_same_run(picture, tmp_path / "whole")
    lines = [
        json.loads(line) for line in (tmp_path / "whole/rounds.jsonl").read_text().splitlines()
    ]
    splits = [
        json.loads((tmp_path / "whole/plan.json").read_text())["splits"],
        *(line["splits"] for line in lines if "splits" in line),
    ]
    assert len({max(each) for each in splits}) > 1


def test_a_run_that_is_killed_again_and_again_ends_as_if_it_had_not(tmp_path: Path) -> None:
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
    }
    command = [sys.executable, "-m", "training.killed", str(tmp_path / "killed"), "3"]
    done = subprocess.run(
        command,
        cwd=TESTS,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 3
    train(killed.scenario(), tmp_path / "whole")
    assert_same_run(tmp_path / "killed", tmp_path / "whole")


@pytest.mark.parametrize("cut", [40, -1])
def test_a_last_line_that_was_cut_short_is_written_anew(tmp_path: Path, cut: int) -> None:
    """As by a crash while a record was being written: the checkpoint is of the round before."""
    wanted = scenario(checkpoint_every=1)
    train(wanted, tmp_path / "whole")
    train(wanted, tmp_path / "parts", rounds=2)
    third = (tmp_path / "whole/rounds.jsonl").read_text().splitlines(keepends=True)[2]
    with (tmp_path / "parts/rounds.jsonl").open("a") as file:
        file.write(third[:cut])
    train(wanted, tmp_path / "parts", resume=True)
    assert_same_run(tmp_path / "parts", tmp_path / "whole")


def test_a_run_that_was_cut_off_before_its_first_checkpoint_begins_again(tmp_path: Path) -> None:
    wanted = scenario()
    train(wanted, tmp_path / "whole")
    for name in ("scenario.toml", "plan.json"):  # they are there, and nothing else
        (tmp_path / "cut").mkdir(exist_ok=True)
        shutil.copy(tmp_path / "whole" / name, tmp_path / "cut" / name)
    (tmp_path / "cut/rounds.jsonl").write_text('{"round": 1, "virt')
    train(wanted, tmp_path / "cut", resume=True)
    assert_same_run(tmp_path / "cut", tmp_path / "whole")


def test_resuming_without_a_run_begins_one(tmp_path: Path) -> None:
    train(scenario(), tmp_path / "whole")
    train(scenario(), tmp_path / "new", resume=True)
    assert_same_run(tmp_path / "new", tmp_path / "whole")


def test_more_rounds_can_be_asked_for_and_are_those_of_the_longer_run(tmp_path: Path) -> None:
    train(scenario(rounds=4), tmp_path / "whole")
    train(scenario(rounds=2), tmp_path / "parts")
    train(scenario(rounds=4), tmp_path / "parts", resume=True)
    assert_same_run(tmp_path / "parts", tmp_path / "whole")


def test_a_run_that_is_done_stays_as_it_is(tmp_path: Path) -> None:
    train(scenario(rounds=2), tmp_path / "run")
    before = (tmp_path / "run/rounds.jsonl").read_bytes()
    assert list(air.simulate(scenario(rounds=2), out=tmp_path / "run", resume=True)) == []
    assert (tmp_path / "run/rounds.jsonl").read_bytes() == before


def test_fewer_rounds_than_are_done_do_not_rewrite_what_was_run(tmp_path: Path) -> None:
    train(scenario(rounds=4), tmp_path / "run")
    with contextlib.suppress(InvalidValue):  # refused, or nothing to do
        assert list(air.simulate(scenario(rounds=2), out=tmp_path / "run", resume=True)) == []
    assert Scenario.from_toml((tmp_path / "run/scenario.toml").read_text()).training.rounds == 4
    assert len(RunFolder(tmp_path / "run").read_records()) == 4


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"training.seed": 1}, "training.seed"),
        ({"training.learning_rate": 0.1}, "training.learning_rate"),
        ({"training.algorithm": "fedavg"}, "training.algorithm"),
        ({"training.checkpoint_every": 2}, "training.checkpoint_every"),
        ({"plan.split": [2, 2, 2, 2, 2]}, "plan.split"),
        ({"clock.downlink": True}, "clock.downlink"),
        ({"cell.bandwidth_hz": 1e6}, "cell.bandwidth_hz"),
        ({"fleet.seed": 1}, "fleet.seed"),
        ({"model.arguments.classes": 4}, "model"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_another_scenario_is_refused_and_the_setting_is_named(
    done: Path, tmp_path: Path, changes: dict[str, Any], key: str
) -> None:
    shutil.copytree(done, tmp_path / "run")
    before = {file: file.read_bytes() for file in (tmp_path / "run").rglob("*") if file.is_file()}
    with pytest.raises(InvalidValue, match=f"{key}.*only training.rounds may differ"):
        air.simulate(scenario(rounds=3).replace(**changes), out=tmp_path / "run", resume=True)
    assert {
        file: file.read_bytes() for file in (tmp_path / "run").rglob("*") if file.is_file()
    } == before


# ---- what is wrong with a folder ---------------------------------------------------------------------------------------------
def test_a_folder_with_a_run_is_not_written_over(done: Path) -> None:
    with pytest.raises(InvalidValue, match="already contains a run"):
        air.simulate(scenario(), out=done)


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("rounds.jsonl", "", "not a record of each round"),
        ("rounds.jsonl", "not json\n", "line 1"),
        ("rounds.jsonl", '{"round": 1}\n', "line 1"),
        ("rounds.jsonl", '{"round": "1", "virtual_time_s": 1.0, "latency_s": 1.0}\n', "line 1"),
        ("rounds.jsonl", '{"round": null, "virtual_time_s": 1.0, "latency_s": 1.0}\n', "line 1"),
        ("scenario.toml", "", "model"),
        ("scenario.toml", "[model", "TOML"),
        ("checkpoint/fixed.safetensors", "", "fixed.safetensors"),
    ],
)
def test_a_folder_that_was_damaged_is_told_what_is_wrong_with_it(
    done: Path, tmp_path: Path, file: str, text: str, message: str
) -> None:
    shutil.copytree(done, tmp_path / "run")
    (tmp_path / "run" / file).write_text(text)
    with pytest.raises(AirsplitError, match=message):
        air.simulate(scenario(rounds=3), out=tmp_path / "run", resume=True)


def test_a_checkpoint_that_is_missing_a_file_is_told(done: Path, tmp_path: Path) -> None:
    for file in ("fixed.safetensors", "round-000002.safetensors"):
        shutil.copytree(done, tmp_path / "broken")
        (tmp_path / "broken/checkpoint" / file).unlink()
        (
            tmp_path / "broken/checkpoint/round-000001.json"
        ).unlink()  # else that checkpoint would be used
        with pytest.raises(FileProblem, match=file):
            air.simulate(scenario(rounds=3), out=tmp_path / "broken", resume=True)
        shutil.rmtree(tmp_path / "broken")


def test_one_run_folder_is_trained_in_by_one_at_a_time(tmp_path: Path) -> None:
    records = air.simulate(scenario(), out=tmp_path / "run")
    next(records)
    for resume in (True, False):
        with pytest.raises(AirsplitError, match=r"in use|already"):
            next(air.simulate(scenario(), out=tmp_path / "run", resume=resume))
    rest = list(records)
    assert [record.round for record in rest] == [2, 3, 4]
    train(scenario(), tmp_path / "whole")
    assert_same_run(tmp_path / "run", tmp_path / "whole")
    assert list(air.simulate(scenario(), out=tmp_path / "run", resume=True)) == []  # free again


@pytest.mark.filterwarnings("error")
def test_an_iterator_that_nobody_begins_holds_nothing(tmp_path: Path) -> None:
    import gc
    import warnings

    records = air.simulate(scenario(), out=tmp_path / "run")
    seen = []
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_: seen.append(str(message))  # type: ignore[assignment]
        warnings.simplefilter("always")
        records.close()  # type: ignore[attr-defined]
        del records
        gc.collect()
    train(scenario(), tmp_path / "run", resume=True)
    assert seen == []


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(AirsplitError, match="cannot be written"):
        air.simulate(scenario(), out=tmp_path / "file")
    if os.geteuid() != 0:
        (tmp_path / "closed").mkdir(mode=0o500)
        with pytest.raises(AirsplitError, match="cannot be written"):
            air.simulate(scenario(), out=tmp_path / "closed" / "run")


def test_arguments_that_make_no_sense_are_refused() -> None:
    with pytest.raises(InvalidValue, match="scenario must be"):
        air.simulate("demo")  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="resume needs out"):
        air.simulate(scenario(), resume=True)


# ---- what is in a folder -----------------------------------------------------------------------------------------------------
def test_a_run_folder_says_everything_about_the_run(tmp_path: Path) -> None:
    records = list(air.simulate(scenario(), out=tmp_path / "run"))
    written = Scenario.load(tmp_path / "run/scenario.toml", trust_run=True)
    assert written.plan.split == ("0", "1", "2", "0", "1")  # by name
    assert (
        written.model.fingerprint
        == json.loads((tmp_path / "run/checkpoint/checkpoint.json").read_text())["fingerprint"]
    )
    plan = json.loads((tmp_path / "run/plan.json").read_text())
    assert plan["splits"] == [1, 2, 3, 1, 2]
    assert sum(plan["shares"]) <= 1
    assert RunFolder(tmp_path / "run").read_records() == records
    assert air.write_report(tmp_path / "run").exists()


def test_the_scenario_of_a_run_is_the_same_run(tmp_path: Path) -> None:
    train(scenario(), tmp_path / "one")
    train(Scenario.load(tmp_path / "one/scenario.toml", trust_run=True), tmp_path / "two")
    assert_same_run(tmp_path / "two", tmp_path / "one")


def test_each_record_is_on_the_disk_before_the_caller_sees_it(tmp_path: Path) -> None:
    for record in air.simulate(scenario(checkpoint_every=2), out=tmp_path / "run"):
        assert RunFolder(tmp_path / "run").read_records()[-1] == record
        if record.round % 2 == 0:
            assert (
                json.loads((tmp_path / "run/checkpoint/checkpoint.json").read_text())["round"]
                == record.round
            )


def test_writing_a_run_down_does_not_change_it(tmp_path: Path) -> None:
    assert [r.to_json() for r in air.simulate(scenario())] == [
        r.to_json() for r in air.simulate(scenario(), out=tmp_path / "run")
    ]


# ---- diverging ---------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("every", [1, 2])
def test_when_training_diverges_the_last_good_checkpoint_is_there_and_loads(
    tmp_path: Path, every: int
) -> None:
    """Weights grow by a factor every round until they overflow."""
    wanted = scenario(
        model="linear",
        learning_rate=0.01,
        momentum=0.0,
        weight_decay=300.0,
        rounds=200,
        checkpoint_every=every,
        iterations_per_round=1,
    )
    with pytest.raises(Diverged, match="round"):
        list(air.simulate(wanted, out=tmp_path / "run"))
    done = [record.round for record in RunFolder(tmp_path / "run").read_records()]
    assert len(done) > 2
    assert done == list(range(1, len(done) + 1))
    state = air.load_state(tmp_path / "run", device=0)
    assert (
        json.loads((tmp_path / "run/checkpoint/checkpoint.json").read_text())["round"]
        == done[-1] - done[-1] % every
    )
    assert all(torch.isfinite(tensor).all() for tensor in state.values())
    with pytest.raises(Diverged):
        list(air.simulate(wanted, out=tmp_path / "run", resume=True))


def test_weights_that_are_not_finite_never_come_into_a_checkpoint(tmp_path: Path) -> None:
    wanted = scenario(
        model="rooted",
        splits=[2] * 5,
        iterations_per_round=1,
        fast_paths=False,
        evaluate_every=100,
        rounds=3,
    )
    with pytest.raises(Diverged):
        list(air.simulate(wanted, out=tmp_path / "run"))
    if (tmp_path / "run/checkpoint/checkpoint.json").exists():
        assert all(
            torch.isfinite(tensor).all()
            for tensor in air.load_state(tmp_path / "run", device=0).values()
        )


# ---- learning ----------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_digits_are_learned(algorithm: str) -> None:
    settings = {
        "dataset": "digits",
        "algorithm": algorithm,
        "rounds": 8,
        "iterations_per_round": 5,
        "batch_size": 32,
        "learning_rate": 0.1,
    }
    wanted = tiny.scenario(
        model="digits_net",
        data="flat",
        splits=[2, 4, 2, 1],
        momentum=0.8,
        evaluate_every=8,
        **settings,
    )
    records = list(air.simulate(wanted))
    assert records[0].train_loss > 2.0  # ln 10 = 2.3
    assert records[-1].train_loss < 1.0
    assert records[-1].test_accuracy > 0.7
