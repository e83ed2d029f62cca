r"""A convex relaxation of the E[max] problem: every device may mix its options.

A device that takes option r with weight λ_r needs x = Σ λ_r x_r + (Σ λ_r √A_r)² / b and β = Σ λ_r
β_r, with A/b the air time: dividing its share among the options in the best way gives the square of
the sum. Every plan is a mixture with one weight, so the least E[max] over mixtures is below every
plan's.

Conditional gradients (Frank–Wolfe) reach it: price the options at the mixture, step towards the
cheapest ones. Each iterate's price bound holds by itself, so it does not matter how far the
iteration has come. A step costs O(K R) and one quadrature.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from airsplit.core.arrays import Floats
from airsplit.planning.branch_and_bound import Node
from airsplit.planning.cost_table import CostTable, LocalAir
from airsplit.planning.newton_shares import refine_shares
from airsplit.planning.options import Mask
from airsplit.planning.prices import Pricing, price
from airsplit.system.latency import LatencyLaw
from airsplit.system.radio import TransmitTime


@dataclass(frozen=True, eq=False)
class Mixture:
    """Options with weights, shares, and the latencies that follow.

    Attributes:
        weights: λ, K × R; each row sums to one.
        x: Σ λ x: the certain time without the part that depends on the share.
        beta: Σ λ β.
        root: Σ λ √A.
    """

    weights: Floats
    shares: Floats
    x: Floats
    beta: Floats
    root: Floats

    @classmethod
    def of(cls, table: CostTable, local_air: LocalAir, weights: Floats, shares: Floats) -> Mixture:
        """Return the mixture with these weights and shares."""
        return cls(
            weights,
            shares,
            x=(weights * (table.shift_s + local_air.steady_s)).sum(axis=1),
            beta=(weights * table.scale_s).sum(axis=1),
            root=(weights * np.sqrt(local_air.per_share_s)).sum(axis=1),
        )

    def air(self, shares: Floats) -> TransmitTime:
        """Return the air time (Σ λ √A)² / b at other shares."""
        t = self.root**2 / shares
        return TransmitTime(t, -t / shares, 2 * t / shares**2)

    def move_towards(self, goal: Mixture, fraction: float) -> Mixture:
        """Return the point a fraction of the way to another mixture; everything mixes linearly."""
        mine = vars(self)
        theirs = vars(goal)
        moved = {name: mine[name] + fraction * (theirs[name] - mine[name]) for name in mine}
        return Mixture(**moved)

    def saving_s(self, local_air: LocalAir) -> Floats:
        """Return the air time that a device saves by mixing: the variance of √A, by its share."""
        # Σ λ A - (Σ λ √A)² is the variance of √A.
        unmixed: Floats = (self.weights * local_air.per_share_s).sum(axis=1)
        return (unmixed - self.root**2) / self.shares

    @property
    def shift_s(self) -> Floats:
        """The certain time, air time included."""
        return self.x + self.root**2 / self.shares


def relax(
    table: CostTable,
    allowed: Mask,
    weights: Floats,
    shares: Floats,
    *,
    enough_s: float,
    steps: int,
) -> Node:
    """Bound E[max] from below over all plans with allowed options.

    Args:
        weights: The mixture to start from, K × R.
        enough_s: Stop early once the bound exceeds this.
        steps: The most conditional-gradient steps.
    """
    fluctuation = table.problem.fluctuation
    local_air = LocalAir.near(table, shares)
    mixture = Mixture.of(table, local_air, weights, shares / shares.sum())
    best: Pricing | None = None
    for step in range(steps):
        # U + A/b fits near the shares that it was made for, and those have moved.
        if step > 0 and not table.problem.link.is_proportional:
            local_air = LocalAir.near(table, mixture.shares)
            mixture = Mixture.of(table, local_air, mixture.weights, mixture.shares)

        # Two steps of Newton on the shares are cheap and spare many slow ones.
        _, refined = refine_shares(
            mixture.x,
            mixture.beta,
            fluctuation,
            mixture.air,
            mixture.shares,
            most_steps=2,
            tolerance=1e-7,
        )
        mixture = replace(mixture, shares=refined)
        # Smoothed, because E[max] has no gradient where devices without fluctuation tie.
        law = LatencyLaw(mixture.shift_s, mixture.beta, fluctuation)
        last_device = law.smooth().last_device()
        pricing = price(table, allowed, last_device, local_air)
        if best is None or pricing.bound_s > best.bound_s:
            best = pricing

        # The best bound so far: it does not rise with every step.
        is_enough = best.bound_s >= enough_s
        has_converged = last_device.expected_max_s <= best.bound_s * (1 + 1e-5)
        # One step is for the bound alone: the next mixture would not be used.
        if steps == 1 or is_enough or has_converged:
            break
        mixture = _descend(table, mixture, cheapest_mixture(table, local_air, pricing))

    assert best is not None  # noqa: S101 - steps is at least one
    return Node(
        allowed,
        best.bound_s,
        mixture.weights,
        mixture.shares,
        keep_below_s=best.bound_s + best.costs_s - best.costs_s.min(axis=1, keepdims=True),
        saving_s=last_device.last * mixture.saving_s(local_air),
    )


def cheapest_mixture(table: CostTable, local_air: LocalAir, pricing: Pricing) -> Mixture:
    """Return the mixture of the cheapest options that uses the band once."""
    devices = np.arange(len(pricing.greedy))
    mix = pricing.mix
    weights = np.zeros(table.shift_s.shape)
    # +=, because both choices may be the same option.
    weights[devices, pricing.greedy] += mix
    weights[devices, pricing.frugal] += 1 - mix
    # A device that is never last would get no share and have an infinite air time.
    shares = np.maximum(mix * pricing.shares_greedy + (1 - mix) * pricing.shares_frugal, 1e-12)
    return Mixture.of(table, local_air, weights, shares / shares.sum())


def _descend(table: CostTable, start: Mixture, goal: Mixture) -> Mixture:
    """Move towards the goal as far as E[max] falls."""
    dx = goal.x - start.x
    dbeta = goal.beta - start.beta
    droot = goal.root - start.root
    db = goal.shares - start.shares

    def slope(fraction: float) -> float:
        at = start.move_towards(goal, fraction)
        law = LatencyLaw(at.shift_s, at.beta, table.problem.fluctuation)
        last_device = law.smooth().last_device()
        air_slope = 2 * at.root * droot / at.shares - (at.root / at.shares) ** 2 * db
        return float(last_device.last @ (dx + air_slope) + last_device.excess @ dbeta)

    return start.move_towards(goal, find_zero(slope))


def find_zero(slope: Callable[[float], float]) -> float:
    """Return about where a rising function on [0, 1] crosses zero, or the end next to it.

    Secants and bisection in turns, to about 1 %.

    >>> find_zero(lambda fraction: fraction - 0.25)
    0.25
    """
    low, high = 0.0, 1.0
    at_low = slope(low)
    at_high = slope(high)
    if at_high <= 0:
        return high
    if at_low >= 0:
        return low
    for turn in range(5):
        if turn % 2 == 0:
            middle = low - at_low * (high - low) / (at_high - at_low)
        else:
            middle = 0.5 * (low + high)
        at_middle = slope(middle)
        if at_middle > 0:
            high = middle
            at_high = at_middle
        else:
            low = middle
            at_low = at_middle
    return low - at_low * (high - low) / (at_high - at_low)
