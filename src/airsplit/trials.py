"""Trials: the same training with several seeds, and what can be said of it.  Pure numpy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from airsplit.results import RoundRecord
from airsplit.units import Floats

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
    """The records of several runs that differ in their seed only."""

    runs: tuple[tuple[RoundRecord, ...], ...]

    def last(self, field: str) -> list[float]:
        """A field in the last round that has it, of each run that has one."""
        ends = (next((value for r in reversed(run) if (value := getattr(r, field)) is not None), None) for run in self.runs)
        return [end for end in ends if end is not None]

    def total(self, field: str) -> list[float]:
        """A field that each device has, summed over devices and rounds, of each run."""
        return [float(sum(sum(getattr(record, field)) for record in run)) for run in self.runs]

    def evaluated(self) -> list[list[tuple[float, float]]]:
        """Virtual time and test accuracy wherever that was measured, of each run."""
        return [[(r.virtual_time_s, r.test_accuracy) for r in run if r.test_accuracy is not None] for run in self.runs]

    def best_accuracy(self) -> list[float]:
        """The highest test accuracy of each run."""
        return [max((accuracy for _, accuracy in run), default=0.0) for run in self.evaluated()]

    def time_to(self, target: float) -> list[float | None]:
        """The virtual time at which each run first has this test accuracy; None where it never has."""
        return [next((time_s for time_s, accuracy in run if accuracy >= target), None) for run in self.evaluated()]

    def accuracy_by(self, deadline_s: float, untrained: float) -> list[float]:
        """The highest test accuracy that each run has by a virtual time; before it has any, that of an untrained model."""
        return [max((accuracy for time_s, accuracy in run if time_s <= deadline_s), default=untrained) for run in self.evaluated()]

    def curve(self) -> tuple[Floats, Floats, Floats]:
        """Rounds that were evaluated, runs × virtual times, runs × test accuracies."""
        rounds = [r.round for r in self.runs[0] if r.test_accuracy is not None]
        wanted = set(rounds)
        chosen = [[r for r in run if r.round in wanted] for run in self.runs]
        times = np.array([[r.virtual_time_s for r in run] for run in chosen])
        accuracies = np.array([[r.test_accuracy for r in run] for run in chosen], dtype=np.float64)
        return np.array(rounds, dtype=np.float64), times, accuracies


def common_target(several: Sequence[Trials]) -> float:
    """The highest whole percentage that every run of every algorithm reaches; 0 where there are no runs.

    >>> def run(accuracy):
    ...     return (RoundRecord(round=1, virtual_time_s=1.0, latency_s=1.0, train_loss=0.0, test_accuracy=accuracy),)
    >>> common_target([Trials((run(0.987), run(0.95))), Trials((run(0.938),))])
    0.93
    """
    least = min((best for trials in several for best in trials.best_accuracy()), default=0.0)
    return float(np.floor(100 * least + 1e-9) / 100)
