"""Recognizing the scenario of a run folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from airsplit.scenario.run_files import (
    CHECKPOINT_FOLDER,
    PLAN_FILE,
    RECORDS_FILE,
    SCENARIO_FILE,
    run_folder_of,
)


@pytest.mark.parametrize("mark", [RECORDS_FILE, PLAN_FILE, CHECKPOINT_FOLDER])
def test_a_scenario_beside_the_files_of_a_run_is_the_runs(tmp_path: Path, mark: str) -> None:
    (tmp_path / SCENARIO_FILE).touch()
    assert run_folder_of(tmp_path / SCENARIO_FILE) is None

    (tmp_path / mark).touch()
    assert run_folder_of(tmp_path / SCENARIO_FILE) == tmp_path.resolve()


def test_a_scenario_of_another_name_may_stand_beside_a_plan(tmp_path: Path) -> None:
    (tmp_path / PLAN_FILE).touch()
    assert run_folder_of(tmp_path / "mine.toml") is None

    (tmp_path / RECORDS_FILE).touch()
    assert run_folder_of(tmp_path / "mine.toml") == tmp_path.resolve()


def test_a_dangling_link_marks_a_run_folder_too(tmp_path: Path) -> None:
    (tmp_path / RECORDS_FILE).symlink_to(tmp_path / "nothing")
    assert run_folder_of(tmp_path / SCENARIO_FILE) == tmp_path.resolve()


def test_a_preset_is_in_no_run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / RECORDS_FILE).touch()
    assert run_folder_of("demo") is None
