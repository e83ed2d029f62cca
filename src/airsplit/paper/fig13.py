"""Figure 13 (ours): E[max] of three methods above the certified lower bound."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure as Canvas

from airsplit.core import palette
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
    """Compute, for each model and L̂, E[max] of each method over the best bound of any of them.

    That bound holds for all methods.
    """
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
    plan_fleet = make_planner(load_shipped_profile(model), METHODS, limit)
    points = []
    for distance in DISTANCES_M:
        progress(f"{model}, L̂ = {limit or 'none'}, {distance} m")
        points.append(over_fleets(fleets, distance, UNIFORM_PACE, plan_fleet))
    bound = np.array([[p.lower_bound_s for p in row] for row in select(points, "expected-max")])
    expected = {
        m: np.array([[p.expected_latency_s for p in row] for row in select(points, m)])
        for m in METHODS
    }
    return {
        "model": model,
        "max_split": limit,
        "lower_bound_s": band(bound),
        "expected_latency_s": {m: band(values) for m, values in expected.items()},
        "above_bound": {m: band(values / bound - 1) for m, values in expected.items()},
        "above_bound_worst": {
            m: (values / bound - 1).max(axis=1) for m, values in expected.items()
        },
    }


def draw(data: Data) -> Canvas:
    """Draw a panel for each model and L̂."""
    figure, axes = style.make_figure(2, 2, 4.0, sharex=True, sharey="row")
    for cell, panel in zip(axes.ravel(), data["panels"], strict=True):
        for (method, color), width in zip(
            METHODS.items(), style.nested_line_widths(len(METHODS)), strict=True
        ):
            percent = {
                key: [100 * v for v in values]
                for key, values in panel["above_bound"][method].items()
            }
            style.plot_median(
                cell,
                data["mean_distances_m"],
                percent,
                color,
                linewidth=width,
                label=METHOD_NAMES[method],
            )
        limit = "no limit"
        if panel["max_split"] is not None:
            limit = f"L̂ = {panel['max_split']}"
        cell.set_title(f"{style.MODEL_NAMES[panel['model']]}, {limit}")
        style.set_log_scale(cell.xaxis, data["mean_distances_m"])
    for cell in axes[1]:
        cell.set_xlabel("mean distance [m]")
    quantity = "E[max τ], the mean time until the last device is done,\nabove its lower bound [%]"
    figure.supylabel(quantity, fontsize=style.RC_PARAMS["axes.labelsize"])
    style.add_shared_legend(figure, axes[0, 0], len(METHODS))
    settings = data["settings"]
    note = "Zero is the certified lower bound on E[max τ]: no plan with fixed shares is below it."
    style.add_caption(
        figure, f"{note} Batch {settings['batch_size']}, {style.describe_sample(settings)}."
    )
    return figure


FIGURE = Figure(13, "E[max] of three methods above the certified lower bound", compute, draw)
