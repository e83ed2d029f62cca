"""Figure 6: split point against device frequency for several L̂.  Carries C6."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from airsplit.figures import style
from airsplit.figures.declaration import Data, Figure
from airsplit.figures.sweeps import BATCH_SIZE, DEVICES, Progress, Scale, band, over_fleets, picked, planner, settings
from airsplit.fleet import Fleet
from airsplit.planning.problem import problem_of
from airsplit.profiles import Profile, shipped_profile
from airsplit.units import Ints

FREQUENCIES_GHZ = (1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5)
DISTANCE_M = 300
LIMITS: dict[str, tuple[int | None, ...]] = {"alexnet": (None, 15, 8, 4), "vgg16": (None, 17, 10, 6)}
METHODS = ("paper", "exact")
COLOURS = (style.INK, style.RED, style.GREEN, style.BLUE)


def compute(scale: Scale, progress: Progress) -> Data:
    """All devices of a fleet at one frequency, one MAC a cycle as in the paper; a curve for each model, method, L̂."""
    panels: list[dict[str, Any]] = []
    for model in LIMITS:
        progress(f"{model}, {len(LIMITS[model])} limits")
        panels += _panels(model, scale.fleets)
    profiles = {model: shipped_profile(model) for model in LIMITS}
    own = {"batch_size": BATCH_SIZE, "mean_distance_m": DISTANCE_M, "methods": METHODS}
    return {"settings": settings(scale.fleets, profiles, **own), "frequencies_ghz": FREQUENCIES_GHZ, "panels": panels}


def _panels(model: str, fleets: int) -> list[dict[str, Any]]:
    profile = shipped_profile(model)
    splits = {limit: _splits(profile, limit, fleets) for limit in LIMITS[model]}
    return [
        {
            "model": model,
            "method": method,
            "curves": [_curve(profile, limit, splits[limit][method], splits[None][method]) for limit in LIMITS[model]],
        }
        for method in METHODS
    ]


def _splits(profile: Profile, limit: int | None, fleets: int) -> dict[str, Ints]:
    """Frequencies × fleets × devices, of each method."""
    plan = planner(profile, METHODS, limit)
    points = [over_fleets(fleets, DISTANCE_M, 1e-9 / f, plan) for f in FREQUENCIES_GHZ]
    return {m: np.array([[p.splits for p in row] for row in picked(points, m)]) for m in METHODS}


def _curve(profile: Profile, limit: int | None, splits: Ints, free: Ints) -> dict[str, Any]:
    """One L̂.  If it changed nothing until it binds, `mean_split_over_all` would equal `unlimited_capped_over_all`.

    `differs_before_limit` is the share of devices that are short of the limit, yet split elsewhere than without it.
    """
    reach = reachable_split(profile, limit)
    return {
        "max_split": limit,
        "reachable_split": reach,
        "mean_split": band(splits.mean(axis=2)),
        "mean_split_over_all": splits.mean(axis=(1, 2)),
        "unlimited_capped_over_all": np.minimum(free, reach).mean(axis=(1, 2)),
        "differs_before_limit": ((splits < reach) & (splits != free)).mean(axis=(1, 2)),
    }


def reachable_split(profile: Profile, limit: int | None) -> int:
    """The deepest split within a limit that is ever worth taking.

    >>> reachable_split(shipped_profile("vgg16"), 6)  # layer 6 sends more than layer 5
    5
    """
    fleet = Fleet.sample(DEVICES, seed=0)
    return int(problem_of(profile, fleet, max_split=limit).rows[-1]) + 1


def draw(data: Data) -> Canvas:
    """Models side by side, the paper's algorithm above the exact optimum."""
    figure, axes = style.canvas(2, 2, 4.4, sharex=True, sharey="col")
    for panel, cell in zip(data["panels"], axes.T.ravel(), strict=True):
        _draw_panel(cell, data["frequencies_ghz"], panel)
    for cell in axes[1]:
        cell.set_xlabel("device frequency 1/a [GHz]")
    for cell in axes[:, 0]:
        cell.set_ylabel("split after layer")
    given = data["settings"]
    style.caption(
        figure,
        f"All devices of one frequency at {given['mean_distance_m']} m, batch {given['batch_size']}, "
        f"mean split over {given['devices']} devices of {given['fleets']} fleets. Dotted: the plan without a limit, cut off at L̂, "
        "which is what it would be if L̂ changed nothing until it binds. "
        "No limit: the deepest split that leaves a parameter to be averaged.",
    )
    return figure


def _draw_panel(axes: Axes, x: list[float], panel: dict[str, Any]) -> None:
    curves = panel["curves"]
    for colour, width, entry in zip(COLOURS, style.nested(len(curves)), curves, strict=True):
        label = "no limit" if entry["max_split"] is None else f"L̂ = {entry['max_split']}"
        axes.plot(x, entry["mean_split_over_all"], color=colour, linewidth=width, label=label)
        axes.plot(x, entry["unlimited_capped_over_all"], color=colour, linewidth=0.9, linestyle=":")
    axes.set_xticks(range(1, 6))
    axes.set_yticks(sorted({entry["reachable_split"] for entry in curves}))
    title = f"{style.MODEL_NAMES[panel['model']]}, {panel['method']}"
    if panel["method"] == "paper":
        style.legend_above(axes, title)
    else:
        axes.set_title(title)


FIGURE = Figure(6, "Split point against device frequency for several L̂", compute, draw)
