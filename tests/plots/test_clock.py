"""The plot of `airsplit clock`: times in the unit of their axis."""

from __future__ import annotations

import numpy as np
import pytest

from airsplit.plots.clock import draw_clock

SHARES = {
    "compute": ("computing", np.array([0.5, 0.25])),
    "idle": ("waiting", np.array([0.5, 0.75])),
}


@pytest.mark.parametrize(
    ("longest_s", "unit_s", "word"), [(0.099, 1e-3, "ms"), (0.1, 1.0, "s"), (9.0, 1.0, "s")]
)
def test_latencies_are_drawn_in_the_unit_of_their_axis(
    longest_s: float, unit_s: float, word: str
) -> None:
    latency_s = np.linspace(0.5, 1.0, 101) * longest_s
    left = draw_clock(latency_s, ("planned", 0.6 * longest_s), SHARES, "a caption").axes[0]

    assert left.get_xlabel() == f"latency of a round [{word}]"
    mean, planned = (line.get_xdata()[0] for line in left.lines)
    assert mean == pytest.approx(0.75 * longest_s / unit_s)
    assert planned == pytest.approx(0.6 * longest_s / unit_s)
    band, bars = left.patches
    assert band.get_x() == pytest.approx(0.525 * longest_s / unit_s)
    assert band.get_width() == pytest.approx(0.45 * longest_s / unit_s)
    edges = bars.get_data().edges
    assert (edges[0], edges[-1]) == pytest.approx((0.5 * longest_s / unit_s, longest_s / unit_s))
    low, high = left.get_xlim()
    assert low < edges[0] < edges[-1] < high
