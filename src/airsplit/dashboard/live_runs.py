"""The monitor: which runs there are in a folder, and how far each is.  Plain values; the web is elsewhere."""

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
from airsplit.runs.folder import (
    DIVERGENCE_FILE,
    PLAN_FILE,
    RECORDS_FILE,
    SCENARIO_FILE,
    RunFolder,
)
from airsplit.runs.history import TIMES, History

MOST_RUNS = 500
DEEPEST = 4  # folders below the one that is looked at
AT_A_TIME = 50  # records that are read between two looks at the clock
BUDGET_S = 0.25
"""How long records are read before something is shown of them; the rest follows."""
FILES = (SCENARIO_FILE, PLAN_FILE, RECORDS_FILE, DIVERGENCE_FILE)
SHOWN = ("test_accuracy", "test_metric", "train_loss", "latency_s")


class NoSuchRun(UnknownName):
    """A run was asked for that is not there."""


class LiveRuns:
    """The runs below a folder.  Only folders that were found there can be asked for, by their names."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self._lock = threading.Lock()
        self._read: dict[str, LiveRun] = {}

    def _found(self) -> dict[str, Path]:
        """The folders of runs, newest first; what is known of those that are gone is forgotten."""
        found = dict(self._folders())
        with self._lock:
            for gone in self._read.keys() - found.keys():
                del self._read[gone]
        changed = {name: _changed_at(folder) for name, folder in found.items()}
        return {
            name: found[name]
            for name in sorted(found, key=lambda name: (-changed[name], name))[:MOST_RUNS]
        }

    def _folders(self) -> Iterator[tuple[str, Path]]:
        for parent, folders, _ in os.walk(self.root, followlinks=False):
            here = Path(parent)
            parts = here.relative_to(self.root).parts
            folders[:] = sorted(filter(_is_looked_into, folders)) if len(parts) < DEEPEST else []
            if _is_run(here):
                yield "/".join(parts) or ".", here

    def run(self, name: str) -> LiveRun:
        """A run by its name, as it is now."""
        return self._run(name, self._folder(name))

    def _folder(self, name: str) -> Path:
        """The folder that a name leads to: down from the root, by folders that are looked into, and by no link."""
        folder, parts = self.root, [] if name == "." else name.split("/")
        fine = len(parts) <= DEEPEST
        for part in parts if fine else ():
            folder /= part
            fine = fine and _is_looked_into(part) and _kind(folder) == stat.S_IFDIR
        if not fine or not _is_run(folder):
            raise NoSuchRun(f"there is no run {name!r} here")
        return folder

    def _run(self, name: str, folder: Path) -> LiveRun:
        with self._lock:
            known = self._read.get(name)
            if known is None or known.is_another(folder):
                known = self._read[name] = LiveRun(name, folder)
        return known

    def overview(self) -> list[dict[str, Any]]:
        """All runs in a line each; of one that cannot be read, why.  What takes long is left for the next time."""
        end = time.monotonic() + BUDGET_S
        return [
            self._line(name, folder, end - time.monotonic())
            for name, folder in self._found().items()
        ]

    def _line(self, name: str, folder: Path, budget_s: float) -> dict[str, Any]:
        try:
            return self._run(name, folder).summary(budget_s)
        except Exception as error:  # whatever is wrong with one run, the others are shown
            return {"name": name, "problem": self.problem(error)}

    def problem(self, error: Exception) -> str:
        """Why something cannot be shown, in words that name no folder above the runs."""
        if isinstance(error, AirsplitError):
            return str(error).replace(str(self.root), "…")
        return f"it cannot be read: {type(error).__name__}"


class LiveRun:
    """One run: read as it grows, and handed out with few points."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self._folder = name, folder
        self._lock = threading.Lock()
        self._began = _identity(folder)
        self._history = History(RunFolder(folder), max_records=AT_A_TIME)
        self._version, self._told = 0, (-1, "")

    def is_another(self, folder: Path) -> bool:
        """Whether the folder has another run in it than the one that was read."""
        return _identity(folder) != self._began

    def _refresh(self, budget_s: float) -> None:
        """Read what has come, but not for longer than a while."""
        if not _is_run(self._folder):
            raise FileProblem(
                f"run {self.name!r} is gone, or has links in its folder; they are not followed"
            )
        if budget_s <= 0 and self._history.records:
            return
        end = time.monotonic() + budget_s
        while self._history.update(max_records=AT_A_TIME):
            self._version += 1
            if time.monotonic() > end:
                break

    def summary(self, budget_s: float = BUDGET_S) -> dict[str, Any]:
        """What a list of runs says of it."""
        with self._lock:
            self._refresh(budget_s)
            return self._summary()

    def _summary(self) -> dict[str, Any]:
        run = self._history
        tested = run.last_evaluated
        return {
            "name": self.name,
            "title": title(run),
            "algorithm": run.scenario.training.algorithm,
            "dataset": run.scenario.training.dataset,
            "partition": run.scenario.training.partition,
            "devices": len(run),
            "rounds": run.records[-1].round if run.records else 0,
            "of_rounds": run.scenario.training.rounds,
            "diverged": None if run.divergence is None else asdict(run.divergence),
            "time_s": run.virtual_time_s,
            "metric": asdict(run.metric),
            "test_accuracy": None if tested is None else tested.test_accuracy,
            "test_metric": None if tested is None else tested.test_metric,
            "gap": run.plan["gap"],
            "at_most": format_percent_bound(run.plan["gap"]),
            "objective": str(run.plan.get("objective", "")),
        }

    def series(self) -> str:
        """All that is drawn of it, as JSON; made once for all who ask."""
        with self._lock:
            self._refresh(BUDGET_S)
            if self._told[0] != self._version:
                self._told = self._version, json.dumps(self._series(), allow_nan=False)
            return self._told[1]

    def _series(self) -> dict[str, Any]:
        run = self._history
        number = np.array([record.round for record in run.records], dtype=np.float64)
        lines = {}
        for name in SHOWN:
            known = np.flatnonzero(np.isfinite(run.rounds[name]))
            rows = known[thin(run.rounds[name][known])]
            columns = (number, run.rounds["virtual_time_s"], run.rounds[name])
            lines[name] = [
                [round(float(column[row]), 6) for column in columns] for row in rows.tolist()
            ]
        spent = {key: float(np.nan_to_num(run.totals[key]).sum()) for key in TIMES}
        return self._summary() | {"version": self._version, "lines": lines, "spent": spent}

    def report(self) -> str:
        """The page about it, as it is now."""
        with self._lock:
            self._refresh(float("inf"))
            return format_page(self._history)


