r"""A convex relaxation of the E[max] problem: every device may mix its splits.

A device that takes split r with weight λ_r needs x = Σ λ_r x_r + (Σ λ_r √A_r)² / b and β = Σ λ_r β_r; dividing its share
among the splits in the best way gives the square of the sum.  Every plan is a mixture with one weight, so the least E[max]
over mixtures is below every plan's.  Conditional gradients reach it: price the splits at the mixture, step towards the
cheapest ones.  Each iterate's price bound holds by itself, so it does not matter how far the iteration has come.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from airsplit.core.arrays import Floats
from airsplit.planning.branch_and_bound import Node
from airsplit.planning.newton_shares import Air, polish_shares
from airsplit.planning.options import LocalAir, Mask, SplitTable
from airsplit.planning.prices import Pricing, price
from airsplit.system.latency import LatencyLaw
from airsplit.system.radio import TransmitTime


@dataclass(frozen=True, eq=False)
class Mixture:
    """Weights K × R and shares, and the device times that follow: x without the share's part, β, and Σ λ √A."""

    weights: Floats
    shares: Floats
    x: Floats
    beta: Floats
    root: Floats

    @classmethod
    def of(cls, table: SplitTable, air: LocalAir, weights: Floats, shares: Floats) -> Mixture:
        x = (weights * (table.shift_s + air.steady_s)).sum(axis=1)
        root = (weights * np.sqrt(air.per_share_s)).sum(axis=1)
        return cls(weights, shares, x, (weights * table.scale_s).sum(axis=1), root)

    def towards(self, goal: Mixture, part: float) -> Mixture:
        """The point a part of the way to another mixture; everything mixes linearly."""
        mine, theirs = vars(self), vars(goal)
        return Mixture(**{name: mine[name] + part * (theirs[name] - mine[name]) for name in mine})

    def mixing_s(self, air: LocalAir) -> Floats:
        """Air time that each device saves by mixing: the variance of √A over its weights, by its share."""
        unmixed: Floats = (self.weights * air.per_share_s).sum(axis=1)
        return (unmixed - self.root**2) / self.shares

    @property
    def shift_s(self) -> Floats:
        return self.x + self.root**2 / self.shares


def relax(
    table: SplitTable,
    allowed: Mask,
    weights: Floats,
    shares: Floats,
    *,
    enough_s: float,
    steps: int,
) -> Node:
    """Bound E[max] from below over all plans with allowed splits; stop early once the bound exceeds `enough_s`."""
    fluctuation = table.problem.fluctuation
    air = LocalAir.near(table, shares)
    mixture = Mixture.of(table, air, weights, shares / shares.sum())
    best: Pricing | None = None
    for step in range(steps):
        if step > 0 and not table.problem.link.is_proportional:
            air = LocalAir.near(table, mixture.shares)
            mixture = Mixture.of(table, air, mixture.weights, mixture.shares)
        # two steps of Newton on the shares are cheap and spare many slow ones
        at = polish_shares(
            mixture.x,
            mixture.beta,
            fluctuation,
            _inverse(mixture.root),
            mixture.shares,
            most_steps=2,
            tolerance=1e-7,
        )
        mixture = replace(mixture, shares=at[1])
        here = LatencyLaw(mixture.shift_s, mixture.beta, fluctuation).smooth().last_device()
        pricing = price(table, allowed, here, air)
        best = pricing if best is None or pricing.bound_s > best.bound_s else best
        # One step is for the bound alone: nobody looks at where the mixture would go from here.
        if (
            steps == 1
            or best.bound_s >= enough_s
            or here.expected_max_s <= best.bound_s * (1 + 1e-5)
        ):
            break
        mixture = _descend(table, mixture, _cheapest(table, air, pricing))
    assert best is not None  # noqa: S101 - steps is at least one
    forced = best.bound_s + best.costs_s - best.costs_s.min(axis=1, keepdims=True)
    return Node(
        allowed,
        best.bound_s,
        mixture.weights,
        mixture.shares,
        forced,
        here.last * mixture.mixing_s(air),
    )


def _inverse(root: Floats) -> Air:
    """Air time A/b as a function of the shares."""

    def air(b: Floats) -> TransmitTime:
        t = root**2 / b
        return TransmitTime(t, -t / b, 2 * t / b**2)

    return air


def _cheapest(table: SplitTable, air: LocalAir, pricing: Pricing) -> Mixture:
    """The mixture of the cheapest splits that uses the band once."""
    devices, mix = np.arange(len(pricing.greedy)), pricing.mix
    weights = np.zeros(table.shift_s.shape)
    weights[devices, pricing.greedy] += mix
    weights[devices, pricing.frugal] += 1 - mix
    shares = np.maximum(mix * pricing.shares_greedy + (1 - mix) * pricing.shares_frugal, 1e-12)
    return Mixture.of(table, air, weights, shares / shares.sum())


def _descend(table: SplitTable, start: Mixture, goal: Mixture) -> Mixture:
    """Go towards the goal as far as E[max] falls."""
    dx, dbeta, droot, db = (
        goal.x - start.x,
        goal.beta - start.beta,
        goal.root - start.root,
        goal.shares - start.shares,
    )

    def slope(part: float) -> float:
        at = start.towards(goal, part)
        here = LatencyLaw(at.shift_s, at.beta, table.problem.fluctuation).smooth().last_device()
        air_slope = 2 * at.root * droot / at.shares - (at.root / at.shares) ** 2 * db
        return float(here.last @ (dx + air_slope) + here.excess @ dbeta)

    return start.towards(goal, _zero_of(slope))


def _zero_of(slope: Callable[[float], float]) -> float:
    """Where a rising function on [0, 1] crosses zero, or the end next to it: secants and halving in turns, to about 1 %.

    >>> _zero_of(lambda part: part - 0.25)
    0.25
    """
    low, high = 0.0, 1.0
    at_low, at_high = slope(low), slope(high)
    if at_high <= 0 or at_low >= 0:
        return high if at_high <= 0 else low
    for turn in range(5):
        middle = (
            low - at_low * (high - low) / (at_high - at_low)
            if turn % 2 == 0
            else 0.5 * (low + high)
        )
        at = slope(middle)
        if at > 0:
            high, at_high = middle, at
        else:
            low, at_low = middle, at
    return low - at_low * (high - low) / (at_high - at_low)
