"""Figure 12 (ours): the paper's algorithm against the exact optimum.

Its alternation of splits and shares need not converge; the figure also shows how often it cycles.
"""

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
from airsplit.system.profile import Profile, load_shipped_profile

DISTANCES_M = (50, 100, 150, 200, 300, 400, 600, 800)
TICKS_M = (50, 100, 200, 400, 800)
# The paper's limit comes first. The deeper splits may go, the more often the alternation cycles.
LIMITS: dict[str, tuple[int | None, ...]] = {
    "alexnet": (8, 12, 15, None),
    "vgg16": (6, 10, 17, None),
}
COLORS = (palette.BLUE, palette.GREEN, palette.RED, palette.INK)


def compute(scale: Scale, progress: Progress) -> Data:
    """Compute, for each model and L̂, how far the alternation is from the optimum."""
    profiles = {model: load_shipped_profile(model) for model in LIMITS}
    models = []
    for model, profile in profiles.items():
        progress(f"{model}, {len(DISTANCES_M)} distances")
        curves = [_compare_with_optimum(profile, limit, scale.fleets) for limit in LIMITS[model]]
        models.append({"model": model, "curves": curves})
    settings = describe_settings(
        scale.fleets,
        profiles,
        batch_size=BATCH_SIZE,
        seconds_per_mac=UNIFORM_PACE,
        methods=("paper", "exact"),
    )
    return {"settings": settings, "mean_distances_m": DISTANCES_M, "models": models}


def _compare_with_optimum(profile: Profile, limit: int | None, fleets: int) -> dict[str, Any]:
    """Compare the best and the last plan that the alternation visits, and count its cycles."""
    plan_fleet = make_planner(profile, ("paper",), limit)
    points = [over_fleets(fleets, d, UNIFORM_PACE, plan_fleet) for d in DISTANCES_M]
    plans = select(points, "paper")
    # The lower bound on max E[τ] is the exact optimum, so no second plan is needed.
    best = np.array([[p.objective_s / p.lower_bound_s for p in row] for row in plans])
    last = np.array([[p.history[-1] / p.lower_bound_s for p in row] for row in plans])
    return {
        "max_split": limit,
        "best_visited_over_exact": band(best),
        "best_visited_over_exact_worst": best.max(axis=1),
        "last_visited_over_exact": band(last),
        "last_visited_over_exact_worst": last.max(axis=1),
        "share_of_fleets_that_cycle": [
            np.mean([p.status.startswith("cycles") for p in row]) for row in plans
        ],
    }


def draw(data: Data) -> Canvas:
    """Draw the ratio above and the fraction of fleets that cycle below; models side by side."""
    figure, axes = style.make_figure(2, len(data["models"]), 4.0, sharex=True, sharey="row")
    x = data["mean_distances_m"]
    for (above, below), entry in zip(axes.T, data["models"], strict=True):
        widths = style.nested_line_widths(len(COLORS))
        for color, width, curve in zip(COLORS, widths, entry["curves"], strict=True):
            ratio = curve["best_visited_over_exact"]
            label = format_limit(curve["max_split"])
            style.plot_median(above, x, ratio, color, linewidth=width, label=label)
            percent = [100 * share for share in curve["share_of_fleets_that_cycle"]]
            below.plot(x, percent, color=color, linewidth=width)
        style.add_legend_above(above, style.MODEL_NAMES[entry["model"]])
        style.set_log_scale(below.xaxis, TICKS_M)
        below.set_xlabel("mean distance [m]")
    axes[0, 0].set_ylabel("max E[τ], paper ÷ exact")
    axes[1, 0].set_ylabel("fleets that cycle [%]")
    settings = data["settings"]
    style.add_caption(
        figure,
        "The best plan that the paper's alternation visits, over the optimum. "
        f"Batch {settings['batch_size']}, {style.describe_sample(settings)}.",
    )
    return figure


FIGURE = Figure(12, "The paper's algorithm against the exact optimum", compute, draw)