def _is_looked_into(folder: str) -> bool:
    """Whether runs are looked for in a folder of this name; names that no address can hold are left out."""
    return (
        bool(folder)
        and not folder.startswith(".")
        and folder != "checkpoint"
        and folder.isprintable()
    )


def _kind(path: Path) -> int | None:
    """What there is, a link being a link; None where there is nothing."""
    try:
        return stat.S_IFMT(path.lstat().st_mode)
    except (OSError, ValueError):
        return None


def _is_run(folder: Path) -> bool:
    """Whether a folder has a run in it, in files that are no links."""
    kinds = [_kind(folder / name) for name in FILES]
    return kinds[:2] == [stat.S_IFREG] * 2 and all(
        kind in (stat.S_IFREG, None) for kind in kinds[2:]
    )


def _changed_at(folder: Path) -> float:
    """When something of a run was last written."""
    found = 0.0
    for name in FILES:
        with suppress(OSError):
            found = max(found, (folder / name).stat().st_mtime)
    return found


def _identity(folder: Path) -> tuple[tuple[int, int, int], ...]:
    """Changes with the run in a folder, and with what is asked of it."""
    try:
        found = [(folder / name).stat() for name in FILES[:2]]
    except OSError as error:
        raise FileProblem(f"run {folder.name!r} cannot be read: {error.strerror}") from None
    return tuple((each.st_dev, each.st_ino, each.st_mtime_ns) for each in found)
