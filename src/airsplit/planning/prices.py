r"""The price bound: a lower bound on E[max_k τ_k] over all plans, from prices on time and band.

f(x, β) = E[max_k (x_k + β_k X_k)] is convex and positively homogeneous, so its gradient (π, m) at
any point gives f ≥ Σ_k π_k x_k + m_k β_k everywhere. With a price ν ≥ 0 on the band, Σ_k b_k ≤ 1,
hence for every plan

    E[max] ≥ Σ_k min_{ℓ, b} [π_k x_k(ℓ, b) + m_k β_k(ℓ) + ν b] - ν,

one pass over the K × R table; the best ν is where the minimizers use the band exactly once. With
air time A/b the inner minimum over b is 2 √(ν π A); if every minimum sits at the plan's own option,
the plan is globally optimal.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from airsplit.core.arrays import Floats, Ints
from airsplit.planning.cost_table import CostTable, LocalAir, select
from airsplit.planning.options import Mask
from airsplit.system.latency import LastDevice


@dataclass(frozen=True, eq=False)
class Pricing:
    """The best price on the band, and how devices respond to it.

    The choice may jump at the best price. Then `mix` · greedy + (1 - mix) · frugal uses the band
    once.

    Attributes:
        bound_s: The lower bound.
        costs_s: Each option's least cost at these prices, K × R; infinite if not allowed.
        greedy: The choice just below the price.
        frugal: The choice just above the price.
        mix: The weight of the greedy choice.
        shares_greedy: The shares that the greedy choice takes.
        shares_frugal: The shares that the frugal choice takes.
    """

    bound_s: float
    costs_s: Floats
    greedy: Ints
    frugal: Ints
    mix: float
    shares_greedy: Floats
    shares_frugal: Floats


def price(table: CostTable, allowed: Mask, last_device: LastDevice, local_air: LocalAir) -> Pricing:
    """Return the price bound over the allowed options, at the best price on the band.

    Args:
        last_device: The gradient (π, m) of E[max] at some point.
        local_air: The air time as U + A/b, from which the price is found.
    """
    pi = last_device.last[:, None]
    m = last_device.excess[:, None]
    steady = pi * (table.shift_s + local_air.steady_s) + m * table.scale_s
    steady = np.where(allowed, steady, np.inf)
    root = np.sqrt(pi * local_air.per_share_s)
    mu, greedy, frugal, mix = _best_price(steady, root)
    if table.problem.link.is_proportional:
        costs = steady + 2 * mu * root
    else:
        costs = true_costs(table, allowed, last_device, mu, root)

    # One part in 10⁹ stays in hand for the quadrature behind π and m.
    bound = (float(costs.min(axis=1).sum()) - mu**2) * (1 - 1e-9)
    shares_greedy = select(root, greedy) / mu
    shares_frugal = select(root, frugal) / mu
    return Pricing(bound, costs, greedy, frugal, mix, shares_greedy, shares_frugal)


def _best_price(steady: Floats, root: Floats) -> tuple[float, Ints, Ints, float]:
    """Maximize Σ_k min_r (steady + 2 μ root) - μ² over μ = √ν.

    Its slope is 2 (Σ root[choice] - μ), which falls as μ grows; it may jump across zero where a
    device changes its choice. Return μ, the choices on its two sides, and the weight of the first.
    """
    devices = np.arange(len(steady))

    def choose(mu: float) -> tuple[Ints, float]:
        choice = (steady + 2 * mu * root).argmin(axis=1)
        return choice, float(root[devices, choice].sum())

    # No choice has a larger Σ root, so from here on the slope is not positive.
    high = float(root.max(axis=1).sum())
    low = 0.0
    greedy, _ = choose(0.0)
    frugal, mu = choose(high)
    for turn in range(80):
        choice, total = choose(mu)
        if abs(total - mu) <= 1e-12 * mu:
            return mu, choice, choice, 1.0
        if total > mu:
            low = mu
            greedy = choice
        else:
            high = mu
            frugal = choice
        if high - low <= 1e-10 * high:
            break
        # Between two jumps the fixed point μ = Σ root is exact; every third step bisects.
        mu = 0.5 * (low + high)
        if turn % 3 < 2 and low < total < high:
            mu = total

    much = float(root[devices, greedy].sum())
    little = float(root[devices, frugal].sum())
    # Mixing both choices uses the band exactly once; without a jump any mixture does.
    mix = 1.0
    if much > little:
        mix = (mu - little) / (much - little)
    return mu, greedy, frugal, float(np.clip(mix, 0.0, 1.0))


def true_costs(
    table: CostTable, allowed: Mask, last_device: LastDevice, mu: float, root: Floats
) -> Floats:
    """Return costs with the true rate instead of U + A/b, as a rigorous lower bound.

    Minimize π t(b) + ν b over 0 < b ≤ 1: Newton on ln(π |t'|) over ln b. What is left of the slope
    is taken off for the worst b, which convexity allows.
    """
    pi = last_device.last[:, None]
    m = last_device.excess[:, None]
    nu = mu**2
    with np.errstate(divide="ignore"):
        b = np.clip(root / mu, 1e-60, 1.0)
    # A device that is never last pays for the band only, and takes none.
    may_be_last = np.broadcast_to(pi > 0, b.shape)
    for _ in range(8):
        t = table.air(b)
        with np.errstate(divide="ignore", invalid="ignore"):
            step = (np.log(nu) - np.log(-pi * t.slope)) * t.slope / (b * t.curvature)
        # A factor of e³ at the most: far from the root Newton's step overshoots.
        step = np.clip(np.nan_to_num(step), -3, 3)
        b = np.where(may_be_last, np.clip(b * np.exp(step), 1e-60, 1.0), b)

    t = table.air(b)
    slope = pi * t.slope + nu
    rest = np.where(slope > 0, slope * b, -slope * (1 - b))
    least = np.where(may_be_last, pi * t.seconds + nu * b - rest, 0.0)
    return np.where(allowed, pi * table.shift_s + m * table.scale_s + least, np.inf)
