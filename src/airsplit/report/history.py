"""What a report knows of a run: everything that its folder says, checked and added up."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from airsplit.errors import AirsplitError, FileProblem
from airsplit.results import PER_DEVICE, RoundRecord, RunFolder
from airsplit.scenario import Scenario
from airsplit.units import Floats, Ints

TIMES = ("compute_s", "transmit_s", "server_s", "idle_s")
PER_ROUND = ("virtual_time_s", "latency_s", "train_loss", "test_loss", "test_accuracy", "test_accuracy_spread",
             "test_accuracy_worst", "own_accuracy", "own_accuracy_spread", "own_accuracy_worst")  # fmt: skip
_LISTS = ("splits", "split_names", "shares", "compute_s", "transmit_s", "server_s")
_NUMBERS = ("gap", "mean_latency_s", "expected_latency_s", "batch_size", "averaged_parameters")


@dataclass(frozen=True, eq=False)
class History:
    """A run, told from its folder.

    rounds   PER_ROUND: one number for each record; NaN where there is none, as in a round that was not evaluated
    totals   PER_DEVICE: one number for each device, summed over the records
    """

    scenario_text: str
    scenario: Scenario
    plan: dict[str, Any]
    records: list[RoundRecord]
    names: list[str]
    rounds: dict[str, Floats]
    totals: dict[str, Floats]

    @classmethod
    def read(cls, folder: RunFolder) -> History:
        """Read a run folder; a FileProblem where something of it is missing or not what it should be."""
        text = folder.scenario()
        try:
            scenario = Scenario.from_toml(text)
        except AirsplitError as error:
            raise FileProblem(f"scenario of the run {str(folder.scenario_file)!r}: {error}") from None
        plan, records = folder.plan(), folder.records()
        names = _require_plan(plan, f"plan of the run {str(folder.plan_file)!r}")
        where = f"records of the run {str(folder.rounds_file)!r}"
        _require_devices(records, len(names), where)
        rounds = {name: _numbers([getattr(r, name) for r in records], where, name) for name in PER_ROUND}
        totals = {name: _summed(records, name, len(names), where) for name in PER_DEVICE}
        return cls(text, scenario, plan, records, names, rounds, totals)

    def __len__(self) -> int:
        return len(self.names)

    @property
    def virtual_time_s(self) -> float:
        return float(self.rounds["virtual_time_s"][-1]) if self.records else 0.0

    @property
    def is_networked(self) -> bool:
        return self.plan.get("networked") is True

    @property
    def is_measured(self) -> bool:
        """Whether the devices are real, and were planned for as they measured themselves."""
        return self.is_networked and self.scenario.network.measure

    @property
    def time(self) -> str:
        """What the run's seconds are: of the virtual clock, or of a training over a network."""
        return "training time" if self.is_networked else "virtual time"

    @property
    def evaluated(self) -> RoundRecord | None:
        """The last round in which the models were tested."""
        return next((r for r in reversed(self.records) if r.test_loss is not None or r.test_accuracy is not None), None)

    @cached_property
    def plans(self) -> list[RoundRecord]:
        """The rounds that began with a new plan."""
        return [record for record in self.records if record.splits is not None]

    @cached_property
    def _split_names(self) -> dict[int, str]:
        planned = {int(split): str(name) for split, name in zip(self.plan["splits"], self.plan["split_names"], strict=True)}
        return dict(enumerate(map(str, self.plan.get("all_split_names", ())), start=1)) | planned

    def split_name(self, split: int) -> str:
        """The name of a split; its number where the run folder does not say it."""
        return self._split_names.get(split, f"split {split}")

    def splits_of(self, device: int) -> list[int]:
        """Every split that a device had, in the order in which it first had them."""
        later = (record.splits[device] for record in self.plans if record.splits)
        return list(dict.fromkeys([self.plan["splits"][device], *later]))

    def times(self, kind: str) -> Ints:
        """How many rounds each device took part in ("participants") or dropped out of ("dropped")."""
        found = [k for record in self.records for k in getattr(record, kind)]
        return np.bincount(np.array(found, dtype=np.int64), minlength=len(self))


def _require_plan(plan: dict[str, Any], where: str) -> list[str]:
    """The devices' names, where a plan has everything that a report needs."""
    for name in _NUMBERS:
        value = plan.get(name)
        if not isinstance(value, int | float) or not math.isfinite(value):
            raise FileProblem(f"{where} has no number {name!r}; was it written by airsplit run?")
    columns = [plan.get(name) for name in _LISTS]
    devices = len(columns[0]) if isinstance(columns[0], list) else 0
    names = plan.get("device_names", [str(k) for k in range(devices)])
    for name, column in zip((*_LISTS, "device_names"), (*columns, names), strict=True):
        if not isinstance(column, list) or not column or len(column) != devices:
            raise FileProblem(f"{where} must have one of {name!r} for each device; was it written by airsplit run?")
    for name in set(_LISTS) - {"split_names"}:
        if np.isnan(_numbers(plan[name], where, name)).any():
            raise FileProblem(f"{where}: {name} must be finite numbers")
    return [str(each) for each in names]


def _require_devices(records: list[RoundRecord], devices: int, where: str) -> None:
    for record in records:
        for name in (*PER_DEVICE, "splits", "shares"):
            column = getattr(record, name)
            if column and len(column) != devices:
                raise FileProblem(f"{where}: round {record.round} has {len(column)} {name}, but the plan has {devices} devices")
        if not all(min(who, default=0) >= 0 and max(who, default=0) < devices for who in (record.participants, record.dropped)):
            raise FileProblem(f"{where}: round {record.round} names a device that the plan with {devices} devices does not have")


def _numbers(values: list[Any], where: str, name: str) -> Floats:
    """An array with NaN for None and for what is not finite."""
    try:
        array = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise FileProblem(f"{where}: {name} must be numbers") from None
    return np.where(np.isfinite(array), array, np.nan)


def _summed(records: list[RoundRecord], name: str, devices: int, where: str) -> Floats:
    rows = [getattr(record, name) for record in records if getattr(record, name)]
    summed: Floats = _numbers(rows, where, name).reshape(len(rows), devices).sum(axis=0)
    return summed
