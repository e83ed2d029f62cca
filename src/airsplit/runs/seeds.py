"""Trials: the same training with several seeds, and what can be said of it.  Pure numpy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from airsplit.core.arrays import Floats
from airsplit.runs.metric import Metric
from airsplit.runs.record import RoundRecord

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds and half the width of its 95 % interval (Student's); None with one seed, of which there is none."""

    mean: float
    half_width: float | None


def estimate(values: Sequence[float]) -> Estimate | None:
    """The mean of these; None where there is nothing to take it of.

    >>> estimate([0.9]), estimate([0.8, 0.9, 1.0]).half_width.__round__(3)
    (Estimate(mean=0.9, half_width=None), 0.248)
    """
    n = len(values)
    if n == 0:
        return None
    if n == 1:
        return Estimate(float(np.mean(values)), None)
    from scipy.special import stdtrit

    factor = float(stdtrit(n - 1, 0.5 + CONFIDENCE / 2))
    return Estimate(float(np.mean(values)), factor * float(np.std(values, ddof=1)) / n**0.5)


@dataclass(frozen=True, eq=False)
class Trials:
    """The records of several runs that differ in their seed only, and the metric by which they are judged."""

    runs: tuple[tuple[RoundRecord, ...], ...]
    metric: Metric = field(default_factory=Metric)

    def last(self, field: str) -> list[float]:
        """A field in the last round that has it, of each run that has one."""
        ends = (
            next((value for r in reversed(run) if (value := getattr(r, field)) is not None), None)
            for run in self.runs
        )
        return [end for end in ends if end is not None]

    def total(self, field: str) -> list[float]:
        """A field that each device has, summed over devices and rounds, of each run."""
        return [float(sum(sum(getattr(record, field)) for record in run)) for run in self.runs]

    def evaluations(self) -> list[list[tuple[float, float]]]:
        """Virtual time and metric wherever that was measured, of each run."""
        found = ([(r.virtual_time_s, self.metric.of(r)) for r in run] for run in self.runs)
        return [[(time_s, value) for time_s, value in run if value is not None] for run in found]

    def best(self) -> list[float]:
        """The best metric of each run; 0 where it was never measured."""
        return [
            self.metric.best([value for _, value in run] or [0.0]) for run in self.evaluations()
        ]

    def time_to(self, target: float) -> list[float | None]:
        """The virtual time at which each run first is as good as this; None where it never is."""
        return [
            next((time_s for time_s, value in run if self.metric.reaches(value, target)), None)
            for run in self.evaluations()
        ]

    def accuracy_by(self, deadline_s: float, untrained: float) -> list[float]:
        """The highest test accuracy that each run has by a virtual time; before it has any, that of an untrained model."""
        return [
            max((accuracy for time_s, accuracy in run if time_s <= deadline_s), default=untrained)
            for run in self.evaluations()
        ]

    def curve(self) -> tuple[Floats, Floats, Floats]:
        """Rounds that were evaluated, runs × virtual times, runs × metrics."""
        rounds = [r.round for r in self.runs[0] if self.metric.of(r) is not None]
        wanted = set(rounds)
        chosen = [[r for r in run if r.round in wanted] for run in self.runs]
        times = np.array([[r.virtual_time_s for r in run] for run in chosen])
        values = np.array([[self.metric.of(r) for r in run] for run in chosen], dtype=np.float64)
        return np.array(rounds, dtype=np.float64), times, values


def common_target(several: Sequence[Trials]) -> float:
    """The best round number that every run of every algorithm reaches, whole percent of accuracy; 0 where there are no runs.

    >>> def run(accuracy):
    ...     return (RoundRecord(round=1, virtual_time_s=1.0, latency_s=1.0, train_loss=0.0, test_accuracy=accuracy),)
    >>> common_target([Trials((run(0.987), run(0.95))), Trials((run(0.938),))])
    0.93
    """
    found = [best for trials in several for best in trials.best()]
    if not found:
        return 0.0
    metric = several[0].metric
    return metric.round_target(metric.worst(found))
