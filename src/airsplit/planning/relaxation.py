r"""A convex relaxation of the E[max] problem: every device may mix its splits.

A device that takes split r with weight λ_r needs x = Σ λ_r x_r + (Σ λ_r √A_r)² / b and β = Σ λ_r β_r; dividing its share among the splits in
the best way gives the square of the sum.  Every plan is a mixture with one weight, so the least E[max] over mixtures is below every
plan's.  Conditional gradients reach it: price the splits at the mixture, step towards the cheapest ones.  Each iterate's price
bound holds by itself, so it does not matter how far the iteration has come.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from airsplit.latency import LatencyLaw
from airsplit.planning.polishing import polish_shares
from airsplit.planning.prices import Pricing, price
from airsplit.planning.tables import LocalAir, Mask, SplitTable
from airsplit.radio import TransmitTime
from airsplit.units import Floats


@dataclass(frozen=True, eq=False)
class Mixture:
    """Weights K × R and shares."""

    weights: Floats
    shares: Floats


@dataclass(frozen=True, eq=False)
class Relaxed:
    """The best bound, the pricing that gave it, and the mixture where the iteration stopped."""

    bound_s: float
    pricing: Pricing
    mixture: Mixture
    steps: int


def relax(table: SplitTable, allowed: Mask, start: Mixture, *, enough_s: float, steps: int = 25) -> Relaxed:
    """Bound E[max] from below over all plans with allowed splits; stop early once the bound exceeds `enough_s`."""
    problem = table.problem
    air = LocalAir.near(table, start.shares)
    weights, b = start.weights, start.shares / start.shares.sum()
    best: Pricing | None = None
    taken = 0
    for taken in range(1, steps + 1):  # noqa: B007 - reported
        x, beta, root = _mixed(table, air, weights)
        _, b = polish_shares(x, beta, problem.fluctuation, _air_of(root), b, most_steps=2, tolerance=1e-7)
        here = LatencyLaw(x + root**2 / b, beta, problem.fluctuation).last_device()
        pricing = price(table, allowed, here, air)
        best = pricing if best is None or pricing.bound_s > best.bound_s else best
        if best.bound_s >= enough_s or here.expected_max_s <= best.bound_s * (1 + 1e-5):
            break
        weights, b = _step(table, air, pricing, weights, b)
    assert best is not None  # noqa: S101 - steps is at least one
    return Relaxed(best.bound_s, best, Mixture(weights, b), taken)


def _mixed(table: SplitTable, air: LocalAir, weights: Floats) -> tuple[Floats, Floats, Floats]:
    """x without the share's part, β, and Σ λ √A of each device."""
    x = (weights * (table.shift_s + air.steady_s)).sum(axis=1)
    return x, (weights * table.scale_s).sum(axis=1), (weights * np.sqrt(air.per_share_s)).sum(axis=1)


def _air_of(root: Floats):  # type: ignore[no-untyped-def]
    def air(b: Floats) -> TransmitTime:
        t = root**2 / b
        return TransmitTime(t, -t / b, 2 * t / b**2)

    return air


def _step(table: SplitTable, air: LocalAir, pricing: Pricing, weights: Floats, b: Floats) -> tuple[Floats, Floats]:
    """Move the mixture towards the cheapest splits, as far as E[max] falls."""
    devices = np.arange(len(b))
    goal = np.zeros_like(weights)
    goal[devices, pricing.greedy] += pricing.mix
    goal[devices, pricing.frugal] += 1 - pricing.mix
    goal_b = pricing.mix * pricing.shares_greedy + (1 - pricing.mix) * pricing.shares_frugal
    goal_b = np.maximum(goal_b / goal_b.sum(), 1e-12)
    ends = [_mixed(table, air, weights), _mixed(table, air, goal)]

    def along(gamma: float) -> tuple[float, float]:
        """E[max] and its slope at a fraction of the way."""
        x, beta, root = (p + gamma * (q - p) for p, q in zip(*ends, strict=True))
        share = b + gamma * (goal_b - b)
        here = LatencyLaw(x + root**2 / share, beta, table.problem.fluctuation).last_device()
        dx, dbeta, droot = (q - p for p, q in zip(*ends, strict=True))
        air_slope = 2 * root * droot / share - (root / share) ** 2 * (goal_b - b)
        return here.expected_max_s, float(here.last @ (dx + air_slope) + here.excess @ dbeta)

    gamma = _least(along)
    return weights + gamma * (goal - weights), b + gamma * (goal_b - b)


def _least(along) -> float:  # type: ignore[no-untyped-def]
    """Where a convex function on [0, 1] is least: halve by the sign of its slope, with secants."""
    low, high = 0.0, 1.0
    slope_low, slope_high = along(0.0)[1], along(1.0)[1]
    if slope_high <= 0:
        return 1.0
    if slope_low >= 0:
        return 0.0
    for turn in range(5):
        middle = low - slope_low * (high - low) / (slope_high - slope_low) if turn % 2 == 0 else 0.5 * (low + high)
        slope = along(middle)[1]
        if slope > 0:
            high, slope_high = middle, slope
        else:
            low, slope_low = middle, slope
    return low - slope_low * (high - low) / (slope_high - slope_low)
