"""Histories of runs: summed from their folders, and followed as they grow."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from airsplit import FileProblem
from airsplit.runs.folder import RunFolder
from airsplit.runs.history import History
from report.run_folders import a_plan, a_record, a_run


def test_a_history_grows_with_its_run(tmp_path: Path) -> None:
    a_run(tmp_path, [a_record(1)])
    run = History(RunFolder(tmp_path))
    assert not run.update()

    RunFolder(tmp_path).append(a_record(2))
    assert run.update()
    assert run.rounds["virtual_time_s"].tolist() == [4.0, 8.0]
    assert run.totals["transmit_s"].tolist() == [4.0] * 3


def test_a_history_starts_over_when_records_are_dropped(tmp_path: Path) -> None:
    a_run(tmp_path, [a_record(1), a_record(2), a_record(3)])
    run = History(RunFolder(tmp_path))
    RunFolder(tmp_path).drop_records_after(1)
    assert run.update()
    assert [record.round for record in run.records] == [1]
    assert run.totals["compute_s"].tolist() == [1.0] * 3


def test_a_history_keeps_only_sums_of_columns(tmp_path: Path) -> None:
    a_run(tmp_path, [a_record(1), a_record(2)])
    run = History(RunFolder(tmp_path))
    assert run.records[0].compute_s == ()
    assert run.records[1].participants is run.records[0].participants
    assert np.array_equal(run.count_rounds("participants"), [2, 2, 2])


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"shares": ["0.5", "0.25", "0.25"]}, "shares must be numbers"),
        ({"shares": [[0.5], [0.25], [0.25]]}, "shares must be numbers"),
        ({"splits": ["4", "4", "4"]}, "splits must be numbers"),
        ({"all_split_names": 16}, "all_split_names must be a list"),
    ],
)
def test_a_plan_with_columns_that_are_not_numbers_is_rejected(
    tmp_path: Path, changes: dict[str, object], complaint: str
) -> None:
    with pytest.raises(FileProblem, match=rf"plan of the run .*plan\.json': {complaint}"):
        History(RunFolder(a_run(tmp_path, [], plan=a_plan(3, **changes))))
