r"""The shares that minimize E[max_k τ_k] for given options: Newton's method on a convex function.

φ(b) = E[max_k (x_k + t_k(b_k) + β_k X_k)] over Σ_k b_k = 1, with x_k the best-case time without air
time, t_k the air time and β_k the scale of the fluctuation X_k. With π_k = P(k is last) its
gradient is π_k t'_k and its Hessian

    diag(t') H diag(t') + diag(π_k t''_k),      H = diag(M 1) - M,

with M = hazards · hazardsᵀ of rank N, the number of quadrature nodes (see LastDevice). A step
solves with a K × K matrix, or through the nodes with an N × N one: O(K N min(K, N)).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from airsplit.core.arrays import Floats
from airsplit.system.latency import Fluctuation, LastDevice, LatencyLaw
from airsplit.system.radio import TransmitTime

Air = Callable[[Floats], TransmitTime]

# Newton's method keeps a table of devices × some 170 nodes; with more devices shares stay as they
# are.
MOST_TO_REFINE = 50_000

# Least fluctuations as fractions of the latency.
_SMOOTHING = (1e-2, 1e-3, 1e-4, 1e-5)


def refine_shares(
    shift_s: Floats,
    scale_s: Floats,
    fluctuation: Fluctuation,
    air: Air,
    shares: Floats,
    *,
    most_steps: int = 40,
    tolerance: float = 1e-10,
) -> tuple[float, Floats]:
    """Return the least E[max] over the shares, and those shares, which sum to one.

    Args:
        shift_s: x, without air time.
        scale_s: β.
        air: The air time of each device as a function of the shares.
        shares: Where to start.
        tolerance: The decrease at which to stop, relative to E[max].
    """
    start = shares / shares.sum()
    objective = _Objective(shift_s, scale_s, fluctuation, air)
    law = objective.law(start)
    if len(start) > MOST_TO_REFINE:
        return law.expected_max_s, start
    is_smooth = (law.smooth().scale_s > scale_s).sum() < 2
    if is_smooth:
        return _minimize(objective, start, most_steps, tolerance)

    # Where devices without fluctuation tie, E[max] has a kink: approach it through ever less smooth
    # functions.
    b = start
    fractions: tuple[float, ...] = _SMOOTHING
    if most_steps <= len(_SMOOTHING):
        # With few steps there is time for the least smooth function only.
        fractions = _SMOOTHING[-1:]
    for fraction in fractions:
        smooth_scale_s = objective.law(b).smooth(fraction).scale_s
        _, b = _minimize(replace(objective, scale_s=smooth_scale_s), b, most_steps, tolerance)
    refined_s = objective.law(b).expected_max_s
    if refined_s <= law.expected_max_s:
        return refined_s, b
    return law.expected_max_s, start


@dataclass(frozen=True, eq=False)
class _Objective:
    """φ: the law of devices whose latency depends on their shares alone."""

    shift_s: Floats
    scale_s: Floats
    fluctuation: Fluctuation
    air: Air

    def law(self, shares: Floats) -> LatencyLaw:
        return self.law_at(self.air(shares))

    def law_at(self, t: TransmitTime) -> LatencyLaw:
        return LatencyLaw(self.shift_s + t.seconds, self.scale_s, self.fluctuation)


def _minimize(
    objective: _Objective, b: Floats, most_steps: int, tolerance: float
) -> tuple[float, Floats]:
    """Take Newton steps from b until they promise less than the tolerance or none helps."""
    value = np.inf
    for _ in range(most_steps):
        t = objective.air(b)
        last_device = objective.law_at(t).last_device(hessian=True)
        value = last_device.expected_max_s
        step, decrement = _newton_step(last_device, t, b)
        # The decrement bounds how far the value is from the least, up to a constant.
        if decrement <= tolerance * value:
            break
        b, value, has_moved = _backtrack(objective, b, value, step, decrement)
        if not has_moved:
            break
    return value, b


def _newton_step(last_device: LastDevice, t: TransmitTime, b: Floats) -> tuple[Floats, float]:
    """Return Newton's step with Σ step = 0, and the decrease that it promises."""
    pi = last_device.last
    hazards = last_device.hazards
    gradient = pi * t.slope
    # At the optimum every device has π_k |t'_k| = ν, the price of the band.
    price = float(-gradient @ b)
    U = t.slope[:, None] * hazards
    coupling = -t.slope * (hazards @ hazards.sum(axis=0))
    # The floor keeps a device that is hardly ever last from taking a step out of all proportion. It
    # is inactive near the optimum.
    D = coupling * -t.slope * (1 + 1e-10) + np.maximum(pi * t.curvature, 0.25 * price / b)

    # Block elimination of the constraint: H step + gradient + multiplier · 1 = 0 and Σ step = 0.
    solved = _solve(D, U, np.stack([gradient, np.ones_like(b)], axis=1))
    multiplier = -solved[:, 0].sum() / solved[:, 1].sum()
    step = -(solved[:, 0] + multiplier * solved[:, 1])
    return step, float(-(gradient @ step))


def _solve(D: Floats, U: Floats, right: Floats) -> Floats:
    """Return (diag(D) - U Uᵀ)⁻¹ right: directly, or through the nodes if they are fewer."""
    K, N = U.shape
    if K <= N:
        return np.asarray(np.linalg.solve(np.diag(D) - U @ U.T, right), dtype=np.float64)
    # Woodbury's identity.
    scaled = U / D[:, None]
    inner = np.eye(N) - U.T @ scaled
    return right / D[:, None] + scaled @ np.linalg.solve(inner, U.T @ (right / D[:, None]))


def _backtrack(
    objective: _Objective, b: Floats, value: float, step: Floats, decrement: float
) -> tuple[Floats, float, bool]:
    """Backtrack along the step, keeping every share positive; also return whether it helped."""
    alpha = 1.0
    is_shrinking = step < 0
    if is_shrinking.any():
        to_zero = float((b[is_shrinking] / -step[is_shrinking]).min())
        # At a zero share the air time is infinite: go nine tenths of the way to it.
        alpha = min(1.0, 0.9 * to_zero)
    for _ in range(30):
        trial = b + alpha * step
        reached = objective.law(trial).expected_max_s
        # Armijo's rule: a small part of the promised decrease is enough.
        if reached <= value - 1e-4 * alpha * decrement:
            return trial, reached, True
        alpha *= 0.5
    return b, value, False
