"""Processes that train together: what comes out is what one process makes of it, to rounding, and none of them ever waits in vain."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import airsplit as air
from airsplit import AirsplitError, InvalidValue
from airsplit.runs.folder import RunFolder
from airsplit.scenario.scenario import Scenario
from airsplit.simulation import simulate as simulation
from airsplit.training import ranks as module
from airsplit.training.algorithms import ALGORITHMS
from airsplit.training.ranks import ALONE, OutOfTouch, Ranks, as_bytes, in_touch, joined, ranks_of
from training import ranked

TESTS = Path(__file__).parent.parent
PATIENCE_S = 60
"""Where processes wait for each other in vain, a test fails; it does not hang."""

RUNNING = "RANK", "WORLD_SIZE", "LOCAL_RANK", "TORCHELASTIC_USE_AGENT_STORE"


@contextmanager
def torchrun(processes: int, *words: Any, restarts: int = 0) -> Iterator[None]:
    """A context while which processes do something; they must have ended well when it ends."""
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
    }
    launch = [
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        str(processes),
        "--max-restarts",
        str(restarts),
        "-m",
    ]
    command = [sys.executable, *launch, *(str(word) for word in words)]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command, cwd=TESTS, env=environment, **pipes) as started:
        try:
            yield
            said, _ = started.communicate(timeout=PATIENCE_S)
            assert started.returncode == 0, said
        finally:
            started.terminate()  # torchrun, which then ends the others


# ---- the same run --------------------------------------------------------------------------------------------------------------
def train_alone(wanted: Scenario, out: Path, *, resume: bool = False) -> None:
    for _ in air.simulate(wanted, out=out, resume=resume):
        pass


def records_in(run: Path) -> list[str]:
    return (run / "rounds.jsonl").read_text().splitlines()


def tensors_in(run: Path) -> dict[str, torch.Tensor]:
    """Return the newest checkpoint of a run."""
    return load_file(max((run / "checkpoint").glob("round-*.safetensors")))


def differences(one: Path, other: Path) -> list[str]:
    """What is not the same in two runs but for rounding: weights, whatever the optimizer remembers, records."""
    found = []
    mine, yours = tensors_in(one), tensors_in(other)
    assert mine.keys() == yours.keys()
    for name, tensor in mine.items():
        if tensor.is_floating_point():
            close = 1e-10 if tensor.dtype == torch.float64 else 1e-2
            same = torch.allclose(tensor, yours[name], rtol=close, atol=close)
        else:
            same = torch.equal(tensor, yours[name])
        found += [] if same and tensor.dtype == yours[name].dtype else [f"{one.name}: {name}"]
    records = [
        [json.loads(record.to_json()) for record in RunFolder(run).read_records()]
        for run in (one, other)
    ]
    for a, b in zip(*records, strict=True):
        assert a.keys() == b.keys()
        found += [
            f"{one.name}: {key} of round {a['round']}"
            for key in a
            if not np.allclose(a[key] or 0, b[key] or 0, rtol=1e-6, atol=1e-12)
        ]
    return found


@pytest.mark.filterwarnings("ignore:the devices are trained one after the other")
def test_processes_train_together_what_one_trains_alone(tmp_path: Path) -> None:
    """Three processes, then two: all that the engine does, runs that three begin and two or one finish, whatever goes wrong, a kill."""
    three, two, one = (tmp_path / name for name in ("three", "two", "one"))
    seen = {}
    for folder, size in ((three, 3), (two, 2)):
        folder.mkdir()
        ranked.write_scenarios(folder)
        if folder == two:
            for name in ranked.CUT:
                shutil.copytree(three / name, one / "resumed" / name)
                shutil.copytree(three / name, two / name)
        with torchrun(size, "training.ranked", folder, restarts=1 if size == 2 else 0):
            for name, make in ranked.TRAINED[size].items():
                train_alone(make(), one / name)
        seen[size] = [
            json.loads((folder / f"seen-{rank}.json").read_text()) for rank in range(size)
        ]
    different = []
    for size, folder in ((3, three), (2, two)):
        for name, make in ranked.TRAINED[size].items():
            assert len(records_in(folder / name)) == make().training.rounds
            assert [each[name] for each in seen[size]] == [
                {"result": records_in(folder / name)}
            ] * size, name
            different += differences(folder / name, one / name)
    for name, make in ranked.CUT.items():
        wanted = make()
        assert [each[name] for each in seen[3]] == [{"result": [1, 2]}] * 3, name
        assert [each[name] for each in seen[2]] == [
            {"result": list(range(3, wanted.training.rounds + 1))}
        ] * 2, name
        train_alone(wanted, one / name)
        train_alone(wanted, one / "resumed" / name, resume=True)
        different += differences(two / name, one / name) + differences(
            one / "resumed" / name, one / name
        )
    different += differences(three / "taken up", one / ranked.FEWER)
    assert not different
    check_messages(seen[3])
    boundaries = {
        max(record.splits)
        for record in RunFolder(three / "boundary moves").read_records()
        if record.splits
    }
    assert len(boundaries) > 1
    for each in (
        *seen[3],
        *seen[2],
    ):  # threads that torch leaves behind now and then abort Python at its end
        assert each["threads after"] == each["threads before"]
    check_mistakes(seen[2], two)
    check_early_ends(seen[2], two)
    check_commands([each["commands"] for each in seen[2]])
    check_restart(two)


def check_messages(seen: list[dict[str, Any]]) -> None:
    assert [each["taken up"] for each in seen] == [{"result": [[1, 2], [3]]}] * 3
    said = [each["spoken"]["result"] for each in seen]
    for each in said:
        assert each["sum"] == [3.0, 0.0 + 1.0 + 2.0]
        assert each["spread"] == [[2.0, 2.0]] * 3
    assert [each["same"]["error"] for each in said] == [
        "FailedElsewhere",
        "InvalidValue",
        "FailedElsewhere",
    ]
    assert {each["same"]["message"] for each in said} == {
        "the rank must be the same in all processes, but process 1 of 3 has another"
    }
    assert [each["without a word"]["error"] for each in said] == [
        "FailedElsewhere",
        "FailedElsewhere",
        "AirsplitError",
    ]


FAILURES = {
    "the last diverges": (1, "Diverged", "device 1, round 1"),
    "all diverge": (0, "Diverged", "not finite"),
    "in turns": (0, "InvalidValue", "which 2 processes cannot share; run it without torchrun"),
    "other settings in each": (1, "InvalidValue", "the scenario must be the same in all processes"),
    "other data in each": (
        1,
        "InvalidValue",
        "training.dataset gives must be the same in all processes",
    ),
    "a mistake in the last": (1, "InvalidValue", "a parameter to train"),
    "begun again": (0, "InvalidValue", "already contains a run"),
    "resumed with other settings": (0, "InvalidValue", "only training.rounds may differ"),
    "a folder that cannot be": (0, "FileProblem", "cannot be written"),
}
"""Which process says what; the other hears it."""


def check_mistakes(seen: list[dict[str, Any]], folder: Path) -> None:
    for name, (rank, error, message) in FAILURES.items():
        assert message in seen[rank][name]["message"], name
        assert seen[rank][name]["error"] == error, name
        elsewhere = "DivergedElsewhere" if error == "Diverged" else "FailedElsewhere"
        assert seen[1 - rank][name] == {
            "error": elsewhere,
            "message": seen[rank][name]["message"],
        }, name
        divergence = RunFolder(folder / name).read_divergence()
        assert (divergence is not None) == (error == "Diverged"), name
    assert not (folder / "in turns").exists()


def check_early_ends(seen: list[dict[str, Any]], folder: Path) -> None:
    """An iterator ends in all processes when one of them has had enough, and what was trained until then is kept."""
    for name in ("the first has enough", "the last has enough", "all have enough"):
        assert [each[name] for each in seen] == [{"result": [1, 2]}] * 2, name
        assert (
            json.loads((folder / name / "checkpoint/checkpoint.json").read_text())["round"] == 2
        ), name
    for name in ("no folder", "a folder in the first only"):
        assert [each[name] for each in seen] == [{"result": [1, 2, 3]}] * 2, name
    assert [each["nobody begins"] for each in seen] == [{"result": None}] * 2


def check_commands(said: list[dict[str, tuple[int, str, str]]]) -> None:
    """The first process prints; what is wrong is one line in all."""
    code, out, err = said[0]["run"]
    assert (code, json.loads(out)["rounds"]) == (0, 3)
    assert "loading\n" in err
    assert "airsplit: note: a factory warns\n" in err
    assert "3 rounds, 2 processes, into" in err
    assert said[1]["run"] == [0, "", ""]
    for name, rank, message in [
        ("run again", 0, "already contains a run"),
        ("the last diverges", 1, "device 1, round 1, iteration 1"),
        ("no such option", 0, "--no-such-option"),
        ("another command", 0, "airsplit compare cannot share its work among processes"),
    ]:
        assert [each[name][:2] for each in said] == [[2, ""]] * 2, name
        lines = said[rank][name][2].splitlines()
        assert len(lines) == 1, name
        assert message in lines[0], name
        assert [
            line for line in said[1 - rank][name][2].splitlines() if "processes, into" not in line
        ] == [], name


# ---- processes that die --------------------------------------------------------------------------------------------------------
def check_restart(folder: Path) -> None:
    """Killed in round 4; the checkpoint is of round 2.  Nobody says --resume."""
    assert (folder / "dead").exists()
    said = [json.loads((folder / f"last-{rank}.json").read_text()) for rank in range(2)]
    code, out, err = said[0]
    assert (code, json.loads(out)["rounds"]) == (0, 6)
    assert "continues after round 2" in err
    assert said[1] == [0, "", ""]
    train_alone(ranked.deadly_scenario(), folder / "one" / "deadly")
    assert not differences(folder / "deadly", folder / "one" / "deadly")


def test_only_a_run_that_torchrun_began_itself_is_taken_up_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It starts processes again whatever they died of, also of a user's mistake, as when there is a run already."""
    ranks, wanted = Ranks(store=torch.distributed.HashStore()), ranked.scenario()

    def begin(name: str) -> list[int]:
        records = simulation.simulate_among(
            ranks, wanted, out=tmp_path / name, resume=False, data=None
        )
        return (
            [next(records).round, next(records).round]
            if not RunFolder(tmp_path / name).has_rounds
            else [each.round for each in records]
        )

    train_alone(wanted, tmp_path / "before")
    with pytest.raises(InvalidValue, match="already"):
        begin("before")
    assert begin("new") == [1, 2]
    with pytest.raises(InvalidValue, match="already"):  # in the same process it is a mistake
        begin("new")
    monkeypatch.setattr(simulation, "_this_process", lambda: "one that was started in its place")
    assert begin("new") == [3]
    with pytest.raises(InvalidValue, match="already"):
        begin("before")


