"""The monitor: which runs there are in a folder, and how far each is.  Plain values; the web is elsewhere."""

from __future__ import annotations

import json
import os
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from airsplit.errors import AirsplitError, FileProblem, UnknownName
from airsplit.history import History
from airsplit.report.overview import title
from airsplit.report.page import page
from airsplit.report.scales import thinned
from airsplit.results import RunFolder

MOST_POINTS = 600
MOST_RUNS = 500
DEEPEST = 4  # folders below the one that is looked at
AT_A_TIME = 50  # records that are read between two looks at the clock
BUDGET_S = 0.25
"""How long records are read before something is shown of them; the rest follows."""
FILES = ("scenario.toml", "plan.json", "rounds.jsonl")
SHOWN = ("test_accuracy", "train_loss", "test_loss", "latency_s")


class Runs:
    """The runs below a folder.  Only folders that were found there can be asked for, by their names."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self._lock = threading.Lock()
        self._read: dict[str, Run] = {}

    def names(self) -> list[str]:
        """Where runs are, newest first."""
        found = {name: self._changed_at(folder) for name, folder in self._folders()}
        with self._lock:
            for gone in self._read.keys() - found.keys():
                del self._read[gone]
        return sorted(found, key=lambda name: (-found[name], name))[:MOST_RUNS]

    def _folders(self) -> Iterator[tuple[str, Path]]:
        for parent, folders, files in os.walk(self.root, followlinks=False):
            here = Path(parent)
            depth = len(here.relative_to(self.root).parts)
            folders[:] = sorted(name for name in folders if not name.startswith(".") and name != "checkpoint") if depth < DEEPEST else []
            if "scenario.toml" in files and "plan.json" in files and _all_plain(here):
                yield here.relative_to(self.root).as_posix(), here

    @staticmethod
    def _changed_at(folder: Path) -> float:
        times = [(folder / name).lstat().st_mtime for name in FILES if (folder / name).exists()]
        return max(times, default=0.0)

    def run(self, name: str) -> Run:
        """A run by its name, as it is now."""
        folder = next((path for known, path in self._folders() if known == name), None)
        if folder is None:
            raise UnknownName(f"there is no run {name!r} here")
        with self._lock:
            known = self._read.get(name)
            if known is None or known.is_another(folder):
                known = self._read[name] = Run(name, folder)
        return known

    def overview(self) -> list[dict[str, Any]]:
        """All runs in a line each; of one that cannot be read, why.  What takes long is left for the next time."""
        end = time.monotonic() + BUDGET_S
        return [self._line(name, end - time.monotonic()) for name in self.names()]

    def _line(self, name: str, budget_s: float) -> dict[str, Any]:
        try:
            return self.run(name).summary(budget_s)
        except AirsplitError as error:
            return {"name": name, "problem": str(error).replace(str(self.root), "…")}


class Run:
    """One run: read as it grows, and handed out with few points."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self._folder = name, folder
        self._lock = threading.Lock()
        self._began = _identity(folder)
        self._history = History(RunFolder(folder), most=AT_A_TIME)
        self._version, self._told = 0, (-1, "")

    def is_another(self, folder: Path) -> bool:
        """Whether the folder has another run in it than the one that was read."""
        return _identity(folder) != self._began

    def _refresh(self, budget_s: float) -> None:
        """Read what has come, but not for longer than a while."""
        if not _all_plain(self._folder):
            raise FileProblem(f"run {self.name!r} has links in its folder; they are not followed")
        end = time.monotonic() + budget_s
        while self._history.update(most=AT_A_TIME):
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
        tested = run.evaluated
        return {
            "name": self.name,
            "title": title(run),
            "algorithm": run.scenario.training.algorithm,
            "dataset": run.scenario.training.dataset,
            "partition": run.scenario.training.partition,
            "devices": len(run),
            "rounds": run.records[-1].round if run.records else 0,
            "of_rounds": run.scenario.training.rounds,
            "time_s": run.virtual_time_s,
            "time": run.time,
            "test_accuracy": None if tested is None else tested.test_accuracy,
            "gap": run.plan["gap"],
            "planned_latency_s": run.plan["expected_latency_s"],
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
            rows = known[thinned(run.rounds[name][known], MOST_POINTS)]
            columns = (number, run.rounds["virtual_time_s"], run.rounds[name])
            lines[name] = [[round(float(column[row]), 6) for column in columns] for row in rows.tolist()]
        spent = {key: run.totals[key].tolist() for key in ("compute_s", "transmit_s", "server_s", "idle_s")}
        devices = {"names": run.names, "splits": run.plan["split_names"], "shares": run.plan["shares"]} | spent
        return self._summary() | {"version": self._version, "lines": lines, "device": devices if len(run) <= MOST_POINTS else None}

    def report(self) -> str:
        """The page about it, as it is now."""
        with self._lock:
            self._refresh(float("inf"))
            return page(self._history)


def _identity(folder: Path) -> tuple[int, int, int]:
    found = (folder / "plan.json").stat()
    return found.st_dev, found.st_ino, found.st_mtime_ns


def _all_plain(folder: Path) -> bool:
    """Whether the files of a run are files, and no links that lead elsewhere."""
    kinds = [(folder / name).lstat().st_mode for name in FILES if os.path.lexists(folder / name)]
    return all(stat.S_ISREG(kind) for kind in kinds)
