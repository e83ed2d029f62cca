"""Figures 4 and 5: theory of the exact optimum, and rings that are explained if drawn."""

from __future__ import annotations

import numpy as np
import pytest

from paper.tiny_figures import list_legend_labels, read_caption, read_numbers, redraw


@pytest.mark.parametrize("number", [4, 5])
def test_rings_are_explained_only_if_they_are_drawn(folder, number):
    data = read_numbers(folder, number)
    for paper, exact in zip(data["curves"][::2], data["curves"][1::2], strict=True):
        paper["mean_latency_s"] = exact["mean_latency_s"]
        paper["mean_split"] = exact["mean_split"]
    without_rings = redraw(data)
    assert "ring" not in read_caption(without_rings)
    assert "the paper's algorithm" not in list_legend_labels(without_rings)

    median = data["curves"][1]["mean_latency_s"]["median"]
    data["curves"][0]["mean_latency_s"] = {"median": [1.1 * value for value in median]}
    with_rings = redraw(data)
    assert "rings: the paper's algorithm" in read_caption(with_rings)
    assert "the paper's algorithm" in list_legend_labels(with_rings)


@pytest.mark.parametrize("number", [4, 5])
def test_the_exact_latency_is_never_above_the_papers_and_rises_with_distance(folder, number):
    curves = read_numbers(folder, number)["curves"]
    for paper, exact in zip(curves[::2], curves[1::2], strict=True):
        assert (paper["method"], exact["method"]) == ("paper", "exact")
        exact_s = np.array(exact["mean_latency_s"]["median"])
        assert np.all(exact_s <= np.array(paper["mean_latency_s"]["median"]) * (1 + 1e-9))
        assert np.all(np.diff(exact_s) > 0)
        assert np.all(np.array(exact["expected_latency_s"]["median"]) >= exact_s)
        # A device's split depends on τ / κ alone, and τ grows with the distance.
        assert exact["fleets_with_falling_split"] == 0
