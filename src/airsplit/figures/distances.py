"""What figures 4 and 5 share: split and latency against the mean distance, for several paces.  They carry C3, C4, C5."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D

from airsplit.figures import style
from airsplit.figures.declaration import Data, Figure
from airsplit.figures.sweeps import (
    BATCH_SIZE,
    UNIFORM_PACE,
    Pace,
    Progress,
    Scale,
    band,
    over_fleets,
    picked,
    planner,
    settings,
)
from airsplit.planning.plans import Plan
from airsplit.profiles import shipped_profile
from airsplit.units import Floats

DISTANCES_M = (10, 25, 50, 100, 150, 200, 300, 400, 600, 800)
PACES: tuple[Pace, ...] = (0.2e-9, 0.5e-9, 1e-9, UNIFORM_PACE)
METHODS = ("paper", "exact")
COLOURS = (style.BLUE, style.GREEN, style.RED, style.INK)


def distance_figure(number: int, model: str, max_split: int) -> Figure:
    """Split point and latency of one model against the mean distance."""
    title = f"Split point and latency against distance, {style.MODEL_NAMES[model]}, L̂ = {max_split}"
    return Figure(number, title, partial(compute, model, max_split), draw)


def compute(model: str, max_split: int, scale: Scale, progress: Progress) -> Data:
    """One curve for each pace and method."""
    profile = shipped_profile(model)
    plan = planner(profile, METHODS, max_split)
    curves = []
    for pace in PACES:
        progress(f"{model}, a = {style.pace_label(pace)}")
        points = [over_fleets(scale.fleets, d, pace, plan) for d in DISTANCES_M]
        a = np.array(over_fleets(scale.fleets, DISTANCES_M[0], pace, lambda fleet: fleet.seconds_per_mac))
        curves += [{"seconds_per_mac": pace, "method": m} | summary(picked(points, m), a) for m in METHODS]
    own = {"model": model, "max_split": max_split, "batch_size": BATCH_SIZE, "methods": METHODS}
    return {
        "settings": settings(scale.fleets, [profile], **own),
        "names": profile.names[:max_split],
        "mean_distances_m": DISTANCES_M,
        "curves": curves,
    }


def summary(points: list[list[Plan]], seconds_per_mac: Floats) -> dict[str, Any]:
    """What is said of one method's plans at each distance; a fleet's mean split is that over its devices."""
    splits = np.array([[plan.splits for plan in fleets] for fleets in points])
    slow_first = np.take_along_axis(splits, np.argsort(-seconds_per_mac, axis=1)[None], axis=2)
    quarter = splits.shape[2] // 4
    mean_split = splits.mean(axis=2)
    return {
        "mean_split": band(mean_split),
        "mean_split_over_all": mean_split.mean(axis=1),
        "slowest_quarter_mean_split_over_all": slow_first[:, :, :quarter].mean(axis=(1, 2)),
        "fastest_quarter_mean_split_over_all": slow_first[:, :, -quarter:].mean(axis=(1, 2)),
        "fleets_with_falling_split": int((np.diff(mean_split, axis=0) < 0).any(axis=0).sum()),
        "mean_latency_s": band([[plan.mean_latency_s for plan in fleets] for fleets in points]),
        "expected_latency_s": band([[plan.expected_latency_s for plan in fleets] for fleets in points]),
    }


def draw(data: Data) -> Canvas:
    """The split above, the latency below."""
    figure, axes = style.canvas(2, 1, 4.4, sharex=True)
    _draw_splits(axes[0, 0], data)
    _draw_latencies(axes[1, 0], data)
    style.log_axis(axes[1, 0], data["mean_distances_m"], label="mean distance [m]")
    given = data["settings"]
    style.caption(
        figure,
        f"{style.MODEL_NAMES[given['model']]}, L̂ = {given['max_split']}, batch {given['batch_size']}, {style.sampled(given)}. "
        "Lines: the exact optimum; circles: the paper's algorithm. Split: mean over a fleet's devices. "
        "Solid: max E[τ], what both minimise; dotted: E[max τ] of the exact plans.",
    )
    return figure


def _coloured(data: Data, method: str) -> list[tuple[str, dict[str, Any]]]:
    return list(zip(COLOURS, [c for c in data["curves"] if c["method"] == method], strict=True))


def _draw_splits(axes: Axes, data: Data) -> None:
    x = data["mean_distances_m"]
    for colour, entry in _coloured(data, "exact"):
        style.curve(axes, x, entry["mean_split"], colour)
    for colour, entry in _coloured(data, "paper"):
        style.ring(axes, x, entry["mean_split"]["median"], colour)
    axes.set_yticks(range(1, len(data["names"]) + 1), [f"{name} {i}" for i, name in enumerate(data["names"], start=1)])
    axes.set_ylim(0.6, len(data["names"]) + 0.4)
    axes.set_ylabel("split after layer")


def _draw_latencies(axes: Axes, data: Data) -> None:
    x = data["mean_distances_m"]
    for colour, entry in _coloured(data, "exact"):
        style.curve(axes, x, entry["mean_latency_s"], colour)
        axes.plot(x, entry["expected_latency_s"]["median"], color=colour, linestyle=":", linewidth=0.9)
    for colour, entry in _coloured(data, "paper"):
        style.ring(axes, x, entry["mean_latency_s"]["median"], colour)
    axes.set_yscale("log")
    axes.set_ylabel(f"latency of an iteration,\nbatch {data['settings']['batch_size']} [s]")
    handles = [Line2D([], [], color=c) for c in COLOURS]
    labels = [f"a = {style.pace_label(e['seconds_per_mac'])}" for _, e in _coloured(data, "exact")]
    axes.legend(handles, labels, loc="upper left")
