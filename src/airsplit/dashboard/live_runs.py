"""Live runs: which runs a folder has, and how far each is. Plain values; the web is elsewhere."""

from __future__ import annotations

import json
import os
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from airsplit.core.errors import AirsplitError, FileProblem, UnknownName
from airsplit.core.formatting import format_percent_bound
from airsplit.report.overview import title
from airsplit.report.page import format_page
from airsplit.report.scales import thin
from airsplit.runs.folder import RunFolder
from airsplit.runs.history import TIMES, History
from airsplit.scenario.run_files import (
    CHECKPOINT_FOLDER,
    DIVERGENCE_FILE,
    PLAN_FILE,
    RECORDS_FILE,
    SCENARIO_FILE,
)

MAX_RUNS = 500
# Levels of folders below the root.
MAX_DEPTH = 4
# Records to read between two looks at the clock.
RECORDS_PER_STEP = 50
# How long to read records before showing them; the next request reads on.
BUDGET_S = 0.25

FILES = (SCENARIO_FILE, PLAN_FILE, RECORDS_FILE, DIVERGENCE_FILE)
LINES = ("test_accuracy", "test_metric", "train_loss", "latency_s")


class NoSuchRun(UnknownName):
    """A run was asked for that is not there."""


class LiveRuns:
    """The runs below a folder, by their paths relative to it.

    Names come from the network, so no name leads out of the folder: links are not followed.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        # Requests come in several threads.
        self._lock = threading.Lock()
        self._runs: dict[str, LiveRun] = {}

    def run(self, name: str) -> LiveRun:
        """Return a run by its name."""
        return self._open(name, self.find_folder(name))

    def overview(self) -> list[dict[str, Any]]:
        """Return the summaries of all runs, newest first; of an unreadable run, its problem.

        Long runs are read only in part, as far as the time allows; the next call reads on.
        """
        end = time.monotonic() + BUDGET_S
        return [
            self._summarize(name, folder, end - time.monotonic())
            for name, folder in self.list_folders().items()
        ]

    def problem(self, error: Exception) -> str:
        """Return an error's message without the path of the root, which visitors need not know."""
        if isinstance(error, AirsplitError):
            return str(error).replace(str(self.root), "…")
        return f"it cannot be read: {type(error).__name__}"

    def _summarize(self, name: str, folder: Path, budget_s: float) -> dict[str, Any]:
        try:
            return self._open(name, folder).summary(budget_s)
        except Exception as error:
            # An unreadable run must not hide the others.
            return {"name": name, "problem": self.problem(error)}

    def _open(self, name: str, folder: Path) -> LiveRun:
        with self._lock:
            known = self._runs.get(name)
            if known is None or known.was_replaced(folder):
                known = self._runs[name] = LiveRun(name, folder)
        return known

    def list_folders(self) -> dict[str, Path]:
        """Return the folders of runs, newest first, and forget runs that are gone."""
        folders = dict(self.find_runs())
        with self._lock:
            for name in self._runs.keys() - folders.keys():
                del self._runs[name]

        changed = dict.fromkeys(folders, 0.0)
        for name, folder in folders.items():
            for file in FILES:
                # A file may be absent, or disappear while runs are listed.
                with suppress(OSError):
                    changed[name] = max(changed[name], (folder / file).stat().st_mtime)
        # By name within a tie, so that the list does not jump.
        newest = sorted(folders, key=lambda name: (-changed[name], name))[:MAX_RUNS]
        return {name: folders[name] for name in newest}

    def find_runs(self) -> Iterator[tuple[str, Path]]:
        """Yield name and folder of all runs below the root."""
        for parent, folders, _ in os.walk(self.root, followlinks=False):
            folder = Path(parent)
            parts = folder.relative_to(self.root).parts
            # Changed in place, the list tells os.walk where to go.
            if len(parts) < MAX_DEPTH:
                folders[:] = sorted(filter(_is_searched, folders))
            else:
                folders.clear()
            if _is_run(folder):
                yield "/".join(parts) or ".", folder

    def find_folder(self, name: str) -> Path:
        """Return the folder of a run, by the same steps as a search.

        Raises:
            NoSuchRun: A search would not find a run by this name.
        """
        missing = NoSuchRun(f"there is no run {name!r} here")
        folder = self.root
        parts = name.split("/")
        # The root itself may be a run.
        if parts == ["."]:
            parts = []
        if len(parts) > MAX_DEPTH:
            raise missing
        for part in parts:
            folder /= part
            if not _is_searched(part) or _file_kind(folder) != stat.S_IFDIR:
                raise missing
        if not _is_run(folder):
            raise missing
        return folder


