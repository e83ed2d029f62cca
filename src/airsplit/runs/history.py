"""The history of a run: the content of its folder, checked and summed, and followed as it grows."""

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

# The kinds of time of a device that takes part in a round.
TIMES = ("compute_s", "transmit_s", "server_s", "idle_s")

# The fields of a record that have one number.
PER_ROUND = (
    "virtual_time_s",
    "latency_s",
    "train_loss",
    "test_loss",
    "test_accuracy",
    "test_accuracy_spread",
    "test_accuracy_worst",
    "own_accuracy",
    "own_accuracy_spread",
    "own_accuracy_worst",
    "test_metric",
    "test_metric_spread",
    "test_metric_worst",
)

# The entries of plan.json that every report needs: one value for each device, and one number.
_PLAN_COLUMNS = ("splits", "split_names", "shares", "compute_s", "transmit_s", "server_s")
_PLAN_NUMBERS = (
    "gap",
    "mean_latency_s",
    "expected_latency_s",
    "batch_size",
    "averaged_parameters",
)


class History:
    """A run as recorded in its folder; `update` reads the records that were added.

    Its length is the number of devices.

    Attributes:
        scenario: The run's scenario, and `scenario_text` its TOML.
        plan: Content of plan.json.
        names: Names of the devices.
        divergence: How the training diverged; None if it did not.
        records: The rounds, without their columns: a long run of many devices has gigabytes.
        totals: The columns of PER_DEVICE, summed over the rounds.

    Raises:
        FileProblem: A file is missing or malformed.
    """

    def __init__(self, folder: RunFolder, *, max_records: int | None = None) -> None:
        self.scenario_text = folder.read_scenario()
        try:
            self.scenario = Scenario.from_toml(self.scenario_text)
        except AirsplitError as error:
            raise FileProblem(
                f"scenario of the run {str(folder.scenario_file)!r}: {error}"
            ) from None
        self.plan = folder.read_plan()
        self.names = _check_plan(self.plan, f"plan of the run {str(folder.plan_file)!r}")
        self.divergence: Divergence | None = None

        # Kept to read what is added later.
        self._folder = folder
        self._where = f"records of the run {str(folder.rounds_file)!r}"
        self._reader = RecordReader(folder.rounds_file)
        self._start_over()
        self.update(max_records=max_records)

    def _start_over(self) -> None:
        """Forget all records, so that the next update reads them again."""
        self._reader.start_over()
        self.records: list[RoundRecord] = []
        self.totals = {name: np.zeros(len(self.names)) for name in PER_DEVICE}
        # The arrays of `rounds`, built when they are needed; None after an update.
        self._rounds: dict[str, Floats] | None = None

    def update(self, *, max_records: int | None = None) -> bool:
        """Read records that were added, up to a number of them; return whether anything changed.

        Starts over if the run resumed from an older checkpoint.
        """
        was_outdated = self._reader.is_outdated
        if was_outdated:
            self._start_over()

        records_before = len(self.records)
        try:
            for record in islice(self._reader.read_new(), max_records):
                self._add(record)
        except FileProblem:
            # Start over, so that the next call meets the bad line again and reads nothing after it.
            self._start_over()
            raise

        divergence_before = self.divergence
        self.divergence = self._folder.read_divergence()
        if was_outdated or len(self.records) > records_before:
            self._rounds = None
            return True
        return self.divergence != divergence_before

    def _add(self, record: RoundRecord) -> None:
        """Add a record's columns to the totals, and keep the rest of it."""
        _check_devices(record, len(self.names), self._where)
        for name in PER_DEVICE:
            column = getattr(record, name)
            if column:
                self.totals[name] += _to_floats(list(column), self._where, name)

        # Most rounds have the same participants: share one tuple among their records.
        changes: dict[str, Any] = dict.fromkeys(PER_DEVICE, ())
        if self.records:
            previous = self.records[-1]
            for name in ("participants", "dropped"):
                if getattr(previous, name) == getattr(record, name):
                    changes[name] = getattr(previous, name)
        self.records.append(replace(record, **changes))

    @property
    def rounds(self) -> dict[str, Floats]:
        """The fields of PER_ROUND, one number for each record; NaN for None."""
        if self._rounds is None:
            self._rounds = {
                name: _to_floats([getattr(r, name) for r in self.records], self._where, name)
                for name in PER_ROUND
            }
        return self._rounds

    def __len__(self) -> int:
        return len(self.names)

    @property
    def virtual_time_s(self) -> float:
        """Time at the end of the last round; 0 before the first."""
        if not self.records:
            return 0.0
        return float(self.rounds["virtual_time_s"][-1])

    @property
    def metric(self) -> Metric:
        """The metric of the models."""
        return get_metric(self.scenario.training)

    @property
    def is_networked(self) -> bool:
        """Whether the devices took part over a network."""
        return self.plan.get("networked") is True

    @property
    def is_measured(self) -> bool:
        """Whether the plan is based on measurements of the devices themselves."""
        return self.is_networked and self.scenario.network.measure

    @property
    def counts_downlink(self) -> bool:
        """Whether receiving takes time: always over a network, otherwise if the clock counts it."""
        return self.is_networked or self.scenario.clock.downlink

    @property
    def has_energy(self) -> bool:
        """Whether the devices' energy is known, computing included."""
        return has_energy(self.plan, self.scenario)

    @property
    def time_name(self) -> str:
        """Name of the run's time: of the virtual clock, or of a training over a network."""
        if self.is_networked:
            return "training time"
        return "virtual time"

    @property
    def last_evaluated(self) -> RoundRecord | None:
        """The last round in which the models were evaluated."""
        for record in reversed(self.records):
            if record.test_loss is not None or record.test_accuracy is not None:
                return record
        return None

    @property
    def replans(self) -> list[RoundRecord]:
        """The rounds that began with a new plan."""
        return [record for record in self.records if record.splits is not None]

    @cached_property
    def _split_names(self) -> dict[int, str]:
        """Names of all splits, or of those in the plan if it does not list the others."""
        names = dict(enumerate(map(str, self.plan.get("all_split_names", ())), start=1))
        for split, name in zip(self.plan["splits"], self.plan["split_names"], strict=True):
            names[int(split)] = str(name)
        return names

    def split_name(self, split: int) -> str:
        """Return a split's name, or its number if the folder does not name it."""
        return self._split_names.get(split, f"split {split}")

    def splits_of(self, device: int) -> list[int]:
        """Return the different splits that a device had, in order."""
        # A dictionary drops repetitions and, unlike a set, keeps the order.
        later = (record.splits[device] for record in self.replans if record.splits)
        return list(dict.fromkeys([self.plan["splits"][device], *later]))

    def count_rounds(self, kind: str) -> Ints:
        """Return the number of rounds in which each device is listed.

        Args:
            kind: Field of the record: "participants" or "dropped".
        """
        devices = [k for record in self.records for k in getattr(record, kind)]
        # The type matters for an empty list, of which numpy would make floats.
        return np.bincount(np.array(devices, dtype=np.int64), minlength=len(self))

    @property
    def rounds_finished(self) -> Ints:
        """Number of rounds that each device finished: it took part and did not drop out."""
        return self.count_rounds("participants") - self.count_rounds("dropped")


