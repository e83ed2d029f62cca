r"""Algorithm 1: the shares that let all devices finish together, for given splits.

With busy time T_k and payload D_k the device needs the share b_k(τ) = R_k⁻¹(D_k / (τ - T_k)) to finish by τ.  Σ_k b_k(τ) is convex
and falling, so τ* with Σ b_k = 1 is unique.  Newton on 1/Σb, which is nearly linear (and concave for a fixed SNR, so that
the iterates climb to τ* from below), takes three to five steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from airsplit.core.arrays import Floats
from airsplit.system.radio import Link

_EPSILON = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, eq=False)
class Allocation:
    """Shares, and the moment at which everybody finishes with them."""

    finish_s: float
    shares: Floats
    iterations: int


def allocate_shares(
    link: Link, up_bits: Floats, down_bits: Floats, busy_s: Floats, near_s: float | None = None
) -> Allocation:
    """Shares that minimize max_k (busy_k + air time_k); they sum to at most one.  `near_s` is a guess of the finish.

    >>> from airsplit.system.radio import Direction
    >>> link = Link(Direction(np.array([1e6, 2e6])))
    >>> done = allocate_shares(link, np.array([1e6, 2e6]), np.zeros(2), np.array([1.0, 1.0]))
    >>> round(done.finish_s, 12), done.shares.round(12).tolist()
    (3.0, [0.5, 0.5])
    """
    full = link.seconds(up_bits, down_bits, np.ones_like(busy_s))
    band = (
        _ProportionalBand(full, busy_s)
        if link.is_proportional
        else _Band(link, up_bits, down_bits, busy_s)
    )
    low = float((busy_s + full).max())
    high = (float(busy_s.max()) + float(full.sum())) * (
        1 + 1e-12
    )  # enough for sure: R is concave, so R(b) ≥ b R(1)
    tau = max(low, band.guess_s if near_s is None else near_s)
    for iterations in range(1, 101):  # noqa: B007 - reported
        total, slope = band.total(tau)
        low, high = (low, tau) if total <= 1 else (tau, high)
        step = total * (1 - total) / slope if np.isfinite(total) else np.inf
        if total <= 1 and -step <= 4 * _EPSILON * tau:
            break
        # end on the feasible side: one rounding error of τ can be much band where the air time is tiny beside the rest
        tau += max(step, 2 * _EPSILON * tau) if total > 1 else step
        if not low < tau < high:
            tau = 0.5 * (low + high)
            if tau in (low, high):
                break
    return Allocation(high, within_budget(band.shares(high)), iterations)


@dataclass(frozen=True, eq=False)
class _Band:
    """What devices need to finish by τ."""

    link: Link
    up_bits: Floats
    down_bits: Floats
    busy_s: Floats
    guess_s: float = 0.0

    def shares(self, tau: float) -> Floats:
        return self.link.share(self.up_bits, self.down_bits, tau - self.busy_s)

    def total(self, tau: float) -> tuple[float, float]:
        """Σ b_k(τ) and its slope in τ."""
        b = self.shares(tau)
        if not np.isfinite(b).all():
            return np.inf, -np.inf
        return float(b.sum()), float(
            (1 / self.link.transmit(self.up_bits, self.down_bits, b).slope).sum()
        )


@dataclass(frozen=True, eq=False)
class _ProportionalBand:
    """The same where air time is A/b: b_k(τ) = A_k / (τ - T_k).  Sums without temporary arrays, which would cost more than they do."""

    full_s: Floats
    busy_s: Floats

    @property
    def guess_s(self) -> float:
        """Σ A/(τ - T) ≥ (Σ A)² / Σ A (τ - T), so no earlier finish is possible."""
        total = float(self.full_s.sum())
        return total + float(np.einsum("i,i->", self.full_s, self.busy_s)) / total

    def shares(self, tau: float) -> Floats:
        return self.full_s * self._per_spare(tau)

    def total(self, tau: float) -> tuple[float, float]:
        per_spare = self._per_spare(tau)
        total = float(np.einsum("i,i->", self.full_s, per_spare))
        return total, -float(np.einsum("i,i,i->", self.full_s, per_spare, per_spare))

    def _per_spare(self, tau: float) -> Floats:
        spare = np.subtract(tau, self.busy_s)
        with np.errstate(
            divide="ignore"
        ):  # τ ≥ T; equal only where the air time is lost in rounding
            return np.reciprocal(spare, out=spare)


def rounding_room(devices: int) -> float:
    """Return the largest sum of K shares that stays at most one in any order of summation."""
    return 1 - 2 * devices * float(np.finfo(np.float64).eps)


def within_budget(shares: Floats) -> Floats:
    """Scale shares to use the whole band, and sum to at most one in whatever order they are added up.

    >>> float(within_budget(np.full(10, 0.1)).sum()) <= 1.0
    True
    """
    return shares * (rounding_room(len(shares)) / float(shares.sum()))
