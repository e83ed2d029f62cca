"""The metric by which runs are compared: accuracy, or a function of the user's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from airsplit.core.formatting import format_percent
from airsplit.scenario.settings import ACCURACY, TrainingSettings


@dataclass(frozen=True)
class Metric:
    """A score of a model, and which direction is better.

    Attributes:
        name: Name in tables and pages.
        field: Field of a RoundRecord with the mean over the evaluated models.
        goal: "max" or "min".
    """

    name: str = ACCURACY
    field: str = "test_accuracy"
    goal: str = "max"

    @property
    def is_accuracy(self) -> bool:
        """Whether values are fractions, shown in percent."""
        return self.field == "test_accuracy"

    def of(self, record: Any) -> float | None:
        """Return the metric of a record; None if the round was not evaluated."""
        value: float | None = getattr(record, self.field)
        return value

    def best(self, values: Sequence[float]) -> float:
        """Return the best of these values."""
        if self.goal == "max":
            return max(values)
        return min(values)

    def worst(self, values: Sequence[float]) -> float:
        """Return the worst of these values."""
        if self.goal == "max":
            return min(values)
        return max(values)

    def reaches(self, value: float, target: float) -> bool:
        """Return whether a value is at least as good as a target."""
        if self.goal == "max":
            return value >= target
        return value <= target

    def round_target(self, value: float) -> float:
        """Return the best round number that a value reaches.

        Accuracy is rounded to whole percent, another metric to two significant digits.

        >>> Metric().round_target(0.938), Metric("error", "test_metric", "min").round_target(0.1234)
        (0.93, 0.13)
        """
        size = 0.01
        if not self.is_accuracy and value != 0:
            # Powers of ten below 1e-300 would underflow.
            size = 10.0 ** max(math.floor(math.log10(abs(value))) - 1, -300)

        # The tolerance keeps a value that is already round: 0.29 / 0.01 is 28.999999999999996.
        steps = value / size
        if self.goal == "max":
            whole_steps = math.floor(steps + 1e-9)
        else:
            whole_steps = math.ceil(steps - 1e-9)
        # 57 * 0.01 is 0.5700000000000001; drop such digits.
        return float(f"{whole_steps * size:.12g}")

    def show(self, value: float) -> str:
        """Format a value.

        >>> Metric().show(0.912), Metric("error", "test_metric", "min").show(0.01234)
        ('91.2 %', '0.01234')
        """
        if self.is_accuracy:
            return format_percent(value)
        return f"{value:.4g}"


def get_metric(settings: TrainingSettings) -> Metric:
    """Return the metric of a training's settings.

    >>> get_metric(TrainingSettings(metric="mine.metrics:mean_iou"))
    Metric(name='mean_iou', field='test_metric', goal='max')
    """
    if settings.metric == ACCURACY:
        return Metric()
    return Metric(display_name(settings.metric), "test_metric", settings.metric_goal)


def display_name(path: str) -> str:
    """Return the function's name from a metric's path, or the path if the name would mislead.

    >>> display_name("mine.metrics:mean_iou"), display_name("mine:accuracy")
    ('mean_iou', 'mine:accuracy')
    """
    function = path.rpartition(":")[2]
    # A user's function of that name need not be our accuracy.
    if function == ACCURACY:
        return path
    return function
