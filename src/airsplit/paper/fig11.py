"""Figure 11: latency of a round against the split point, all devices cut there. For claim C12."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from airsplit.core import palette
from airsplit.paper.declaration import Data, Figure
from airsplit.paper.rounds import BATCH_SIZE, ITERATIONS, SAMPLES, split_round
from airsplit.paper.sweeps import (
    UNIFORM_PACE,
    Progress,
    Scale,
    band,
    describe_settings,
    over_fleets,
)
from airsplit.planning.round_time import Round
from airsplit.plots import style
from airsplit.system.fleet import Fleet
from airsplit.system.profile import Profile, load_shipped_profile

MODELS = ("alexnet", "vgg16")
DISTANCES_M = (50, 200, 400)
COLORS = (palette.BLUE, palette.GREEN, palette.RED)


def compute(scale: Scale, progress: Progress) -> Data:
    """Compute the latency at each split, for each model and distance."""
    profiles = {model: load_shipped_profile(model) for model in MODELS}
    models = []
    for model, profile in profiles.items():
        progress(f"{model}, {len(profile)} splits")
        curves = [_time_splits(profile, distance_m, scale.fleets) for distance_m in DISTANCES_M]
        models.append({"model": model, "layers": profile.names, "curves": curves})
    settings = describe_settings(
        scale.fleets,
        profiles,
        seconds_per_mac=UNIFORM_PACE,
        samples=SAMPLES,
        batch_size=BATCH_SIZE,
        iterations_per_round=ITERATIONS,
        method="fixed",
    )
    return {"settings": settings, "models": models}


def _time_splits(profile: Profile, distance_m: float, fleets: int) -> dict[str, Any]:
    """Time the rounds of each split at one distance."""

    def time_splits(fleet: Fleet) -> list[Round]:
        return [split_round(profile, fleet, split) for split in range(1, len(profile) + 1)]

    by_fleet = over_fleets(fleets, distance_m, UNIFORM_PACE, time_splits)
    by_split = list(zip(*by_fleet, strict=True))
    return {
        "mean_distance_m": distance_m,
        "total_s": band([[round_.total_s for round_ in rounds] for rounds in by_split]),
        "expected_max_s": band(
            [[round_.expected_max_s for round_ in rounds] for rounds in by_split]
        ),
    }


def draw(data: Data) -> Canvas:
    """Draw one model above the other."""
    figure, axes = style.make_figure(len(data["models"]), 1, 5.0)
    for cell, entry in zip(axes[:, 0], data["models"], strict=True):
        _draw_model(cell, entry)
    axes[0, 0].legend(loc="upper right", title="mean distance", title_fontsize=6.5)
    settings = data["settings"]
    style.add_caption(
        figure,
        "All devices cut at one split, optimal shares; a round is "
        f"{settings['iterations_per_round']} iterations of batch {settings['batch_size']}. "
        f"max E[τ], {style.describe_sample(settings)}. Rings: the best split; at the last split "
        "nothing is averaged.",
    )
    return figure


def _draw_model(axes: Axes, entry: dict[str, Any]) -> None:
    """Draw a curve over splits for each distance, with a ring at the best split."""
    splits = range(1, len(entry["layers"]) + 1)
    for color, curve in zip(COLORS, entry["curves"], strict=True):
        points = {"marker": "o", "markersize": 1.8, "label": f"{curve['mean_distance_m']} m"}
        style.plot_median(axes, splits, curve["total_s"], color, **points)
        # The last split does not compete: nothing is averaged there.
        median = curve["total_s"]["median"]
        best = int(np.argmin(median[:-1]))
        ring: dict[str, Any] = {"marker": "o", "markersize": 5.5, "markerfacecolor": "none"}
        axes.plot([splits[best]], [median[best]], color=color, **ring)
    style.set_log_scale(axes.yaxis)

    ticks = dict(zip(splits, entry["layers"], strict=True))
    font_size = 6.5
    if len(ticks) > 20:
        # No room for all names. An activation sends as much as the layer before it.
        ticks = {split: name for split, name in ticks.items() if not name.startswith("relu")}
        font_size = 5.5
    axes.set_xticks(list(ticks), list(ticks.values()), rotation=90, fontsize=font_size)
    axes.set_xlim(0.4, len(entry["layers"]) + 0.6)
    axes.set_ylabel("latency of a round [s]")
    axes.set_title(style.MODEL_NAMES[entry["model"]], loc="left")


FIGURE = Figure(11, "Latency of a round against the split point", compute, draw)
