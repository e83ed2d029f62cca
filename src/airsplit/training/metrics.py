"""A metric of the user's own: how good a model's answers are, beside the loss and the accuracy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from torch import Tensor

from airsplit.core.errors import UserCodeError, show
from airsplit.core.plugins import import_factory
from airsplit.scenario.settings import ACCURACY, TrainingSettings

MetricFunction = Callable[[Any, Tensor], float]
"""A model's output and the labels → one number, a mean over the batch."""


def load_metric(settings: TrainingSettings) -> MetricFunction | None:
    """Return the metric that a scenario names by its path, or None for accuracy, which is counted label by label."""
    name = settings.metric
    if name == ACCURACY:
        return None
    function = import_factory(name, "training.metric", "one number")

    def measure(output: Any, labels: Tensor) -> float:
        return _one_number(name, function(output, labels, **settings.metric_arguments))

    return measure


def _one_number(name: str, value: Any) -> float:
    """Return what a metric returned as a float; raise if it is not one finite number."""
    plain = value
    if isinstance(value, Tensor | np.ndarray | np.generic) and math.prod(value.shape) == 1:
        plain = value.item()
    if not isinstance(plain, int | float) or not math.isfinite(plain):
        raise UserCodeError(
            f"training.metric {name!r} must return one finite number, got {show(value)}"
        )
    return float(plain)
