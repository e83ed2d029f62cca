r"""The shifted exponential law of compute times, and its fit to measured times.

τ^cp = a c + (c / ε) X with X ~ Exp(1): c multiply-adds take at least a c seconds, and c / ε more on
average (paper, eq. 7).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from airsplit.core.errors import InvalidValue, require_numbers
from airsplit.core.units import Number


def mean_compute_s(macs: Number, seconds_per_mac: Number, fluctuation: Number) -> Number:
    r"""Return the mean time E[τ^cp] = c (a + 1/ε). Shapes broadcast.

    >>> round(mean_compute_s(1e9, 1e-9, 2e9), 9)
    1.5
    """
    c, a, eps = macs, seconds_per_mac, fluctuation
    return c * (a + 1 / eps)


@dataclass(frozen=True)
class ComputeFit:
    """The law that measured compute times of a device follow.

    Attributes:
        seconds_per_mac: a.
        fluctuation: ε in MAC/s.
        distance: Kolmogorov-Smirnov distance between the times and the law; below 1.36/√n
            in at least 95 % of cases if the law is right.
        samples: n, the number of times.
    """

    seconds_per_mac: float
    fluctuation: float
    distance: float
    samples: int


def fit_compute(macs: ArrayLike, seconds: ArrayLike) -> ComputeFit:
    r"""Return the maximum-likelihood fit a = min τ/c, 1/ε = mean τ/c - a to measured times.

    Paces of 1, 2 and 3 ns/MAC: at best 1 ns, and 1 ns more on average.

    >>> fit = fit_compute([1e9, 1e9, 2e9], [1.0, 2.0, 6.0])
    >>> fit.seconds_per_mac, round(fit.fluctuation)
    (1e-09, 1000000000)
    """
    c = require_numbers("macs", macs, above=0)
    t = require_numbers("seconds", seconds, above=0)
    if c.shape != t.shape or c.ndim != 1 or not c.size:
        raise InvalidValue(
            f"macs and seconds must be two lists of one length, got shapes {c.shape} and {t.shape}"
        )
    pace = np.sort(t / c)
    a = float(pace[0])
    extra = float(pace.mean() - pace[0])
    # Equal times would give ε = ∞; a difference of rounding errors gives nonsense.
    if extra <= 1e-12 * a:
        raise InvalidValue(
            "seconds must differ from each other to show a fluctuation, "
            f"got {len(pace)} times of one pace; measure more often"
        )

    # The empirical distribution function jumps at each time: compare both ends of the jump.
    law = -np.expm1(-(pace - a) / extra)
    above = np.arange(1, len(pace) + 1) / len(pace)
    below = np.arange(len(pace)) / len(pace)
    distance = float(max((above - law).max(), (law - below).max()))
    return ComputeFit(a, 1 / extra, distance, len(pace))
