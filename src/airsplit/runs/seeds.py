"""Statistics over runs that differ in their seed only. Pure numpy."""

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
    """A mean over seeds, with its confidence interval.

    Attributes:
        half_width: Half the width of Student's 95 % interval; None for a single seed.
    """

    mean: float
    half_width: float | None


def estimate(values: Sequence[float]) -> Estimate | None:
    """Estimate the mean of a quantity from one value for each seed; None without values.

    >>> estimate([0.9])
    Estimate(mean=0.9, half_width=None)
    >>> estimate([0.8, 0.9, 1.0]).half_width.__round__(3)
    0.248
    """
    n = len(values)
    if n == 0:
        return None
    mean = float(np.mean(values))
    if n == 1:
        return Estimate(mean, None)

    # Imported here because loading scipy takes longer than reading a run.
    from scipy.special import stdtrit

    # Student's t with n - 1 degrees of freedom, for a standard deviation from the same n values.
    quantile = float(stdtrit(n - 1, 0.5 + CONFIDENCE / 2))
    return Estimate(mean, quantile * float(np.std(values, ddof=1)) / n**0.5)


@dataclass(frozen=True, eq=False)
class Trials:
    """Runs that differ in their seed only, and the metric by which they are compared.

    Methods return one entry for each run, in order.
    """

    runs: tuple[tuple[RoundRecord, ...], ...]
    metric: Metric = field(default_factory=Metric)

    def last(self, field: str) -> list[float]:
        """Return the last value of a field that is not None; runs without one are left out."""
        values: list[float] = []
        for run in self.runs:
            known = (getattr(record, field) for record in reversed(run))
            value = next((value for value in known if value is not None), None)
            if value is not None:
                values.append(value)
        return values

    def total(self, field: str) -> list[float]:
        """Return the sum over devices and rounds of a field that each device has."""
        return [float(sum(sum(getattr(record, field)) for record in run)) for run in self.runs]

    def evaluations(self) -> list[list[tuple[float, float]]]:
        """Return virtual time and metric of the rounds that were evaluated."""
        evaluations: list[list[tuple[float, float]]] = []
        for run in self.runs:
            points = ((record.virtual_time_s, self.metric.of(record)) for record in run)
            evaluations.append([(time_s, value) for time_s, value in points if value is not None])
        return evaluations

    def best(self) -> list[float]:
        """Return the best value of the metric; 0 for a run that was never evaluated."""
        return [
            self.metric.best([value for _, value in run] or [0.0]) for run in self.evaluations()
        ]

    def time_to(self, target: float) -> list[float | None]:
        """Return the virtual time at which the metric first reaches a target; None if never."""
        return [
            next((time_s for time_s, value in run if self.metric.reaches(value, target)), None)
            for run in self.evaluations()
        ]

    def accuracy_by(self, deadline_s: float, untrained: float) -> list[float]:
        """Return the highest test accuracy up to a virtual time.

        Args:
            untrained: Accuracy of an untrained model, for runs without an evaluation by then.
        """
        return [
            max((accuracy for time_s, accuracy in run if time_s <= deadline_s), default=untrained)
            for run in self.evaluations()
        ]

    def curve(self) -> tuple[Floats, Floats, Floats]:
        """Return the evaluated rounds (rounds), virtual times and metrics (runs × rounds)."""
        # All runs are evaluated in the same rounds, since those follow from the scenario.
        rounds = [record.round for record in self.runs[0] if self.metric.of(record) is not None]
        known = set(rounds)
        # The same rounds of every run, so that the arrays are rectangular.
        evaluated = [[record for record in run if record.round in known] for run in self.runs]
        times_s = np.array([[record.virtual_time_s for record in run] for run in evaluated])
        values = np.array(
            [[self.metric.of(record) for record in run] for run in evaluated], dtype=np.float64
        )
        return np.array(rounds, dtype=np.float64), times_s, values


def common_target(algorithms: Sequence[Trials]) -> float:
    """Return the best round number that every run reaches; 0 without runs.

    >>> def trials(accuracy):
    ...     record = RoundRecord(round=1, virtual_time_s=1.0, latency_s=1.0, train_loss=0.0,
    ...                          test_accuracy=accuracy)
    ...     return Trials(((record,),))
    >>> common_target([trials(0.987), trials(0.938)])
    0.93
    """
    # The worst of the runs' best values is what all of them reach.
    best = [value for trials in algorithms for value in trials.best()]
    if not best:
        return 0.0
    metric = algorithms[0].metric
    return metric.round_target(metric.worst(best))
