"""Round records: their JSON, and reading them while a run adds more."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airsplit import FileProblem, RoundRecord
from airsplit.runs.folder import RunFolder
from airsplit.runs.record import RecordReader
from runs.records import plain_records


def test_a_record_survives_json_to_the_last_bit() -> None:
    record = RoundRecord(
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
    assert RoundRecord.from_json(record.to_json()) == record
    assert "\n" not in record.to_json()


def test_none_is_left_out_of_the_json() -> None:
    record = RoundRecord(round=1, virtual_time_s=0.0, latency_s=0.0, train_loss=None)
    assert not {"train_loss", "test_accuracy", "splits"} & json.loads(record.to_json()).keys()
    assert RoundRecord.from_json(record.to_json()) == record


def test_a_number_that_is_not_finite_is_never_written() -> None:
    record = RoundRecord(round=1, virtual_time_s=float("nan"), latency_s=0.0, train_loss=None)
    with pytest.raises(ValueError, match="JSON"):
        record.to_json()


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
def test_a_line_that_is_not_a_record_is_rejected(line: str) -> None:
    with pytest.raises((FileProblem, ValueError, TypeError)):
        RoundRecord.from_json(line)


def test_each_record_is_read_once_as_it_arrives(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    reader = RecordReader(run.rounds_file)
    first, second, third = plain_records(1, 2, 3)
    assert list(reader.read_new()) == []

    run.append(first)
    run.append(second)
    assert list(reader.read_new()) == [first, second]

    with run.rounds_file.open("a") as stream:
        stream.write(third.to_json())
    assert list(reader.read_new()) == []

    with run.rounds_file.open("a") as stream:
        stream.write("\n")
    assert list(reader.read_new()) == [third]


def test_a_reader_notices_that_records_were_dropped(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.write_records(plain_records(1, 2, 3))
    reader = RecordReader(run.rounds_file)
    assert len(list(reader.read_new())) == 3
    assert not reader.is_outdated

    run.drop_records_after(2)
    assert reader.is_outdated
    reader.start_over()
    assert list(reader.read_new()) == plain_records(1, 2)

    run.rounds_file.unlink()
    assert reader.is_outdated
