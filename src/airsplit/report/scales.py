"""Where numbers stand on an axis, which of them it names, and which points a long line needs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from airsplit.core.arrays import Floats, Ints

MOST_POINTS = 600  # of a line: more cannot be told apart in a picture of this size
LOG_FROM = 50.0  # greatest ÷ least: from there on an axis of losses is logarithmic


@dataclass(frozen=True)
class AxisScale:
    """An axis from low to high, with its ticks; linear or logarithmic."""

    low: float
    high: float
    ticks: tuple[float, ...]
    log: bool = False

    def places(self, values: Floats | Sequence[float]) -> Floats:
        """Where values are between low, 0, and high, 1.

        >>> AxisScale(0, 4, ()).places([1, 4]).tolist(), AxisScale(1, 100, (), log=True).places([10.0]).tolist()
        ([0.25, 1.0], [0.5])
        """
        shape = np.log if self.log else np.asarray
        low, high, inner = (
            shape(np.asarray(v, dtype=np.float64)) for v in (self.low, self.high, values)
        )
        placed: Floats = (inner - low) / (high - low)
        return placed


def step_of(span: float, about: int = 5, *, whole: bool = False) -> float:
    """A round step that divides a span into at most so many.

    >>> step_of(6.0, whole=True), step_of(0.93), step_of(20_000.0)
    (2.0, 0.2, 5000.0)
    """
    raw = max(span / about, 1.0 if whole else 1e-300)
    power = 10.0 ** math.floor(math.log10(raw) + 1e-12)
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * (1 - 1e-9))


def span_scale(end: float, *, whole: bool = False) -> AxisScale:
    """From zero to just there, as for rounds and times.

    >>> span_scale(6, whole=True)
    AxisScale(low=0.0, high=6.0, ticks=(0.0, 2.0, 4.0, 6.0), log=False)
    """
    high = float(end) if end > 0 else 1.0
    step = step_of(high, whole=whole)
    return AxisScale(0.0, high, tuple(n * step for n in range(math.floor(high / step + 1e-9) + 1)))


def value_scale(greatest: float, ceiling: float = math.inf) -> AxisScale:
    """From zero to the first tick that nothing is above, or to a ceiling.

    >>> value_scale(0.93, ceiling=1.0).ticks[-1], value_scale(2.3).high
    (1.0, 2.5)
    """
    step = step_of(greatest if greatest > 0 else 1.0)
    count = max(math.ceil(greatest / step - 1e-9), 1)
    return AxisScale(
        0.0,
        min(count * step, ceiling),
        tuple(n * step for n in range(count + 1) if n * step <= ceiling * (1 + 1e-9)),
    )


def loss_scale(values: Floats) -> AxisScale:
    """Linear from zero; logarithmic for losses that are all above zero and far apart.

    >>> loss_scale(np.array([2.3, 1.1])).log, loss_scale(np.array([2.3, 0.002])).ticks
    (False, (0.01, 0.1, 1.0))
    """
    least, greatest = (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)
    if least <= 0 or greatest < LOG_FROM * least:
        return value_scale(greatest) if least >= 0 else _around_zero(least, greatest)
    return log_scale(least / 1.15, greatest * 1.15)


def log_scale(low: float, high: float) -> AxisScale:
    """A logarithmic axis from low to high; a short one, without two powers of ten on it, has ticks between them.

    >>> log_scale(0.5, 2000.0).ticks, log_scale(1.5, 20.0).ticks
    ((1.0, 10.0, 100.0, 1000.0), (2.0, 5.0, 10.0, 20.0))
    """
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    every = -(-(last - first) // 6)
    powers = _within(low, high, (float(f"1e{power}") for power in range(first, last + 1, every)))
    between = _within(
        low,
        high,
        (float(f"{factor}e{power}") for power in range(first, last + 1) for factor in (1, 2, 5)),
    )
    return AxisScale(low, high, powers if len(powers) > 1 else between, log=True)


def _within(low: float, high: float, ticks: Iterable[float]) -> tuple[float, ...]:
    return tuple(tick for tick in ticks if low <= tick <= high)


def tick(value: float) -> str:
    """A number at an axis.

    >>> tick(20_000.0), tick(0.30000000000000004), tick(1e-06)
    ('20,000', '0.3', '1e-06')
    """
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _around_zero(least: float, greatest: float) -> AxisScale:
    """For losses that can be negative, as a likelihood of a density can."""
    step = step_of(max(greatest, 0.0) - least)
    below, above = math.floor(least / step + 1e-9), math.ceil(max(greatest, 0.0) / step - 1e-9)
    return AxisScale(below * step, above * step, tuple(n * step for n in range(below, above + 1)))


def thin(values: Floats, most: int = MOST_POINTS) -> Ints:
    """Rows of at most so many points that look like all of them: of neighbors the first, the least, the greatest and the last.

    >>> thin(np.array([0.0, 9.0, 1.0, 2.0, -5.0, 3.0, 4.0, 4.0]), most=4).tolist()
    [0, 1, 4, 7]
    """
    if len(values) <= most:
        return np.arange(len(values))
    edges = np.linspace(0, len(values), max(most // 4, 1) + 1).astype(np.int64)
    kept = [
        (a, a + values[a:b].argmin(), a + values[a:b].argmax(), b - 1)
        for a, b in itertools.pairwise(edges.tolist())
    ]
    return np.unique(np.array(kept, dtype=np.int64))


def spread_rows(count: int, most: int) -> list[int]:
    """At most so many of the rows 0 … count - 1, the first and the last among them, evenly apart but for the last.

    >>> spread_rows(3, 10), spread_rows(1000, 4)
    ([0, 1, 2], [0, 333, 666, 999])
    """
    step = max(-(-(count - 1) // max(most - 1, 1)), 1)
    return sorted({*range(0, count, step), count - 1}) if count else []