class LiveRun:
    """One run, read while it grows, and returned with few points."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self._folder = folder
        # A history is read by one thread at a time.
        self._lock = threading.Lock()
        self._identity = _identify(folder)
        self._history = History(RunFolder(folder), max_records=RECORDS_PER_STEP)
        # Counts changes, so that the same series is written only once.
        self._version = 0
        self._series: tuple[int, str] = (-1, "")

    def was_replaced(self, folder: Path) -> bool:
        """Return whether the folder has another run now."""
        return _identify(folder) != self._identity

    def summary(self, budget_s: float = BUDGET_S) -> dict[str, Any]:
        """Return the run's line in a list of runs."""
        with self._lock:
            self._refresh(budget_s)
            return self._summarize()

    def series(self) -> str:
        """Return everything that is drawn, as JSON."""
        with self._lock:
            self._refresh(BUDGET_S)
            version, text = self._series
            if version != self._version:
                text = json.dumps(self._collect_series(), allow_nan=False)
                self._series = (self._version, text)
            return text

    def report(self) -> str:
        """Return the report page of all that there is now."""
        with self._lock:
            self._refresh(float("inf"))
            return format_page(self._history)

    def _refresh(self, budget_s: float) -> None:
        """Read new records, for no longer than the budget."""
        # Checked again, since files may have become links in the meantime.
        if not _is_run(self._folder):
            raise FileProblem(
                f"run {self.name!r} is gone, or has links in its folder; they are not followed"
            )
        if budget_s <= 0 and self._history.records:
            return
        end = time.monotonic() + budget_s
        while self._history.update(max_records=RECORDS_PER_STEP):
            self._version += 1
            if time.monotonic() > end:
                break

    def _summarize(self) -> dict[str, Any]:
        run = self._history
        training = run.scenario.training
        evaluated = run.last_evaluated
        return {
            "name": self.name,
            "title": title(run),
            "algorithm": training.algorithm,
            "dataset": training.dataset,
            "partition": training.partition,
            "devices": len(run),
            "rounds": run.records[-1].round if run.records else 0,
            "of_rounds": training.rounds,
            "diverged": None if run.divergence is None else asdict(run.divergence),
            "time_s": run.virtual_time_s,
            "metric": asdict(run.metric),
            "test_accuracy": None if evaluated is None else evaluated.test_accuracy,
            "test_metric": None if evaluated is None else evaluated.test_metric,
            "gap": run.plan["gap"],
            "at_most": format_percent_bound(run.plan["gap"]),
            "objective": str(run.plan.get("objective", "")),
        }

    def _collect_series(self) -> dict[str, Any]:
        run = self._history
        numbers = np.array([record.round for record in run.records], dtype=np.float64)
        lines = {}
        for name in LINES:
            known = np.flatnonzero(np.isfinite(run.rounds[name]))
            rows = known[thin(run.rounds[name][known])]
            columns = (numbers, run.rounds["virtual_time_s"], run.rounds[name])
            lines[name] = [
                [round(float(column[row]), 6) for column in columns] for row in rows.tolist()
            ]
        # JSON has no NaN.
        spent = {key: float(np.nan_to_num(run.totals[key]).sum()) for key in TIMES}
        return self._summarize() | {"version": self._version, "lines": lines, "spent": spent}


def _is_searched(folder: str) -> bool:
    """Return whether runs are looked for in a folder; not if no address could hold its name."""
    return (
        bool(folder)
        and not folder.startswith(".")
        and folder != CHECKPOINT_FOLDER
        and folder.isprintable()
    )


def _is_run(folder: Path) -> bool:
    """Return whether a folder has a run, in files that are no links."""
    scenario, plan, *optional = (_file_kind(folder / name) for name in FILES)
    return scenario == plan == stat.S_IFREG and set(optional) <= {stat.S_IFREG, None}


def _file_kind(path: Path) -> int | None:
    """Return the type of a file, a link being a link; None if there is none."""
    try:
        return stat.S_IFMT(path.lstat().st_mode)
    except (OSError, ValueError):
        return None


def _identify(folder: Path) -> tuple[tuple[int, int, int], ...]:
    """Return a value that changes with the run in a folder, or with its scenario."""
    try:
        files = [(folder / name).stat() for name in (SCENARIO_FILE, PLAN_FILE)]
    except OSError as error:
        raise FileProblem(f"run {folder.name!r} cannot be read: {error.strerror}") from None
    return tuple((file.st_dev, file.st_ino, file.st_mtime_ns) for file in files)
