"""Figure 13 (ours): E[max] of three methods above the certified lower bound."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure as Canvas

from airsplit.core import palette
from airsplit.paper.claim_text import format_limit
from airsplit.paper.declaration import Data, Figure
from airsplit.paper.sweeps import (
    BATCH_SIZE,
    UNIFORM_PACE,
    Progress,
    Scale,
    band,
    describe_settings,
    make_planner,
    over_fleets,
    select,
)
from airsplit.plots import style
from airsplit.system.profile import load_shipped_profile

# Certified bounds take seconds of planning, so there are fewer points than in figure 12.
DISTANCES_M = (50, 100, 200, 400, 800)
CASES: tuple[tuple[str, int | None], ...] = (
    ("alexnet", 8),
    ("vgg16", 6),
    ("alexnet", None),
    ("vgg16", None),
)
METHODS = {"paper": palette.RED, "exact": palette.BLUE, "expected-max": palette.INK}
METHOD_NAMES = {"paper": "the paper's algorithm", "exact": "exact", "expected-max": "expected-max"}


def compute(scale: Scale, progress: Progress) -> Data:
    """Compute E[max] of each method for each model and L̂."""
    panels = [
        _compare_methods(model, limit, scale.certified_fleets, progress) for model, limit in CASES
    ]
    profiles = {model: load_shipped_profile(model) for model in dict(CASES)}
    settings = describe_settings(
        scale.certified_fleets,
        profiles,
        batch_size=BATCH_SIZE,
        seconds_per_mac=UNIFORM_PACE,
        methods=tuple(METHODS),
        certify=True,
    )
    return {"settings": settings, "mean_distances_m": DISTANCES_M, "panels": panels}


def _compare_methods(
    model: str, limit: int | None, fleets: int, progress: Progress
) -> dict[str, Any]:
    """Compare E[max] of the methods with a lower bound that holds for all of them."""
    plan_fleet = make_planner(load_shipped_profile(model), METHODS, limit)
    points = []
    for distance_m in DISTANCES_M:
        progress(f"{model}, {format_limit(limit)}, {distance_m} m")
        points.append(over_fleets(fleets, distance_m, UNIFORM_PACE, plan_fleet))
    # The other methods minimize max E[τ], and their bound is on that.
    bound = np.array([[p.lower_bound_s for p in row] for row in select(points, "expected-max")])
    latency = {
        method: np.array([[p.expected_latency_s for p in row] for row in select(points, method)])
        for method in METHODS
    }
    above = {method: values / bound - 1 for method, values in latency.items()}
    return {
        "model": model,
        "max_split": limit,
        "lower_bound_s": band(bound),
        "expected_latency_s": {method: band(values) for method, values in latency.items()},
        "above_bound": {method: band(values) for method, values in above.items()},
        "above_bound_worst": {method: values.max(axis=1) for method, values in above.items()},
    }


def draw(data: Data) -> Canvas:
    """Draw a panel for each model and L̂."""
    figure, axes = style.make_figure(2, 2, 4.0, sharex=True, sharey="row")
    x = data["mean_distances_m"]
    # Methods often coincide, so they are drawn from wide to narrow.
    widths = style.nested_line_widths(len(METHODS))
    for cell, panel in zip(axes.ravel(), data["panels"], strict=True):
        for (method, color), width in zip(METHODS.items(), widths, strict=True):
            ratios = panel["above_bound"][method]
            percent = {key: [100 * value for value in values] for key, values in ratios.items()}
            name = METHOD_NAMES[method]
            style.plot_median(cell, x, percent, color, linewidth=width, label=name)
        limit = format_limit(panel["max_split"])
        cell.set_title(f"{style.MODEL_NAMES[panel['model']]}, {limit}")
        style.set_log_scale(cell.xaxis, x)
    for cell in axes[1]:
        cell.set_xlabel("mean distance [m]")
    # supylabel has a larger size of its own, which axes.labelsize does not change.
    quantity = "E[max τ], the mean time until the last device is done,\nabove its lower bound [%]"
    figure.supylabel(quantity, fontsize=style.RC_PARAMS["axes.labelsize"])
    style.add_shared_legend(figure, axes[0, 0], len(METHODS))
    settings = data["settings"]
    style.add_caption(
        figure,
        "Zero is the certified lower bound on E[max τ]: no plan with fixed shares is below it. "
        f"Batch {settings['batch_size']}, {style.describe_sample(settings)}.",
    )
    return figure


FIGURE = Figure(13, "E[max] of three methods above the certified lower bound", compute, draw)
