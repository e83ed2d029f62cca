r"""The shifted exponential: how long a device takes for a known amount of work.  Pure numpy.

τ = a c + (c / ε) X with X ~ Exp(1): c multiply-adds take at least a c seconds and c / ε more on average (paper, eq. 7).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from airsplit.core.arrays import Floats
from airsplit.core.errors import InvalidValue, require_numbers
from airsplit.core.units import Number


def mean_compute_s(macs: Number, seconds_per_mac: Number, fluctuation: Number) -> Number:
    r"""Mean time, E[τ] = c (a + 1/ε).  Shapes broadcast.

    >>> round(mean_compute_s(1e9, 1e-9, 2e9), 9)
    1.5
    """
    c, a, eps = macs, seconds_per_mac, fluctuation
    return c * (a + 1 / eps)


def quantile_compute_s(
    p: float, macs: Floats, seconds_per_mac: Floats, fluctuation: Floats
) -> Floats:
    r"""The time that is kept with probability p, c (a + ln(1/(1-p)) / ε).

    >>> round(float(quantile_compute_s(0.5, np.array(1e9), np.array(1e-9), np.array(1e9))), 6)  # 1 + ln 2
    1.693147
    """
    c, a, eps = macs, seconds_per_mac, fluctuation
    seconds: Floats = c * (a - np.log1p(-p) / eps)
    return seconds


def compute_cdf(
    seconds: Floats, macs: Floats, seconds_per_mac: Floats, fluctuation: Floats
) -> Floats:
    r"""P[τ ≤ t] = 1 - exp(-ε (t - a c) / c) for t ≥ a c, else 0; a step at 0 where there is no work.

    >>> compute_cdf(np.array([0.5, 1.0, 1e9]), np.array(1e9), np.array(1e-9), np.array(1e9)).tolist()
    [0.0, 0.0, 1.0]
    """
    c, a, eps = macs, seconds_per_mac, fluctuation
    with np.errstate(divide="ignore", invalid="ignore"):
        x = np.where(c > 0, eps * (seconds - a * c) / c, np.where(seconds >= 0, np.inf, 0.0))
    return -np.expm1(-np.maximum(x, 0))


def draw_compute_s(
    rng: np.random.Generator, macs: Floats, seconds_per_mac: Floats, fluctuation: Floats, draws: int
) -> Floats:
    """Independent draws, shape (draws, …broadcast shape of the arguments…)."""
    c, a, eps = np.broadcast_arrays(macs, seconds_per_mac, fluctuation)
    seconds: Floats = a * c + c / eps * rng.exponential(size=(draws, *c.shape))
    return seconds


@dataclass(frozen=True)
class ComputeFit:
    """What measured times say of a device.

    `distance` is Kolmogorov–Smirnov's: below 1.36/√n in at least 95 % of cases when the law is right.
    """

    seconds_per_mac: float
    fluctuation: float
    distance: float
    samples: int


def fit_compute(macs: ArrayLike, seconds: ArrayLike) -> ComputeFit:
    r"""The most likely a and ε behind measured times: a = min τ/c, 1/ε = mean τ/c - a.

    >>> fit = fit_compute([1e9, 1e9, 2e9], [1.0, 2.0, 6.0])
    >>> fit.seconds_per_mac, round(fit.fluctuation)
    (1e-09, 1000000000)
    """
    c, t = require_numbers("macs", macs, above=0), require_numbers("seconds", seconds, above=0)
    if c.shape != t.shape or c.ndim != 1 or not c.size:
        raise InvalidValue(
            f"macs and seconds must be two lists of one length, got shapes {c.shape} and {t.shape}"
        )
    pace = np.sort(t / c)
    a, extra = float(pace[0]), float(pace.mean() - pace[0])
    if extra <= 1e-12 * a:
        raise InvalidValue(
            f"seconds must differ from each other to show a fluctuation, got {len(pace)} times of one pace; measure more often"
        )
    law = -np.expm1(-(pace - a) / extra)
    above, below = np.arange(1, len(pace) + 1) / len(pace), np.arange(len(pace)) / len(pace)
    return ComputeFit(a, 1 / extra, float(max((above - law).max(), (law - below).max())), len(pace))
