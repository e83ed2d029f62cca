"""Folder locks: one holder at a time, and a clear error for the rest."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from airsplit.core.errors import FileProblem
from airsplit.core.lock import folder_lock


def test_a_locked_folder_is_refused_with_the_way_out(tmp_path: Path) -> None:
    with (
        folder_lock(tmp_path, "run folder"),
        pytest.raises(FileProblem, match=r"run folder .* is in use by another process; try again"),
    ):
        folder_lock(tmp_path, "run folder", way_out="try again")


def test_a_folder_that_does_not_exist_is_created(tmp_path: Path) -> None:
    with folder_lock(tmp_path / "new" / "run", "run folder"):
        assert (tmp_path / "new" / "run").is_dir()


def test_a_lock_that_is_released_in_time_is_waited_for(tmp_path: Path) -> None:
    lock = folder_lock(tmp_path, "run folder")
    release = threading.Timer(0.1, lambda: lock.__exit__(None, None, None))
    release.start()
    with folder_lock(tmp_path, "run folder", timeout_s=30.0):
        pass
    release.join()


def test_a_lock_file_that_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    # The lock gets no handle, and its __del__ must not mind.
    (tmp_path / "run" / ".lock").mkdir(parents=True)
    with pytest.raises(FileProblem, match="cannot be written"):
        folder_lock(tmp_path / "run", "run folder")