def has_energy(plan: Mapping[str, Any], scenario: Scenario) -> bool:
    """Return whether the records' energy includes computing; otherwise it would mislead.

    Args:
        plan: Content of plan.json. Early versions did not write the entry; then the scenario
            decides.
    """
    value = plan.get(ENERGY_INCLUDES_COMPUTING)
    if isinstance(value, bool):
        return value
    return scenario.fleet.joules_per_mac is not None


def waiting_fraction(totals: Mapping[str, float]) -> float:
    """Return the fraction of the devices' time in which they wait for the slowest of them.

    Args:
        totals: The TIMES, summed over devices and rounds. Rounds in which a device does not take
            part are in none of them.

    >>> waiting_fraction({"compute_s": 1.0, "transmit_s": 5.0, "server_s": 0.0, "idle_s": 2.0})
    0.25
    """
    total_s = sum(totals[key] for key in TIMES)
    # No round yet, or none with a participant.
    if total_s == 0:
        return 0.0
    return totals["idle_s"] / total_s


def _check_plan(plan: dict[str, Any], where: str) -> list[str]:
    """Check the entries of a plan that reports read; return the devices' names."""
    # bool is an int, but true is no latency.
    for name in _PLAN_NUMBERS:
        value = plan.get(name)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise FileProblem(f"{where} has no number {name!r}; was it written by airsplit run?")
        may_be_zero = name in ("gap", "averaged_parameters")
        if not (0 < value <= MAX_MAGNITUDE or (value == 0 and may_be_zero)):
            raise FileProblem(
                f"{where}: {name} must be a finite number > 0, got {show(value)}; "
                "was it written by airsplit run?"
            )

    # The splits say how many devices there are; the other columns must agree.
    columns = {name: plan.get(name) for name in _PLAN_COLUMNS}
    splits = columns["splits"]
    devices = 0
    if isinstance(splits, list):
        devices = len(splits)
    names = plan.get("device_names", [str(k) for k in range(devices)])
    for name, column in (columns | {"device_names": names}).items():
        if not isinstance(column, list) or not column or len(column) != devices:
            raise FileProblem(
                f"{where} must have one of {name!r} for each device; "
                "was it written by airsplit run?"
            )

    # Plans do not need this entry: it names splits that a new plan may choose later.
    if not isinstance(plan.get("all_split_names", []), list):
        raise FileProblem(f"{where}: all_split_names must be a list")

    for name in _PLAN_COLUMNS:
        if name == "split_names":
            continue
        # Check the types first: numpy would read "0.5" as a number.
        if not all(isinstance(value, int | float | None) for value in plan[name]):
            raise FileProblem(f"{where}: {name} must be numbers")
        if np.isnan(_to_floats(plan[name], where, name)).any():
            raise FileProblem(f"{where}: {name} must be finite numbers")
    return [str(name) for name in names]


def _check_devices(record: RoundRecord, devices: int, where: str) -> None:
    """Raise unless a record has one entry for each device, and names no others."""
    # A record may lack columns, and has splits and shares only with a new plan.
    for name in (*PER_DEVICE, "splits", "shares"):
        column = getattr(record, name)
        is_missing = column is None or (name in PER_DEVICE and not column)
        if not is_missing and len(column) != devices:
            raise FileProblem(
                f"{where}: round {record.round} has {len(column)} {name}, "
                f"but the plan has {devices} devices"
            )

    for numbers in (record.participants, record.dropped):
        if numbers and (min(numbers) < 0 or max(numbers) >= devices):
            raise FileProblem(
                f"{where}: round {record.round} names a device that the plan with "
                f"{devices} devices does not have"
            )


def _to_floats(values: list[Any], where: str, name: str) -> Floats:
    """Return an array with NaN for None and for values that are not finite."""
    try:
        array = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise FileProblem(f"{where}: {name} must be numbers") from None
    return np.where(np.isfinite(array), array, np.nan)
