"""The number by which runs are judged: accuracy, or a metric of the user's own.  No torch here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from airsplit.core.formatting import format_percent
from airsplit.scenario.settings import ACCURACY, TrainingSettings


@dataclass(frozen=True)
class Metric:
    """How good a model is, in one number, and which way is better.

    Attributes:
        name: What tables and pages call it.
        field: The field of a RoundRecord that has its mean over the evaluated models.
        goal: "max" or "min".
    """

    name: str = ACCURACY
    field: str = "test_accuracy"
    goal: str = "max"

    @property
    def is_accuracy(self) -> bool:
        return self.field == "test_accuracy"

    def of(self, record: Any) -> float | None:
        """Return the metric of a record; None if the round was not evaluated."""
        value: float | None = getattr(record, self.field)
        return value

    def best(self, values: Sequence[float]) -> float:
        return max(values) if self.goal == "max" else min(values)

    def worst(self, values: Sequence[float]) -> float:
        return min(values) if self.goal == "max" else max(values)

    def reaches(self, value: float, target: float) -> bool:
        """Return whether a value is as good as a target."""
        return value >= target if self.goal == "max" else value <= target

    def round_target(self, value: float) -> float:
        """Return the best round number that a value reaches: whole percent of accuracy, two digits of another metric.

        >>> Metric().round_target(0.938), Metric("error", "test_metric", "min").round_target(0.1234)
        (0.93, 0.13)
        """
        size = 0.01
        if not self.is_accuracy and value != 0:
            size = 10.0 ** max(math.floor(math.log10(abs(value))) - 1, -300)
        steps = value / size
        whole = math.floor(steps + 1e-9) if self.goal == "max" else math.ceil(steps - 1e-9)
        return float(f"{whole * size:.12g}")  # 0.13, not 0.13000000000000003

    def show(self, value: float) -> str:
        """
        >>> Metric().show(0.912), Metric("error", "test_metric", "min").show(0.01234)
        ('91.2 %', '0.01234')
        """
        return format_percent(value) if self.is_accuracy else f"{value:.4g}"


def get_metric(settings: TrainingSettings) -> Metric:
    """Return the metric by which a training is judged.

    >>> get_metric(TrainingSettings(metric="mine.metrics:mean_iou"))
    Metric(name='mean_iou', field='test_metric', goal='max')
    """
    if settings.metric == ACCURACY:
        return Metric()
    return Metric(display_name(settings.metric), "test_metric", settings.metric_goal)


def display_name(path: str) -> str:
    """Return what tables and pages call a metric of the user's own: the function, or all of it if that is taken.

    >>> display_name("mine.metrics:mean_iou"), display_name("mine:accuracy")
    ('mean_iou', 'mine:accuracy')
    """
    function = path.rpartition(":")[2]
    return path if function == ACCURACY else function