def test_the_package_is_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As torchrun -m starts it."""
    monkeypatch.setattr(sys, "argv", ["airsplit", "--version"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("airsplit", run_name="__main__")
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"airsplit {air.__version__}\n"


# ---- one process ---------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("size", "devices"), [(1, 5), (3, 7), (4, 3), (5, 1), (2, 100)])
def test_every_device_is_in_one_share(size: int, devices: int) -> None:
    shares = [Ranks(rank, size).share(devices) for rank in range(size)]
    assert [k for share in shares for k in share] == list(range(devices))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    assert all(k in shares[Ranks(0, size).holder(k, devices)] for k in range(devices))


def test_one_process_speaks_to_nobody() -> None:
    tensor = torch.ones(3)
    ALONE.add_up([tensor])
    ALONE.spread([tensor])
    assert tensor.tolist() == [1, 1, 1]
    assert ALONE.gathered(tensor, 3) is tensor
    assert torch.equal(ALONE.scattered(tensor, tensor[0], 3), tensor)
    assert (
        ALONE.total(2.5),
        ALONE.told("so"),
        ALONE.told(""),
        ALONE.any(True),
        ALONE.any(False),
    ) == (2.5, "so", "", True, False)
    assert ALONE.with_gpus(torch.device("cpu")) is ALONE
    ALONE.remember("name", "text")
    assert ALONE.remembered("name") == ""
    ALONE.require_same("it", "this")
    with pytest.raises(InvalidValue, match="wrong"), ALONE.together():
        raise InvalidValue("wrong")


def test_without_torchrun_nothing_is_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in RUNNING:
        monkeypatch.delenv(name, raising=False)
    assert ranks_of() == ALONE
    with joined(ranks_of()) as ranks:
        assert ranks == ALONE
        assert not torch.distributed.is_initialized()


def test_a_process_that_torchrun_started_alone_has_a_notice_board_and_no_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    board = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    running = {
        "RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(board.port),
    }
    for name, value in (running | {"TORCHELASTIC_USE_AGENT_STORE": "True"}).items():
        monkeypatch.setenv(name, value)
    with joined(ranks_of()) as ranks:
        assert ranks == ALONE
        assert ranks.remembered("name") == ""
        ranks.remember("name", "text")
        assert not torch.distributed.is_initialized()
    with joined(ranks_of()) as again:
        assert again.remembered("name") == "text"


def test_processes_that_never_come_are_waited_for_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """The call is an old one, of a process that has died."""
    monkeypatch.setattr(module, "MEETING", timedelta(seconds=0.1))
    board = torch.distributed.HashStore()
    board.set("call", "old")
    board.set("old/all", "somebody else")
    with pytest.raises(OutOfTouch, match=r"process 1 of 2 waited 0\.1 seconds for the others"):
        module._meeting_place(board, Ranks(1, 2))


def test_training_in_turns_is_nothing_that_processes_can_share() -> None:
    for name, algorithm in ALGORITHMS.items():
        algorithm.require_fit(1)
        if name in ("split-learning", "splitfed-v2"):
            with pytest.raises(InvalidValue, match=f"{name}.*which 2 processes cannot share"):
                algorithm.require_fit(2)
        else:
            algorithm.require_fit(2)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, ALONE),
        ({"RANK": "0"}, ALONE),
        ({"WORLD_SIZE": "4"}, ALONE),
        ({"RANK": "0", "WORLD_SIZE": "1"}, ALONE),
        ({"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1"}, Ranks(3, 4, 1)),
    ],
)
def test_the_environment_says_who_is_who(environment: dict[str, str], expected: Ranks) -> None:
    assert ranks_of(environment) == expected


@pytest.mark.parametrize(
    ("environment", "name"),
    [
        ({"RANK": "0", "WORLD_SIZE": "many"}, "WORLD_SIZE"),
        ({"RANK": "0", "WORLD_SIZE": "0"}, "WORLD_SIZE"),
        ({"RANK": "4", "WORLD_SIZE": "4"}, "RANK"),
        ({"RANK": "-1", "WORLD_SIZE": "4"}, "RANK"),
    ],
)
def test_an_environment_that_makes_no_sense_is_told(environment: dict[str, str], name: str) -> None:
    with pytest.raises(InvalidValue, match=f"{name} must be a whole number.*torchrun"):
        ranks_of(environment)


def test_half_of_what_torchrun_sets_is_not_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with pytest.raises(InvalidValue, match="MASTER_ADDR"), joined(ranks_of()):
        pass


def test_small_tensors_travel_together_and_large_ones_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MESSAGE_BYTES", 40)
    sizes = [4, 5, 0, 20, 1, 1]
    tensors = [torch.zeros(size) for size in sizes] + [torch.zeros(2, dtype=torch.float64)]
    assert [[each.nbytes for each in several] for several in module._messages(tensors)] == [
        [16, 20],
        [80],
        [4, 4],
        [16],
    ]


@pytest.mark.parametrize(
    "dtype",
    [
        torch.float32,
        torch.bfloat16,
        torch.int64,
        torch.int16,
        torch.bool,
        torch.complex64,
        torch.uint8,
    ],
)
def test_tensors_of_any_type_are_bytes_that_can_be_written(dtype: torch.dtype) -> None:
    source, target = torch.tensor([[1, 0], [3, 4]]).to(dtype), torch.zeros(2, 2, dtype=dtype)
    as_bytes(target).copy_(as_bytes(source))
    assert torch.equal(target, source)
    for odd in (
        torch.tensor(3).to(dtype),
        torch.tensor([1, 2]).to(dtype)[:1].expand(1, 1),
        torch.zeros(0, dtype=dtype),
    ):
        assert as_bytes(odd.contiguous()).numel() == odd.nbytes


def test_what_torch_says_of_a_lost_process_is_an_error_of_ours() -> None:
    with (
        pytest.raises(OutOfTouch, match=r"which may have died: Connection closed by peer$"),
        in_touch(),
    ):
        raise RuntimeError("[/gloo/pair.cc:553] Connection closed by peer. GLHF!")
    assert issubclass(OutOfTouch, AirsplitError)
