r"""The paper's split rule: backward induction over the layers of one device, as an optimal stopping problem.

After layer ℓ a device has seen its compute time τ^cp_ℓ and either sends (and is done at τ^cp_ℓ + τ^cm_ℓ) or goes on, which is worth
E(V_{ℓ+1}).  It sends when τ^cp_ℓ is below τ̂_ℓ = E(V_{ℓ+1}) - τ^cm_ℓ.  With x_ℓ = max(0, ε(τ̂_ℓ - a c_ℓ)/c_ℓ)

    E(V_ℓ) = min(a c_ℓ, τ̂_ℓ) + τ^cm_ℓ + (c_ℓ/ε)(1 - e^(-x_ℓ)),      P(stop at ℓ | reached) = 1 - e^(-x_ℓ)

which is the paper's closed form with the clip that it lacks: where τ̂ < a c the device never stops at ℓ.  The model takes the time for
ℓ + 1 layers as independent of the time just seen for ℓ, so that E(V_1) is the latency of no realisable policy: never report it as one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from airsplit.core.arrays import Floats
from airsplit.core.errors import require_integer, require_number
from airsplit.system.profile import Profile


@dataclass(frozen=True, eq=False)
class StoppingTable:
    """One device's table: thresholds τ̂_ℓ, expectations E(V_ℓ), probabilities of stopping at ℓ, and the most probable split (1-based)."""

    thresholds_s: Floats
    expected_s: Floats
    probabilities: Floats
    split: int


def stopping_table(
    profile: Profile,
    seconds_per_mac: float,
    fluctuation: float,
    rate_bps: float,
    *,
    max_split: int | str | None = None,
    batch_size: int = 1,
    element_bits: int = 32,
) -> StoppingTable:
    """The backward induction of one device.  Here `max_split` None means all L layers.

    >>> p = Profile(["a", "b"], layer_macs=[10, 10], matmul_macs=[10, 20], activation_elements=[40, 1], parameters=[1, 1])
    >>> table = stopping_table(p, 1.0, 1.0, 32.0)
    >>> table.expected_s.round(6).tolist(), table.split
    ([41.0, 41.0], 2)
    """
    a = require_number("seconds_per_mac", seconds_per_mac, above=0)
    eps = require_number("fluctuation", fluctuation, above=0)
    rate = require_number("rate_bps", rate_bps, above=0)
    require_integer("batch_size", batch_size, low=1, high=10**9)
    require_integer("element_bits", element_bits, low=1, high=64)
    last = len(profile) if max_split is None else profile.split_of(max_split, "max_split")
    work = profile.macs[:last].astype(np.float64) * batch_size
    transmit = profile.activation_elements[:last].astype(np.float64) * (
        batch_size * element_bits / rate
    )
    thresholds, expected, probabilities = backward_induction(
        work, transmit[None, :], np.array([a]), np.array([eps])
    )
    return StoppingTable(
        thresholds[0], expected[0], probabilities[0], int(probabilities[0].argmax()) + 1
    )


def backward_induction(
    work: Floats, transmit_s: Floats, a: Floats, eps: Floats
) -> tuple[Floats, Floats, Floats]:
    """Thresholds, expectations and stopping probabilities, each K × L, of K devices over L layers.

    `transmit_s` is K × L, infinite where a device may not stop; it must be finite somewhere in each row.
    """
    K, L = transmit_s.shape
    thresholds, expected, stop = np.empty((K, L)), np.empty((K, L)), np.empty((K, L))
    onward = np.full(K, np.inf)
    for ell in reversed(range(L)):
        c, air = work[ell], transmit_s[:, ell]
        usable = np.isfinite(air)
        air = np.where(usable, air, 0.0)
        threshold = np.where(usable, onward - air, -np.inf)
        x = (
            eps * np.maximum(threshold - a * c, 0) / c
            if c > 0
            else np.where(threshold > 0, np.inf, 0.0)
        )
        stop[:, ell] = -np.expm1(-x)
        value = np.minimum(a * c, threshold) + air + (c / eps) * stop[:, ell]
        onward = np.where(usable, value, onward)
        thresholds[:, ell], expected[:, ell] = threshold, onward
    reached = np.cumprod(np.hstack([np.ones((K, 1)), 1 - stop[:, :-1]]), axis=1)
    return thresholds, expected, reached * stop
