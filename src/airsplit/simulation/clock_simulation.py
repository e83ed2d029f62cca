"""clock_run: how long the rounds of a scenario take, without training them.  No data set, no weights, no torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from airsplit.core.arrays import Floats, Ints
from airsplit.core.errors import InvalidValue, require_integer, show
from airsplit.core.formatting import format_seconds
from airsplit.models.profiling import profile_scenario
from airsplit.planning.plan import Plan
from airsplit.runs.history import TIMES
from airsplit.runs.record import PER_DEVICE
from airsplit.scenario.scenario import Scenario
from airsplit.training.schedule import Schedule
from airsplit.training.virtual_time import RoundCosts

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
PLANNED = "sfl"
"""The algorithm whose rounds are what is planned: so many iterations, and nothing else."""
PLAIN = ("algorithm", "batch_size", "iterations_per_round", "waits", "rounds", "virtual_time_s", "latency_mean_s", "latency_spread_s",
         "latency_min_s", "latency_max_s", "latency_quantiles_s", "planned_mean_latency_s", "planned_expected_latency_s",
         "mean_time_shares", "totals", "steps")  # fmt: skip


class DeviceTotals:
    """What each of K devices came to in all rounds; the columns are those of a round's costs.

    compute_s, transmit_s, server_s, idle_s, sent_bytes, received_bytes, macs, energy_j
    last   how often it was the last to be done: in an iteration where all wait after each, else in a round
    """

    compute_s: Floats
    transmit_s: Floats
    server_s: Floats
    idle_s: Floats
    sent_bytes: Ints
    received_bytes: Ints
    macs: Floats
    energy_j: Floats
    last: Ints

    def __init__(self, devices: int) -> None:
        for name in PER_DEVICE:
            setattr(
                self,
                name,
                np.zeros(devices, dtype=np.int64 if name.endswith("_bytes") else np.float64),
            )
        self.last = np.zeros(devices, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.last)

    def add(self, costs: RoundCosts) -> None:
        """One round more."""
        for name in PER_DEVICE:
            total = getattr(self, name)
            total += getattr(costs, name)
        np.add.at(self.last, costs.last, 1)


@dataclass(frozen=True, eq=False)
class ClockRun:
    """The rounds of a run on the virtual clock.

    Attributes:
        schedule: State of the schedule after the last round.
        latency_s: Latency of each round.
        devices: Totals of each device.
        planned_mean_latency_s: E · max_k E[τ_k] of the plans in force, mean over rounds, for all
            devices and the planned channels. None if the algorithm does not train as planned.
        planned_expected_latency_s: The same for E · E[max_k τ_k].
    """

    schedule: Schedule
    latency_s: Floats
    devices: DeviceTotals
    planned_mean_latency_s: float | None
    planned_expected_latency_s: float | None

    @property
    def algorithm(self) -> str:
        return self.schedule.settings.algorithm

    @property
    def batch_size(self) -> int:
        return self.schedule.settings.batch_size

    @property
    def iterations_per_round(self) -> int:
        return self.schedule.settings.iterations_per_round

    @property
    def rounds(self) -> int:
        return len(self.latency_s)

    @property
    def virtual_time_s(self) -> float:
        """At the end of the last round."""
        return self.schedule.virtual_time_s

    @property
    def latency_mean_s(self) -> float:
        return float(self.latency_s.mean())

    @property
    def latency_spread_s(self) -> float:
        """The standard deviation over the rounds."""
        return float(self.latency_s.std())

    @property
    def latency_min_s(self) -> float:
        return float(self.latency_s.min())

    @property
    def latency_max_s(self) -> float:
        return float(self.latency_s.max())

    @property
    def latency_quantiles_s(self) -> dict[float, float]:
        """The time in which so many of the rounds are done."""
        return dict(zip(QUANTILES, np.quantile(self.latency_s, QUANTILES).tolist(), strict=True))

    @property
    def waits(self) -> str:
        """ "iteration": all wait after each; "round": after their last; "turns": one device after the other."""
        return self.schedule.charges(1).waits

    @property
    def steps(self) -> int:
        """How often a device was the last to be done."""
        return int(self.devices.last.sum())

    @cached_property
    def time_shares(self) -> dict[str, Floats]:
        """The part of the virtual time that each device spends with what; what is left is absence."""
        whole = max(self.virtual_time_s, 1e-300)
        shares = {name.removesuffix("_s"): getattr(self.devices, name) / whole for name in TIMES}
        absent: Floats = np.maximum(
            1 - sum(shares.values(), start=np.zeros(len(self.devices))), 0.0
        )
        return shares | {"absent": absent}

    @property
    def mean_time_shares(self) -> dict[str, float]:
        """The same, as means over the devices."""
        return {name: float(share.mean()) for name, share in self.time_shares.items()}

    @property
    def totals(self) -> dict[str, float]:
        """The columns of `devices`, summed up."""
        return {name: getattr(self.devices, name).sum().item() for name in PER_DEVICE}

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and lists under the names of the attributes, ready for JSON."""
        names = [self.schedule.fleet.device_name(k) for k in range(len(self.devices))]
        columns = {name: getattr(self.devices, name).tolist() for name in (*PER_DEVICE, "last")}
        lists = {"latency_s": self.latency_s.tolist(), "devices": {"name": names} | columns}
        return {name: getattr(self, name) for name in PLAIN} | lists


def clock_run(
    scenario: Scenario, *, rounds: int | None = None, tell: Callable[[str], None] = lambda _: None
) -> ClockRun:
    """Step through the rounds of a scenario and draw all that its training draws, without training.

    Latencies equal those of a run's records to the last bit. Memory grows with the number of
    devices plus the number of rounds, not with their product.

    Args:
        scenario: What to step through.
        rounds: Number of rounds (default: training.rounds).
        tell: Called after each round with a line of progress.

    >>> quick = clock_run(Scenario.load("demo"), rounds=3)
    >>> quick.rounds, len(quick.devices), quick.steps  # of five iterations each
    (3, 20, 15)
    """
    if not isinstance(scenario, Scenario):
        raise InvalidValue(
            f"scenario must be an airsplit.Scenario, got {show(scenario)}; Scenario.load(name) makes one"
        )
    wanted = (
        scenario.training.rounds if rounds is None else require_integer("rounds", rounds, low=1)
    )
    fleet = scenario.make_fleet()  # before a model is counted, which may take long
    schedule = Schedule(scenario, profile_scenario(scenario), fleet)
    latency, planned, devices, says = (
        list[float](),
        np.zeros(2),
        DeviceTotals(len(fleet)),
        _planned_s(schedule, schedule.plan),
    )
    for number in range(1, wanted + 1):
        again = schedule.replan_if_due(number)
        says = says if again is None else _planned_s(schedule, again)
        costs = schedule.costs(number, schedule.turnout(number).iterations)
        schedule.virtual_time_s += costs.latency_s
        devices.add(costs)
        latency.append(costs.latency_s)
        planned += says
        tell(
            f"round {number:,} of {wanted:,}, virtual time {format_seconds(schedule.virtual_time_s)}"
        )
    mean_s, expected_s = (None if np.isnan(total) else total / wanted for total in planned.tolist())
    return ClockRun(schedule, np.array(latency), devices, mean_s, expected_s)


def _planned_s(schedule: Schedule, plan: Plan) -> tuple[float, float]:
    """What a plan says of a round: the largest mean, and the mean of the largest; not a number where it says nothing."""
    E = schedule.clock.iterations_per_round
    if schedule.settings.algorithm != PLANNED:
        return np.nan, np.nan
    return E * plan.mean_latency_s, E * plan.expected_latency_s
