"""Records and run folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airsplit import FileProblem, InvalidValue, RoundRecord
from airsplit.runs.folder import RunFolder
from airsplit.runs.record import RecordReader

FULL = RoundRecord(
    round=3,
    virtual_time_s=1.5,
    latency_s=0.1 + 0.2,
    train_loss=0.25,
    test_accuracy=0.5,
    participants=(0, 2),
    dropped=(2,),
    compute_s=(0.1, 0.0),
    sent_bytes=(2**60, 0),
    splits=(1, 2),
    shares=(0.5, 0.25),
)


def test_a_record_comes_back_from_its_line_to_the_last_bit() -> None:
    assert RoundRecord.from_json(FULL.to_json()) == FULL
    assert "\n" not in FULL.to_json()


def test_what_is_not_known_is_left_out_and_comes_back_as_none() -> None:
    record = RoundRecord(round=1, virtual_time_s=0.0, latency_s=0.0, train_loss=None)
    assert not {"train_loss", "test_accuracy", "splits"} & json.loads(record.to_json()).keys()
    assert RoundRecord.from_json(record.to_json()) == record


def test_a_number_that_is_not_finite_is_never_written() -> None:
    with pytest.raises(ValueError, match="JSON"):
        RoundRecord(round=1, virtual_time_s=float("nan"), latency_s=0.0, train_loss=None).to_json()


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{",
        "3",
        "[]",
        "{}",
        '{"round": 1, "virtual_time_s": 1.0}',
        '{"round": 1, "virtual_time_s": 1.0, "latency_s": 1.0, "rouns": 1}',
        '{"round": "1", "virtual_time_s": 1.0, "latency_s": 1.0}',
        '{"round": 1.5, "virtual_time_s": 1.0, "latency_s": 1.0}',
        '{"round": 0, "virtual_time_s": 1.0, "latency_s": 1.0}',
        '{"round": true, "virtual_time_s": 1.0, "latency_s": 1.0}',
        '{"round": 1, "virtual_time_s": "soon", "latency_s": 1.0}',
        '{"round": 1, "virtual_time_s": NaN, "latency_s": 1.0}',
        '{"round": 1, "virtual_time_s": 1.0, "latency_s": 1.0, "sent_bytes": 5}',
    ],
)
def test_a_line_that_is_no_record_is_refused(line: str) -> None:
    with pytest.raises((FileProblem, ValueError, TypeError)):
        RoundRecord.from_json(line)


def folder(path: Path, *records: RoundRecord) -> RunFolder:
    made = RunFolder(path)
    made.begin("[model]\n", {"splits": [1]})
    for record in records:
        made.append(record)
    return made


def numbered(*rounds: int) -> list[RoundRecord]:
    return [
        RoundRecord(round=n, virtual_time_s=float(n), latency_s=1.0, train_loss=0.1) for n in rounds
    ]


def test_records_are_read_in_their_order(tmp_path: Path) -> None:
    run = folder(tmp_path / "run", *numbered(1, 2, 3))
    assert run.read_records() == numbered(1, 2, 3)
    run.write_records(numbered(1, 2))
    assert run.read_records() == numbered(1, 2)
    run.append(numbered(3)[0])
    assert [record.round for record in run.read_records()] == [1, 2, 3]


def test_no_file_of_records_is_no_record(tmp_path: Path) -> None:
    assert RunFolder(tmp_path).read_records() == []


@pytest.mark.parametrize("cut", [1, 2, 30])
def test_a_last_line_that_was_cut_short_is_left_out(tmp_path: Path, cut: int) -> None:
    run = folder(tmp_path / "run", *numbered(1, 2))
    run.rounds_file.write_bytes(run.rounds_file.read_bytes()[:-cut])
    assert run.read_records() == numbered(1)


@pytest.mark.parametrize("bad", ["garbage\n", "\n", '{"round": 9}\n', '{"round": 1, "virtual'])
def test_a_bad_line_in_the_middle_is_told_by_its_number(tmp_path: Path, bad: str) -> None:
    run = folder(tmp_path / "run", *numbered(1, 2))
    first, second = run.rounds_file.read_text().splitlines(keepends=True)
    run.rounds_file.write_text(first + bad + second)
    with pytest.raises(FileProblem, match="line 2"):
        run.read_records()


def test_a_file_that_is_no_text_is_told(tmp_path: Path) -> None:
    run = folder(tmp_path / "run")
    run.rounds_file.write_bytes(b"\xff\xfe\n")
    with pytest.raises(FileProblem, match="not UTF-8"):
        run.read_records()


def test_a_folder_with_a_round_of_a_run_is_not_new(tmp_path: Path) -> None:
    for name in ("rounds.jsonl", "checkpoint/checkpoint.json"):
        run = RunFolder(tmp_path / name.replace("/", "-"))
        (run.path / "checkpoint").mkdir(parents=True)
        run.scenario_file.write_text("what was to be run")
        assert not run.has_rounds
        (run.path / name).write_text("something")
        assert run.has_rounds
        with pytest.raises(InvalidValue, match="has a run in it already"):
            run.begin("", {})


def test_a_plan_that_is_not_json_is_told(tmp_path: Path) -> None:
    run = folder(tmp_path / "run")
    assert run.read_plan() == {"splits": [1]}
    run.plan_file.write_text("{")
    with pytest.raises(FileProblem, match="is not JSON"):
        run.read_plan()


def test_a_folder_is_locked_by_one_at_a_time_and_free_afterwards(tmp_path: Path) -> None:
    run, other = RunFolder(tmp_path / "run"), RunFolder(tmp_path / "run")
    with run.lock(), pytest.raises(FileProblem, match="in use by another process"):
        other.lock()
    with other.lock():
        pass


def test_a_lock_that_cannot_be_opened_is_told(tmp_path: Path) -> None:
    (tmp_path / "run" / ".lock").mkdir(
        parents=True
    )  # the lock never gets a handle, which __del__ must bear
    with pytest.raises(FileProblem, match="cannot be written"):
        RunFolder(tmp_path / "run").lock()


def test_a_folder_in_a_place_that_is_none_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for make in (
        lambda run: run.lock(),
        lambda run: run.begin("", {}),
        lambda run: run.append(FULL),
    ):
        with pytest.raises(FileProblem, match="cannot be written"):
            _call(make, RunFolder(tmp_path / "file" / "run"))


def _call(make: Any, run: RunFolder) -> None:
    make(run)


def test_a_folder_that_may_not_be_looked_for_is_told(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / ("x" * 300))  # longer than file systems allow
    with pytest.raises(FileProblem, match=r"x.* cannot be (read|written): .*too long"):
        run.begin("", {})


def test_records_are_read_as_they_arrive_each_once(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    reader = RecordReader(run.rounds_file)
    assert list(reader.read_new()) == []
    for record in numbered(1, 2):
        run.append(record)
    assert list(reader.read_new()) == numbered(1, 2)
    with run.rounds_file.open("a") as stream:
        stream.write(numbered(3)[0].to_json())
    assert list(reader.read_new()) == []  # its end has not been written yet
    with run.rounds_file.open("a") as stream:
        stream.write("\n")
    assert list(reader.read_new()) == numbered(3)


def test_a_reader_notices_that_a_run_went_back(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    for record in numbered(1, 2, 3):
        run.append(record)
    reader = RecordReader(run.rounds_file)
    assert len(list(reader.read_new())) == 3
    assert not reader.is_outdated
    run.drop_records_after(2)
    assert reader.is_outdated
    reader.start_over()
    assert list(reader.read_new()) == numbered(1, 2)
    run.rounds_file.unlink()
    assert reader.is_outdated
