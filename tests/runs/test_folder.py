"""Run folders: writing, reading back, and errors that name the damaged file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from airsplit import FileProblem, InvalidValue, RoundRecord
from airsplit.runs.folder import RunFolder
from runs.records import plain_records


def write_run(path: Path, *records: RoundRecord) -> RunFolder:
    """Write a run folder with a minimal scenario and plan."""
    run = RunFolder(path)
    run.begin("[model]\n", {"splits": [1]})
    for record in records:
        run.append(record)
    return run


def test_records_are_read_in_order(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", *plain_records(1, 2, 3))
    assert run.read_records() == plain_records(1, 2, 3)
    run.write_records(plain_records(1, 2))
    assert run.read_records() == plain_records(1, 2)
    run.append(plain_records(3)[0])
    assert [record.round for record in run.read_records()] == [1, 2, 3]


def test_a_missing_file_has_no_records(tmp_path: Path) -> None:
    assert RunFolder(tmp_path).read_records() == []


@pytest.mark.parametrize("cut", [1, 2, 30])
def test_a_truncated_last_line_is_left_out(tmp_path: Path, cut: int) -> None:
    run = write_run(tmp_path / "run", *plain_records(1, 2))
    run.rounds_file.write_bytes(run.rounds_file.read_bytes()[:-cut])
    assert run.read_records() == plain_records(1)


@pytest.mark.parametrize("bad", ["garbage\n", "\n", '{"round": 9}\n', '{"round": 1, "virtual'])
def test_a_bad_line_in_the_middle_is_named_by_its_number(tmp_path: Path, bad: str) -> None:
    run = write_run(tmp_path / "run", *plain_records(1, 2))
    first, second = run.rounds_file.read_text().splitlines(keepends=True)
    run.rounds_file.write_text(first + bad + second)
    with pytest.raises(FileProblem, match="line 2"):
        run.read_records()


def test_binary_records_are_rejected(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    run.rounds_file.write_bytes(b"\xff\xfe\n")
    with pytest.raises(FileProblem, match="not UTF-8"):
        run.read_records()


@pytest.mark.parametrize("name", ["rounds.jsonl", "checkpoint/checkpoint.json"])
def test_a_folder_with_a_finished_round_is_not_new(tmp_path: Path, name: str) -> None:
    run = RunFolder(tmp_path / "run")
    run.checkpoint.mkdir(parents=True)
    run.scenario_file.write_text("a scenario alone is not a run")
    assert not run.has_rounds

    (run.path / name).write_text("something")
    assert run.has_rounds
    with pytest.raises(InvalidValue, match="already contains a run; add --resume"):
        run.begin("", {})


def test_a_plan_that_is_not_json_is_rejected(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    assert run.read_plan() == {"splits": [1]}
    run.plan_file.write_text("{")
    with pytest.raises(FileProblem, match="is not JSON"):
        run.read_plan()


def test_only_one_process_locks_a_folder(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    rival = RunFolder(tmp_path / "run")
    with run.lock(), pytest.raises(FileProblem, match="in use by another process"):
        rival.lock()
    with rival.lock():
        pass


@pytest.mark.parametrize(
    "write",
    [
        lambda run: run.lock(),
        lambda run: run.begin("", {}),
        lambda run: run.append(plain_records(1)[0]),
    ],
    ids=["lock", "begin", "append"],
)
def test_a_folder_below_a_file_cannot_be_written(
    tmp_path: Path, write: Callable[[RunFolder], object]
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FileProblem, match="cannot be written"):
        write(RunFolder(tmp_path / "file" / "run"))


def test_a_path_that_is_too_long_is_rejected(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / ("x" * 300))
    with pytest.raises(FileProblem, match=r"x.* cannot be (read|written): .*too long"):
        run.begin("", {})
