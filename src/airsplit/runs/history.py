"""What reports and the dashboard know of a run: everything that its folder says, checked and added up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np

from airsplit.core.arrays import Floats, Ints
from airsplit.core.errors import AirsplitError, FileProblem, show
from airsplit.runs.folder import Divergence, RunFolder
from airsplit.runs.metric import Metric, get_metric
from airsplit.runs.record import (
    ENERGY_INCLUDES_COMPUTING,
    MAX_MAGNITUDE,
    PER_DEVICE,
    RecordReader,
    RoundRecord,
)
from airsplit.scenario.scenario import Scenario

TIMES = ("compute_s", "transmit_s", "server_s", "idle_s")
PER_ROUND = ("virtual_time_s", "latency_s", "train_loss", "test_loss", "test_accuracy", "test_accuracy_spread",
             "test_accuracy_worst", "own_accuracy", "own_accuracy_spread", "own_accuracy_worst",
             "test_metric", "test_metric_spread", "test_metric_worst")  # fmt: skip
_LISTS = ("splits", "split_names", "shares", "compute_s", "transmit_s", "server_s")
_NUMBERS = ("gap", "mean_latency_s", "expected_latency_s", "batch_size", "averaged_parameters")


class History:
    """A run, told from its folder; `update` reads on.

    divergence  how the training ended, if it met a number that is not finite
    records  without what they say of each device, of which only sums are kept: a long run of many devices has gigabytes of it
    rounds   PER_ROUND: one number for each record; NaN where there is none, as in a round that was not evaluated
    totals   PER_DEVICE: one number for each device, summed over the records
    """

    def __init__(self, folder: RunFolder, *, most: int | None = None) -> None:
        """Read a run folder, and at most so many of its records; a FileProblem where something is missing or not what it should be."""
        self.scenario_text = folder.read_scenario()
        try:
            self.scenario = Scenario.from_toml(self.scenario_text)
        except AirsplitError as error:
            raise FileProblem(
                f"scenario of the run {str(folder.scenario_file)!r}: {error}"
            ) from None
        self.plan = folder.read_plan()
        self.names = _require_plan(self.plan, f"plan of the run {str(folder.plan_file)!r}")
        self._folder = folder
        self._where = f"records of the run {str(folder.rounds_file)!r}"
        self._reader = RecordReader(folder.rounds_file)
        self.divergence: Divergence | None = None
        self._start_over()
        self.update(most=most)

    def _start_over(self) -> None:
        self._reader.start_over()
        self.records: list[RoundRecord] = []
        self.totals = {name: np.zeros(len(self.names)) for name in PER_DEVICE}
        self._rounds: dict[str, Floats] | None = None

    def update(self, *, most: int | None = None) -> bool:
        """Read what has come since the last time, or some of it; whether anything has.  Begins again where the run itself did."""
        anew = self._reader.is_outdated
        if anew:
            self._start_over()
        before = len(self.records)
        try:
            for record in islice(self._reader.read_new(), most):
                self._add(record)
        except FileProblem:
            self._start_over()  # so that it is told again, and nothing behind it is read
            raise
        ended, self.divergence = self.divergence, self._folder.read_divergence()
        if anew or len(self.records) > before:
            self._rounds = None
            return True
        return self.divergence != ended

    def _add(self, record: RoundRecord) -> None:
        _require_devices(record, len(self.names), self._where)
        for name in PER_DEVICE:
            if column := getattr(record, name):
                self.totals[name] += _numbers(list(column), self._where, name)
        last = self.records[-1] if self.records else record
        same = {
            name: getattr(last, name)
            for name in ("participants", "dropped")
            if getattr(last, name) == getattr(record, name)
        }
        self.records.append(replace(record, **dict.fromkeys(PER_DEVICE, ()) | same))

    @property
    def rounds(self) -> dict[str, Floats]:
        if self._rounds is None:
            self._rounds = {
                name: _numbers([getattr(r, name) for r in self.records], self._where, name)
                for name in PER_ROUND
            }
        return self._rounds

    def __len__(self) -> int:
        return len(self.names)

    @property
    def virtual_time_s(self) -> float:
        return float(self.rounds["virtual_time_s"][-1]) if self.records else 0.0

    @property
    def metric(self) -> Metric:
        """The number by which its models are judged."""
        return get_metric(self.scenario.training)

    @property
    def is_networked(self) -> bool:
        return self.plan.get("networked") is True

    @property
    def is_measured(self) -> bool:
        """Whether the devices are real, and were planned for as they measured themselves."""
        return self.is_networked and self.scenario.network.measure

    @property
    def counts_downlink(self) -> bool:
        """Whether what the devices receive takes time: it always does over a network, on the virtual clock only when asked for."""
        return self.is_networked or self.scenario.clock.downlink

    @property
    def has_energy(self) -> bool:
        """Whether the devices' energy is known, computing included."""
        return has_energy(self.plan, self.scenario)

    @property
    def time_name(self) -> str:
        """What the run's seconds are: of the virtual clock, or of a training over a network."""
        return "training time" if self.is_networked else "virtual time"

    @property
    def last_evaluated(self) -> RoundRecord | None:
        """The last round in which the models were tested."""
        return next(
            (
                r
                for r in reversed(self.records)
                if r.test_loss is not None or r.test_accuracy is not None
            ),
            None,
        )

    @property
    def replans(self) -> list[RoundRecord]:
        """The rounds that began with a new plan."""
        return [record for record in self.records if record.splits is not None]

    @cached_property
    def _split_names(self) -> dict[int, str]:
        planned = {
            int(split): str(name)
            for split, name in zip(self.plan["splits"], self.plan["split_names"], strict=True)
        }
        return dict(enumerate(map(str, self.plan.get("all_split_names", ())), start=1)) | planned

    def split_name(self, split: int) -> str:
        """The name of a split; its number where the run folder does not say it."""
        return self._split_names.get(split, f"split {split}")

    def splits_of(self, device: int) -> list[int]:
        """Every split that a device had, in the order in which it first had them."""
        later = (record.splits[device] for record in self.replans if record.splits)
        return list(dict.fromkeys([self.plan["splits"][device], *later]))

    def count_rounds(self, kind: str) -> Ints:
        """How many rounds each device was asked to take part in ("participants") or dropped out of ("dropped")."""
        found = [k for record in self.records for k in getattr(record, kind)]
        return np.bincount(np.array(found, dtype=np.int64), minlength=len(self))

    @property
    def rounds_finished(self) -> Ints:
        """How many rounds each device finished: those in which it was asked and did not drop out."""
        return self.count_rounds("participants") - self.count_rounds("dropped")


