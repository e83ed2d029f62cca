"""Shares that minimize E[max_k τ_k]: no other shares are better, from any start."""

from __future__ import annotations

import numpy as np
import pytest

from airsplit.core.arrays import Floats
from airsplit.planning.newton_shares import Air, refine_shares
from airsplit.system.latency import Fluctuation, LatencyLaw
from airsplit.system.radio import TransmitTime


def inverse(seconds: Floats) -> Air:
    """Return the air time A/b."""

    def air(b: Floats) -> TransmitTime:
        t = seconds / b
        return TransmitTime(t, -t / b, 2 * t / b**2)

    return air


@pytest.mark.parametrize("K", [1, 2, 5, 40, 250])
def test_no_exchange_of_band_improves_refined_shares(K: int) -> None:
    # E[max] is convex in the shares, so that a local optimum is the optimum; 250 devices take the
    # way through the nodes
    rng = np.random.default_rng(K)
    shift, scale, seconds = (
        rng.uniform(0, 2, K),
        rng.uniform(0.05, 1, K),
        rng.uniform(0.1, 1, K) / K,
    )
    value, b = refine_shares(shift, scale, Fluctuation(), inverse(seconds), np.full(K, 1 / K))
    assert b.sum() == pytest.approx(1.0, abs=1e-12)
    assert value == pytest.approx(LatencyLaw(shift + seconds / b, scale).expected_max_s, rel=1e-12)
    for size in (1e-3, 1e-2, 0.1):
        for _ in range(5):
            other = b * np.exp(size * rng.normal(size=K))
            other /= other.sum()
            assert LatencyLaw(shift + seconds / other, scale).expected_max_s >= value * (1 - 1e-9)


def test_refining_reaches_the_same_value_from_any_start() -> None:
    rng = np.random.default_rng(8)
    shift, scale, seconds = rng.uniform(0, 2, 6), rng.uniform(0.05, 1, 6), rng.uniform(0.1, 1, 6)
    starts = [np.full(6, 1 / 6), *(10.0 ** rng.uniform(-3, 0, 6) for _ in range(8))]
    values = [
        refine_shares(shift, scale, Fluctuation(), inverse(seconds), start)[0] for start in starts
    ]
    assert values == pytest.approx([min(values)] * len(values), rel=1e-8)
