r"""The price bound: a lower bound on E[max_k τ_k] over all plans, from prices on being late and on the band.

f(x, β) = E[max_k (x_k + β_k X_k)] is convex and positively homogeneous, so its gradient (π, m) at any point gives
f ≥ Σ_k π_k x_k + m_k β_k everywhere.  With a price ν ≥ 0 on the band, Σ_k b_k ≤ 1, hence for every plan

    E[max] ≥ Σ_k min_{ℓ, b} [π_k x_k(ℓ, b) + m_k β_k(ℓ) + ν b] - ν,

one pass over the K × R table; the best ν is where the minimizers use the band exactly once.  With air time A/b the inner
minimum over b is 2 √(ν π A); if every minimum sits at the plan's own split, the plan is globally optimal.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from airsplit.core.arrays import Floats, Ints
from airsplit.planning.options import LocalAir, Mask, SplitTable, pick
from airsplit.system.latency import LastDevice


@dataclass(frozen=True, eq=False)
class Pricing:
    """A price on the band with what it leads to.

    bound_s   the lower bound
    costs_s   K × R: each split's least cost at these prices, infinite where not allowed
    greedy, frugal, mix   the choices just below and above the best price; mix · greedy + (1 - mix) · frugal uses the band once
    shares_greedy, shares_frugal   the shares that they would take
    """

    bound_s: float
    costs_s: Floats
    greedy: Ints
    frugal: Ints
    mix: float
    shares_greedy: Floats
    shares_frugal: Floats


def price(table: SplitTable, allowed: Mask, here: LastDevice, air: LocalAir) -> Pricing:
    """The price bound with the best price on the band, from who is last at some point."""
    pi, m = here.last[:, None], here.excess[:, None]
    fixed = np.where(allowed, pi * (table.shift_s + air.steady_s) + m * table.scale_s, np.inf)
    root = np.sqrt(pi * air.per_share_s)
    mu, greedy, frugal, mix = _best_price(fixed, root)
    simple = table.problem.link.is_proportional
    costs = fixed + 2 * mu * root if simple else _true_costs(table, allowed, here, mu, root)
    # one part in 10⁹ stays in hand for the quadrature behind π and m
    bound = (float(costs.min(axis=1).sum()) - mu**2) * (1 - 1e-9)
    return Pricing(
        bound, costs, greedy, frugal, mix, pick(root, greedy) / mu, pick(root, frugal) / mu
    )


def _best_price(fixed: Floats, root: Floats) -> tuple[float, Ints, Ints, float]:
    """Maximize Σ_k min_r (fixed + 2 μ root) - μ² over μ = √ν.

    Its slope is 2 (Σ root[choice] - μ), which falls as μ grows; it may jump across zero where a device changes its choice.
    """
    devices = np.arange(len(fixed))

    def choose(mu: float) -> tuple[Ints, float]:
        choice = (fixed + 2 * mu * root).argmin(axis=1)
        return choice, float(root[devices, choice].sum())

    high = float(root.max(axis=1).sum())
    low, greedy = 0.0, choose(0.0)[0]
    frugal, mu = choose(high)
    for turn in range(80):
        choice, total = choose(mu)
        if abs(total - mu) <= 1e-12 * mu:
            return mu, choice, choice, 1.0
        if total > mu:
            low, greedy = mu, choice
        else:
            high, frugal = mu, choice
        if high - low <= 1e-10 * high:
            break
        mu = total if turn % 3 < 2 and low < total < high else 0.5 * (low + high)
    much, little = float(root[devices, greedy].sum()), float(root[devices, frugal].sum())
    mix = (mu - little) / (much - little) if much > little else 1.0
    return mu, greedy, frugal, float(np.clip(mix, 0.0, 1.0))


def _true_costs(
    table: SplitTable, allowed: Mask, here: LastDevice, mu: float, root: Floats
) -> Floats:
    """min_b [π t(b) + ν b] over 0 < b ≤ 1 with the true rate, as a rigorous lower bound, plus the rest of the cost.

    Newton on ln(π |t'|) over ln b; what is left of the slope is taken off for the worst b, which convexity allows.
    """
    pi, m, nu = here.last[:, None], here.excess[:, None], mu**2
    with np.errstate(divide="ignore"):
        b = np.clip(root / mu, 1e-60, 1.0)
    may_be_last = np.broadcast_to(pi > 0, b.shape)
    for _ in range(8):
        t = table.transmit_all(b)
        with np.errstate(divide="ignore", invalid="ignore"):
            step = (np.log(nu) - np.log(-pi * t.slope)) * t.slope / (b * t.curvature)
        b = np.where(
            may_be_last, np.clip(b * np.exp(np.clip(np.nan_to_num(step), -3, 3)), 1e-60, 1.0), b
        )
    t = table.transmit_all(b)
    slope = pi * t.slope + nu
    least = pi * t.seconds + nu * b - np.where(slope > 0, slope * b, -slope * (1 - b))
    least = np.where(may_be_last, least, 0.0)
    return np.where(allowed, pi * table.shift_s + m * table.scale_s + least, np.inf)
