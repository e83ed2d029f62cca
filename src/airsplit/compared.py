"""Comparison: what came of several algorithms, each with several seeds."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from airsplit.quantities import counted, percent, quantity, seconds
from airsplit.scenario import Scenario
from airsplit.trials import Estimate, Trials, estimate


@dataclass(frozen=True)
class Row:
    """What an algorithm came to, as means over seeds; accuracies are None where labels are not classes.

    time_to_target_s   median over seeds of the virtual time to reach the target; None where half of them never do
    reached            how many seeds reach it
    sent_bytes, received_bytes, device_macs, energy_j   of all devices and rounds together
    """

    algorithm: str
    accuracy: Estimate | None
    worst_accuracy: Estimate | None
    own_accuracy: Estimate | None
    time_to_target_s: float | None
    reached: int
    virtual_time_s: float
    sent_bytes: float
    received_bytes: float
    device_macs: float
    energy_j: float

    def cells(self, seeds: int) -> list[str]:
        """For a table with these columns, of so many seeds."""
        time = "never" if self.time_to_target_s is None else seconds(self.time_to_target_s)
        some = f" ({self.reached} of {seeds})" if 0 < self.reached < seeds else ""
        work = [quantity(self.sent_bytes, "B"), quantity(self.device_macs, "MAC"), quantity(self.energy_j, "J")]
        return [accuracy(self.accuracy), accuracy(self.worst_accuracy), time + some, seconds(self.virtual_time_s), *work]


@dataclass(frozen=True, eq=False)
class Comparison:
    """Several algorithms, each with several seeds.  `target` is the test accuracy whose time is compared."""

    scenario: Scenario
    seeds: tuple[int, ...]
    target: float
    trials: dict[str, Trials]

    @property
    def has_accuracy(self) -> bool:
        """Whether labels are classes, so that there is an accuracy to be compared."""
        return all(trials.last("test_accuracy") for trials in self.trials.values())

    @property
    def columns(self) -> list[str]:
        """What a table of its rows has besides the algorithm."""
        return ["accuracy", "worst device", f"time to {percent(self.target, 0)}", "all rounds", "sent", "devices' work", "energy"]

    def about(self, of_seeds: str = "± is the 95 % interval") -> str:
        """What was trained, and what numbers are of several seeds."""
        training, seeds = self.scenario.training, self.seeds
        which = f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]} to {seeds[-1]}, {of_seeds}"
        return (
            f"{self.scenario.model.name}, {training.dataset} ({training.partition}), {counted(training.rounds, 'round')} of "
            f"{training.iterations_per_round} iterations, batch {training.batch_size}; {which}."
        )

    @property
    def rows(self) -> list[Row]:
        return [_row(algorithm, trials, self.target) for algorithm, trials in self.trials.items()]

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {"target": self.target, "seeds": list(self.seeds), "algorithms": [asdict(row) for row in self.rows]}


def folder_of(algorithm: str, seed: int) -> str:
    """The folder of one run, beside those of the others.

    >>> folder_of("sfl", 0), folder_of("mine:MEDIAN", 1)
    ('sfl-seed0', 'mine.MEDIAN-seed1')
    """
    return f"{algorithm.replace(':', '.')}-seed{seed}"


def accuracy(value: Estimate | None) -> str:
    """
    >>> accuracy(Estimate(0.912, 0.013)), accuracy(Estimate(0.9, None)), accuracy(None)
    ('91.2 ± 1.3 %', '90.0 %', '–')
    """
    if value is None:
        return "–"
    return percent(value.mean) if value.half_width is None else f"{100 * value.mean:.1f} ± {percent(value.half_width)}"


def _row(algorithm: str, trials: Trials, target: float) -> Row:
    times = [np.inf if time is None else time for time in trials.time_to(target)]
    median = float(np.median(times))
    return Row(
        algorithm,
        accuracy=estimate(trials.last("test_accuracy")),
        worst_accuracy=estimate(trials.last("test_accuracy_worst")),
        own_accuracy=estimate(trials.last("own_accuracy")),
        time_to_target_s=median if np.isfinite(median) else None,
        reached=int(np.isfinite(times).sum()),
        virtual_time_s=float(np.mean(trials.last("virtual_time_s"))),
        sent_bytes=float(np.mean(trials.total("sent_bytes"))),
        received_bytes=float(np.mean(trials.total("received_bytes"))),
        device_macs=float(np.mean(trials.total("macs"))),
        energy_j=float(np.mean(trials.total("energy_j"))),
    )
