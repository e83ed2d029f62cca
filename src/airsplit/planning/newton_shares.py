r"""The shares that minimize E[max_k τ_k] for given splits: Newton's method on a convex function.

φ(b) = E[max_k (x_k + t_k(b_k) + β_k X_k)] over Σ b_k = 1 has the gradient π_k t'_k and the Hessian
diag(t') H diag(t') + diag(π_k t''_k), with H = diag(M 1) - M and M of low rank (see LastDevice).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from airsplit.core.arrays import Floats
from airsplit.system.latency import Fluctuation, LastDevice, LatencyLaw
from airsplit.system.radio import TransmitTime

Air = Callable[[Floats], TransmitTime]

MOST_TO_POLISH = 50_000
"""Newton's method keeps a table of devices × some 170 nodes; beyond this many devices shares stay as they are."""

_SMOOTHING = (1e-2, 1e-3, 1e-4, 1e-5)
"""Least fluctuations as parts of the latency."""


def polish_shares(
    shift_s: Floats,
    scale_s: Floats,
    fluctuation: Fluctuation,
    air: Air,
    shares: Floats,
    *,
    most_steps: int = 40,
    tolerance: float = 1e-10,
) -> tuple[float, Floats]:
    """The least E[max] over the shares, and those shares, which sum to one; `tolerance` is relative to E[max]."""
    b = start = shares / shares.sum()
    waiting = _Waiting(shift_s, scale_s, fluctuation, air)
    before = waiting.law(b)
    if len(b) > MOST_TO_POLISH:
        return before.expected_max_s, b
    if (before.smooth().scale_s > scale_s).sum() < 2:
        return _polish(waiting, b, most_steps, tolerance)
    # where devices without fluctuation tie, E[max] has a kink: come to it through ever less smooth functions
    for part in _SMOOTHING if most_steps > len(_SMOOTHING) else _SMOOTHING[-1:]:
        smooth = replace(waiting, scale_s=waiting.law(b).smooth(part).scale_s)
        _, b = _polish(smooth, b, most_steps, tolerance)
    return min(
        (waiting.law(b).expected_max_s, b),
        (before.expected_max_s, start),
        key=lambda found: found[0],
    )


@dataclass(frozen=True, eq=False)
class _Waiting:
    """Devices whose latency depends on their shares alone."""

    shift_s: Floats
    scale_s: Floats
    fluctuation: Fluctuation
    air: Air

    def law(self, shares: Floats) -> LatencyLaw:
        return self.law_of(self.air(shares))

    def law_of(self, t: TransmitTime) -> LatencyLaw:
        return LatencyLaw(self.shift_s + t.seconds, self.scale_s, self.fluctuation)


def _polish(
    waiting: _Waiting, b: Floats, most_steps: int, tolerance: float
) -> tuple[float, Floats]:
    value = np.inf
    for _ in range(most_steps):
        t = waiting.air(b)
        here = waiting.law_of(t).last_device(hessian=True)
        value = here.expected_max_s
        step, decrement = _newton_step(here, t, b)
        if decrement <= tolerance * value:
            break
        b, value, moved = _walk(waiting, b, value, step, decrement)
        if not moved:
            break
    return value, b


def _newton_step(here: LastDevice, t: TransmitTime, b: Floats) -> tuple[Floats, float]:
    """Newton's step with Σ step = 0, and the decrease that it promises."""
    gradient = here.last * t.slope
    price = float(-gradient @ b)
    U = t.slope[:, None] * here.hazards
    coupling = -t.slope * (here.hazards @ here.hazards.sum(axis=0))
    # the floor keeps a device that is hardly ever last from taking a step out of all proportion; it is inactive near the optimum
    D = coupling * -t.slope * (1 + 1e-10) + np.maximum(here.last * t.curvature, 0.25 * price / b)
    solved = _solve(D, U, np.stack([gradient, np.ones_like(b)], axis=1))
    multiplier = -solved[:, 0].sum() / solved[:, 1].sum()
    step = -(solved[:, 0] + multiplier * solved[:, 1])
    return step, float(-(gradient @ step))


def _solve(D: Floats, U: Floats, right: Floats) -> Floats:
    """(diag(D) - U Uᵀ)⁻¹ right: directly, or through the nodes where they are fewer than the devices."""
    K, N = U.shape
    if K <= N:
        return np.asarray(np.linalg.solve(np.diag(D) - U @ U.T, right), dtype=np.float64)
    scaled = U / D[:, None]
    inner = np.eye(N) - U.T @ scaled
    return right / D[:, None] + scaled @ np.linalg.solve(inner, U.T @ (right / D[:, None]))


def _walk(
    waiting: _Waiting, b: Floats, value: float, step: Floats, decrement: float
) -> tuple[Floats, float, bool]:
    """Go along the step, no further than nine tenths of the way to a zero share, halving until it pays."""
    shrinking = step < 0
    alpha = (
        min(1.0, 0.9 * float((b[shrinking] / -step[shrinking]).min())) if shrinking.any() else 1.0
    )
    for _ in range(30):
        trial = b + alpha * step
        reached = waiting.law(trial).expected_max_s
        if reached <= value - 1e-4 * alpha * decrement:
            return trial, reached, True
        alpha *= 0.5
    return b, value, False
