"""Scales and ticks of axes, and the points that a long line needs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from airsplit.core.arrays import Floats, Ints

# A chart is not wide enough to show more points of a line.
MOST_POINTS = 600
# Greatest value ÷ least, from which an axis of losses is logarithmic.
LOG_FROM = 50.0


@dataclass(frozen=True)
class AxisScale:
    """An axis from low to high with its ticks, linear or logarithmic."""

    low: float
    high: float
    ticks: tuple[float, ...]
    log: bool = False

    def places(self, values: Floats | Sequence[float]) -> Floats:
        """Return where values lie between low, 0, and high, 1.

        >>> AxisScale(0, 4, ()).places([1, 4]).tolist()
        [0.25, 1.0]
        >>> AxisScale(1, 100, (), log=True).places([10.0]).tolist()
        [0.5]
        """
        shape = np.log if self.log else np.asarray
        low, high, inner = (
            shape(np.asarray(v, dtype=np.float64)) for v in (self.low, self.high, values)
        )
        places: Floats = (inner - low) / (high - low)
        return places


def round_step(span: float, most: int = 5, *, whole: bool = False) -> float:
    """Return a round step that divides a span into at most `most` parts.

    >>> round_step(6.0, whole=True), round_step(0.93), round_step(20_000.0)
    (2.0, 0.2, 5000.0)
    """
    # The logarithm needs a positive number, and rounds need whole ticks.
    least = max(span / most, 1.0 if whole else 1e-300)
    power = 10.0 ** math.floor(math.log10(least) + 1e-12)
    # The tolerances keep a span that is a multiple of a step from taking the next one.
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * (1 - 1e-9))


def span_scale(end: float, *, whole: bool = False) -> AxisScale:
    """Return an axis from zero to exactly `end`, as for rounds and times.

    >>> span_scale(6, whole=True)
    AxisScale(low=0.0, high=6.0, ticks=(0.0, 2.0, 4.0, 6.0), log=False)
    """
    # A run of no duration still needs an axis.
    high = float(end) if end > 0 else 1.0
    step = round_step(high, whole=whole)
    # The tolerance keeps a last tick that rounding has put just beyond the end.
    count = math.floor(high / step + 1e-9)
    return AxisScale(0.0, high, tuple(n * step for n in range(count + 1)))


def value_scale(greatest: float, ceiling: float = math.inf) -> AxisScale:
    """Return an axis from zero to the first tick above all values, or to a ceiling.

    >>> value_scale(0.93, ceiling=1.0).ticks[-1], value_scale(2.3).high
    (1.0, 2.5)
    """
    step = round_step(greatest if greatest > 0 else 1.0)
    # One tick above zero, also if all values are zero.
    count = max(math.ceil(greatest / step - 1e-9), 1)
    highest_tick = ceiling * (1 + 1e-9)
    ticks = tuple(n * step for n in range(count + 1) if n * step <= highest_tick)
    return AxisScale(0.0, min(count * step, ceiling), ticks)


def loss_scale(values: Floats) -> AxisScale:
    """Return an axis from zero, or a logarithmic one for positive values that are far apart.

    >>> loss_scale(np.array([2.3, 1.1])).log, loss_scale(np.array([2.3, 0.002])).ticks
    (False, (0.01, 0.1, 1.0))
    """
    if not len(values):
        return value_scale(1.0)
    least = float(values.min())
    greatest = float(values.max())
    if least < 0:
        # As the negative log-likelihood of a density can be. Zero stays on the axis.
        step = round_step(max(greatest, 0.0) - least)
        first = math.floor(least / step + 1e-9)
        last = math.ceil(max(greatest, 0.0) / step - 1e-9)
        return AxisScale(first * step, last * step, tuple(n * step for n in range(first, last + 1)))
    if least == 0 or greatest < LOG_FROM * least:
        return value_scale(greatest)
    # A margin, so that no line runs along the edge.
    return log_scale(least / 1.15, greatest * 1.15)


def log_scale(low: float, high: float) -> AxisScale:
    """Return a logarithmic axis with ticks at powers of ten, and between them if it is short.

    >>> log_scale(0.5, 2000.0).ticks, log_scale(1.5, 20.0).ticks
    ((1.0, 10.0, 100.0, 1000.0), (2.0, 5.0, 10.0, 20.0))
    """
    first = math.floor(math.log10(low))
    last = math.ceil(math.log10(high))
    # Rounded up, so that there are at most seven powers.
    every = -(-(last - first) // 6)
    # Parsed, not computed: 10.0**-5 is not 1e-05.
    ticks = _between(low, high, (float(f"1e{n}") for n in range(first, last + 1, every)))
    if len(ticks) < 2:
        # Less than two powers lie on the axis, which has no scale without two numbers.
        closer = (float(f"{m}e{n}") for n in range(first, last + 1) for m in (1, 2, 5))
        ticks = _between(low, high, closer)
    return AxisScale(low, high, ticks, log=True)


def _between(low: float, high: float, ticks: Iterable[float]) -> tuple[float, ...]:
    return tuple(tick for tick in ticks if low <= tick <= high)


def format_tick(value: float) -> str:
    """Format a number for an axis.

    >>> format_tick(20_000.0), format_tick(0.30000000000000004), format_tick(1e-06)
    ('20,000', '0.3', '1e-06')
    """
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def thin(values: Floats, most: int = MOST_POINTS) -> Ints:
    """Return at most `most` rows that look like all of them.

    Of each group of neighbors the first, the least, the greatest and the last stay.

    >>> thin(np.array([0.0, 9.0, 1.0, 2.0, -5.0, 3.0, 4.0, 4.0]), most=4).tolist()
    [0, 1, 4, 7]
    """
    if len(values) <= most:
        return np.arange(len(values))
    # Four points stay of each group.
    edges = np.linspace(0, len(values), max(most // 4, 1) + 1).astype(np.int64)
    rows = [
        (a, a + values[a:b].argmin(), a + values[a:b].argmax(), b - 1)
        for a, b in itertools.pairwise(edges.tolist())
    ]
    return np.unique(np.array(rows, dtype=np.int64))


def choose_rows(count: int, most: int) -> list[int]:
    """Return at most `most` of the rows 0 … count - 1 at equal distances, and the last one.

    >>> choose_rows(3, 10), choose_rows(1000, 4)
    ([0, 1, 2], [0, 333, 666, 999])
    """
    if count == 0:
        return []
    # Rounded up, so that the first and the last row are among the `most`.
    step = max(-(-(count - 1) // max(most - 1, 1)), 1)
    return sorted({*range(0, count, step), count - 1})
