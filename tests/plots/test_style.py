"""The common style: ticks of logarithmic axes."""

from __future__ import annotations

import pytest

from airsplit.plots import style


@pytest.mark.parametrize(
    ("low", "high"), [(117, 280), (290, 740), (1, 4.9), (600, 8500), (4, 580), (1e-3, 1e3)]
)
def test_a_logarithmic_axis_has_a_few_round_ticks(low, high):
    axes = style.make_figure(1, 1, 2)[1][0, 0]
    axes.plot([0, 1], [low, high])
    style.set_log_scale(axes.yaxis)
    visible = [tick for tick in axes.get_yticks() if low <= tick <= high]
    assert 3 <= len(visible) <= 12
    assert all(float(f"{tick:.2g}") == pytest.approx(tick) for tick in visible)
