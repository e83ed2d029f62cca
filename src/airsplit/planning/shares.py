r"""Algorithm 1: the shares that let all devices finish together, for given options.

Minimize max_k [T_k + t_k(b_k)] over Σ_k b_k ≤ 1, with busy time T_k and t_k the air time of the
payload D_k. To finish by τ device k needs the share b_k(τ) = R_k⁻¹(D_k / (τ - T_k)). Σ_k b_k(τ) is
convex and falling, so the τ* with Σ b_k = 1 is unique. Newton on 1/Σb, which is nearly linear (and
concave for a fixed SNR, so that the iterates climb to τ* from below), takes three to five steps of
O(K).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from airsplit.core.arrays import Floats
from airsplit.system.radio import Link

_EPSILON = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, eq=False)
class Allocation:
    """Shares, and the moment at which every device finishes with them."""

    finish_s: float
    shares: Floats
    iterations: int


def allocate_shares(
    link: Link, up_bits: Floats, down_bits: Floats, busy_s: Floats, near_s: float | None = None
) -> Allocation:
    """Return the shares that minimize max_k (busy_k + air time_k); they sum to at most one.

    Args:
        near_s: A guess of the finish, to start from.

    >>> from airsplit.system.radio import Direction
    >>> link = Link(Direction(np.array([1e6, 2e6])))
    >>> done = allocate_shares(link, np.array([1e6, 2e6]), np.zeros(2), np.array([1.0, 1.0]))
    >>> round(done.finish_s, 12), done.shares.round(12).tolist()
    (3.0, [0.5, 0.5])
    """
    full = link.seconds(up_bits, down_bits, np.ones_like(busy_s))
    band: _Band | _ProportionalBand = _Band(link, up_bits, down_bits, busy_s)
    if link.is_proportional:
        band = _ProportionalBand(full, busy_s)

    low = float((busy_s + full).max())
    # Always enough: R is concave with R(0) = 0, so R(b) ≥ b R(1).
    high = (float(busy_s.max()) + float(full.sum())) * (1 + 1e-12)
    tau = max(low, band.guess_s if near_s is None else near_s)
    # Newton needs a handful of steps; 100 bisections are enough for any double.
    for iterations in range(1, 101):  # noqa: B007 - reported
        total, slope = band.total(tau)
        if total <= 1:
            high = tau
        else:
            low = tau
        step = total * (1 - total) / slope if np.isfinite(total) else np.inf
        # Feasible, and the step to the root is lost in rounding.
        if total <= 1 and -step <= 4 * _EPSILON * tau:
            break

        # End on the feasible side: one rounding error of τ is much band if the air time is tiny
        # beside the rest.
        if total > 1:
            step = max(step, 2 * _EPSILON * tau)
        tau += step
        if not low < tau < high:
            tau = 0.5 * (low + high)
            if tau in (low, high):
                break
    return Allocation(high, within_budget(band.shares(high)), iterations)


@dataclass(frozen=True, eq=False)
class _Band:
    """The band that devices need to finish by τ."""

    link: Link
    up_bits: Floats
    down_bits: Floats
    busy_s: Floats
    guess_s: float = 0.0

    def shares(self, tau: float) -> Floats:
        return self.link.share(self.up_bits, self.down_bits, tau - self.busy_s)

    def total(self, tau: float) -> tuple[float, float]:
        """Return Σ b_k(τ) and its slope in τ, Σ 1/t'_k(b_k)."""
        b = self.shares(tau)
        if not np.isfinite(b).all():
            return np.inf, -np.inf
        t = self.link.transmit(self.up_bits, self.down_bits, b)
        return float(b.sum()), float((1 / t.slope).sum())


@dataclass(frozen=True, eq=False)
class _ProportionalBand:
    """The band for air times A/b: b_k(τ) = A_k / (τ - T_k).

    Sums without temporary arrays, which would cost more than they do.
    """

    full_s: Floats
    busy_s: Floats

    @property
    def guess_s(self) -> float:
        """No earlier finish is possible: Σ A/(τ - T) ≥ (Σ A)² / Σ A (τ - T)."""
        total = float(self.full_s.sum())
        return total + float(np.einsum("i,i->", self.full_s, self.busy_s)) / total

    def shares(self, tau: float) -> Floats:
        return self.full_s * self._per_spare(tau)

    def total(self, tau: float) -> tuple[float, float]:
        """Return Σ b_k(τ) and its slope in τ, -Σ A_k / (τ - T_k)²."""
        per_spare = self._per_spare(tau)
        total = float(np.einsum("i,i->", self.full_s, per_spare))
        return total, -float(np.einsum("i,i,i->", self.full_s, per_spare, per_spare))

    def _per_spare(self, tau: float) -> Floats:
        """Return 1 / (τ - T_k)."""
        spare = np.subtract(tau, self.busy_s)
        # τ ≥ T_k; they are equal only if the air time is lost in rounding.
        with np.errstate(divide="ignore"):
            return np.reciprocal(spare, out=spare)


def rounding_room(devices: int) -> float:
    """Return the largest sum of K shares that stays at most one in any order of summation."""
    return 1 - 2 * devices * _EPSILON


def within_budget(shares: Floats) -> Floats:
    """Scale shares to use the whole band, and to sum to at most one in any order of summation.

    >>> float(within_budget(np.full(10, 0.1)).sum()) <= 1.0
    True
    """
    return shares * (rounding_room(len(shares)) / float(shares.sum()))
