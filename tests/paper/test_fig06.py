"""Figure 6: splits within their limits, on even axes."""

from __future__ import annotations

import numpy as np

from paper.tiny_figures import read_numbers, redraw


def test_ticks_are_even_and_speeds_are_in_macs_per_second(folder):
    figure = redraw(read_numbers(folder, 6))
    for axes in figure.axes:
        assert len(set(np.diff(axes.get_yticks()))) == 1
    assert {axes.get_xlabel() for axes in figure.axes} == {"", "speed 1/a [GMAC/s]"}


def test_no_split_is_deeper_than_its_limit_and_unlimited_plans_equal_themselves(folder):
    for panel in read_numbers(folder, 6)["panels"]:
        for curve in panel["curves"]:
            assert max(curve["mean_split"]["p90"]) <= curve["reachable_split"]
            if curve["max_split"] is None:
                assert max(curve["differs_before_limit"]) == 0
                assert curve["mean_split_over_all"] == curve["unlimited_capped_over_all"]
