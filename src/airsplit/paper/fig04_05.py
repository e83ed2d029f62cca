"""Figures 4 and 5: split point and expected latency against the mean distance, for different paces.

Figure 4 is AlexNet with L̂ = 8, figure 5 is VGG16 with L̂ = 6. For claims C3, C4 and C5.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D

from airsplit.core import palette
from airsplit.core.arrays import Floats
from airsplit.paper.claim_text import format_limit, is_mixed
from airsplit.paper.declaration import Data, Figure
from airsplit.paper.sweeps import (
    BATCH_SIZE,
    UNIFORM_PACE,
    Pace,
    Progress,
    Scale,
    band,
    describe_settings,
    make_planner,
    over_fleets,
    select,
)
from airsplit.planning.plan import Plan
from airsplit.plots import style
from airsplit.system.profile import load_shipped_profile

DISTANCES_M = (10, 25, 50, 100, 150, 200, 300, 400, 600, 800)
# From fast to slow: claims compare a pace with the next. The mixed fleets come last.
PACES: tuple[Pace, ...] = (0.2e-9, 0.5e-9, 1e-9, UNIFORM_PACE)
# Not all distances: the labels would overlap on a logarithmic axis.
TICKS_M = (10, 25, 50, 100, 200, 400, 800)
METHODS = ("paper", "exact")
COLORS = (palette.BLUE, palette.GREEN, palette.RED, palette.INK)


def distance_figure(number: int, model: str, max_split: int) -> Figure:
    """Declare the figure of one model."""
    name = style.MODEL_NAMES[model]
    title = f"Split point and latency against distance, {name}, {format_limit(max_split)}"
    return Figure(number, title, partial(compute, model, max_split), draw)


def compute(model: str, max_split: int, scale: Scale, progress: Progress) -> Data:
    """Compute a curve for each pace and method."""
    profile = load_shipped_profile(model)
    plan_fleet = make_planner(profile, METHODS, max_split)
    curves = []
    for pace in PACES:
        progress(f"{model}, a = {style.format_pace(pace)}")
        points = [over_fleets(scale.fleets, d, pace, plan_fleet) for d in DISTANCES_M]
        # Each column of a fleet is drawn by itself, so the paces are the same at all distances.
        paces = over_fleets(scale.fleets, DISTANCES_M[0], pace, lambda fleet: fleet.seconds_per_mac)
        curves += [
            {"seconds_per_mac": pace, "method": method}
            | summarize(select(points, method), np.array(paces))
            for method in METHODS
        ]
    settings = describe_settings(
        scale.fleets,
        {model: profile},
        model=model,
        max_split=max_split,
        batch_size=BATCH_SIZE,
        methods=METHODS,
    )
    return {
        "settings": settings,
        "names": profile.names[:max_split],
        "mean_distances_m": DISTANCES_M,
        "curves": curves,
    }


def summarize(points: list[list[Plan]], seconds_per_mac: Floats) -> dict[str, Any]:
    """Summarize one method's plans at each distance.

    A fleet's split is the mean over its devices.

    Args:
        points: Plans, as distances × fleets.
        seconds_per_mac: Paces, as fleets × devices.
    """
    # Distances × fleets × devices.
    splits = np.array([[plan.splits for plan in fleets] for fleets in points])
    slow_first = np.take_along_axis(splits, np.argsort(-seconds_per_mac, axis=1)[None], axis=2)
    quarter = splits.shape[2] // 4
    mean_split = splits.mean(axis=2)
    falls = np.diff(mean_split, axis=0) < 0
    return {
        "mean_split": band(mean_split),
        # Splits are bounded, so unlike latencies they have a mean over fleets.
        "mean_split_over_all": mean_split.mean(axis=1),
        "slowest_quarter_mean_split_over_all": slow_first[:, :, :quarter].mean(axis=(1, 2)),
        "fastest_quarter_mean_split_over_all": slow_first[:, :, -quarter:].mean(axis=(1, 2)),
        "fleets_with_falling_split": int(falls.any(axis=0).sum()),
        "mean_latency_s": band([[plan.mean_latency_s for plan in fleets] for fleets in points]),
        "expected_latency_s": band(
            [[plan.expected_latency_s for plan in fleets] for fleets in points]
        ),
    }


def draw(data: Data) -> Canvas:
    """Draw the split above and the latency below."""
    figure, axes = style.make_figure(2, 1, 4.4, sharex=True)
    above, below = axes[:, 0]
    # Splits are whole numbers, so curves coincide; their widths keep them apart.
    has_rings = _draw_curves(above, data, "mean_split", style.nested_line_widths(len(COLORS)))
    count = len(data["names"])
    layers = [f"{name}  {split}" for split, name in enumerate(data["names"], start=1)]
    above.set_yticks(range(1, count + 1), layers)
    above.set_ylim(0.6, count + 0.4)
    above.set_ylabel("split after layer")

    # Not `or`, which would skip the drawing.
    has_rings |= _draw_curves(below, data, "mean_latency_s", [1.3] * len(COLORS))
    for color, entry in _curves_with_colors(data, "exact"):
        below.plot(
            data["mean_distances_m"],
            entry["expected_latency_s"]["median"],
            color=color,
            **style.DOTTED,
        )
    style.set_log_scale(below.yaxis)
    style.set_log_scale(below.xaxis, TICKS_M)
    below.set_xlabel("mean distance [m]")
    settings = data["settings"]
    below.set_ylabel(f"latency of an iteration,\nbatch {settings['batch_size']} [s]")
    _add_legends(figure, below, data, has_rings=has_rings)

    if has_rings:
        paper = "rings: the paper's algorithm, where its median differs by more than 0.1 %"
    else:
        paper = "the paper's algorithm has the same medians within 0.1 %"
    style.add_caption(
        figure,
        f"{style.MODEL_NAMES[settings['model']]}, L̂ = {settings['max_split']}, batch "
        f"{settings['batch_size']}, {style.describe_sample(settings)}. "
        f"Lines: plans that minimize max E[τ] (exact); {paper}. Dotted: the same plans. "
        "Bands: uniform a only. Split: mean over a fleet's devices.",
    )
    return figure


def _curves_with_colors(data: Data, method: str) -> list[tuple[str, dict[str, Any]]]:
    curves = [curve for curve in data["curves"] if curve["method"] == method]
    return list(zip(COLORS, curves, strict=True))


def _draw_curves(axes: Axes, data: Data, key: str, widths: Sequence[float]) -> bool:
    """Draw the exact optimum as lines, and rings where the paper's algorithm differs.

    Only mixed fleets get a band: four bands would hide the curves. Return whether there is a ring.
    """
    x = data["mean_distances_m"]
    has_rings = False
    pairs = zip(
        _curves_with_colors(data, "exact"), _curves_with_colors(data, "paper"), widths, strict=True
    )
    for (color, exact), (_, paper), width in pairs:
        if is_mixed(exact):
            style.plot_median(axes, x, exact[key], color, linewidth=width)
        else:
            axes.plot(x, exact[key]["median"], color=color, linewidth=width)
        has_rings |= style.mark_differences(
            axes, x, paper[key]["median"], exact[key]["median"], color
        )
    return has_rings


def _add_legends(figure: Canvas, below: Axes, data: Data, *, has_rings: bool) -> None:
    """Explain colors above the panels, and kinds of line in the lower panel."""
    paces = [
        Line2D([], [], color=color, label=f"a = {style.format_pace(entry['seconds_per_mac'])}")
        for color, entry in _curves_with_colors(data, "exact")
    ]
    figure.legend(handles=paces, loc="outside upper center", ncols=2, columnspacing=2)
    # Lines without points, in gray: a kind of line means the same in every color.
    kinds = [
        Line2D([], [], color=palette.FAINT, label="largest mean, max E[τ]"),
        Line2D([], [], color=palette.FAINT, label="mean of the largest, E[max τ]", **style.DOTTED),
    ]
    if has_rings:
        kinds.append(
            Line2D([], [], color=palette.FAINT, label="the paper's algorithm", **style.RING)
        )
    below.legend(handles=kinds, loc="upper left")


FIGURE_4 = distance_figure(4, "alexnet", max_split=8)
FIGURE_5 = distance_figure(5, "vgg16", max_split=6)