def has_energy(plan: Mapping[str, Any], scenario: Scenario) -> bool:
    """Return whether the records' energy includes computing: without it, it is no basis for a comparison, and is not shown.

    plan   what plan.json says; where it is older than this question, the scenario answers it
    """
    said = plan.get(ENERGY_INCLUDES_COMPUTING)
    return said if isinstance(said, bool) else scenario.fleet.joules_per_mac is not None


def waiting_fraction(totals: Mapping[str, float]) -> float:
    """Return the fraction of the devices' time that they spend waiting for the last of them to be done.

    `totals` has the TIMES, summed over devices and rounds; time in which a device does not take part is in none of them.

    >>> waiting_fraction({"compute_s": 1.0, "transmit_s": 5.0, "server_s": 0.0, "idle_s": 2.0})
    0.25
    """
    whole = sum(totals[key] for key in TIMES)
    return totals["idle_s"] / whole if whole else 0.0


def _require_plan(plan: dict[str, Any], where: str) -> list[str]:
    """The devices' names, where a plan has everything that a report needs."""
    for name in _NUMBERS:
        value = plan.get(name)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise FileProblem(f"{where} has no number {name!r}; was it written by airsplit run?")
        if not (
            0 < value <= MAX_MAGNITUDE or (value == 0 and name in ("gap", "averaged_parameters"))
        ):
            raise FileProblem(
                f"{where}: {name} must be a finite number > 0, got {show(value)}; was it written by airsplit run?"
            )
    columns = [plan.get(name) for name in _LISTS]
    devices = len(columns[0]) if isinstance(columns[0], list) else 0
    names = plan.get("device_names", [str(k) for k in range(devices)])
    for name, column in zip((*_LISTS, "device_names"), (*columns, names), strict=True):
        if not isinstance(column, list) or not column or len(column) != devices:
            raise FileProblem(
                f"{where} must have one of {name!r} for each device; was it written by airsplit run?"
            )
    if not isinstance(plan.get("all_split_names", []), list):
        raise FileProblem(f"{where}: all_split_names must be a list")
    for name in (each for each in _LISTS if each != "split_names"):
        if not all(
            isinstance(value, int | float | None) for value in plan[name]
        ):  # numpy would take "0.5" for a number
            raise FileProblem(f"{where}: {name} must be numbers")
        if np.isnan(_numbers(plan[name], where, name)).any():
            raise FileProblem(f"{where}: {name} must be finite numbers")
    return [str(each) for each in names]


def _require_devices(record: RoundRecord, devices: int, where: str) -> None:
    for name in (*PER_DEVICE, "splits", "shares"):
        column = getattr(record, name)
        is_empty = column is None or (name in PER_DEVICE and not column)
        if not is_empty and len(column) != devices:
            raise FileProblem(
                f"{where}: round {record.round} has {len(column)} {name}, but the plan has {devices} devices"
            )
    if not all(
        min(who, default=0) >= 0 and max(who, default=0) < devices
        for who in (record.participants, record.dropped)
    ):
        raise FileProblem(
            f"{where}: round {record.round} names a device that the plan with {devices} devices does not have"
        )


def _numbers(values: list[Any], where: str, name: str) -> Floats:
    """An array with NaN for None and for what is not finite."""
    try:
        array = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise FileProblem(f"{where}: {name} must be numbers") from None
    return np.where(np.isfinite(array), array, np.nan)
