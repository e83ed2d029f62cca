"""Figure 6: split point against device speed for several L̂.  Carries C6."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.ticker import MultipleLocator

from airsplit.core import palette
from airsplit.core.arrays import Ints
from airsplit.paper.declaration import Data, Figure
from airsplit.paper.sweeps import (
    BATCH_SIZE,
    DEVICES,
    Progress,
    Scale,
    band,
    over_fleets,
    picked,
    planner,
    settings,
)
from airsplit.planning.arguments import make_problem
from airsplit.plots import style
from airsplit.system.fleet import Fleet
from airsplit.system.profile import Profile, load_shipped_profile

MACS_PER_SECOND = (1e9, 1.5e9, 2e9, 2.5e9, 3e9, 3.5e9, 4e9, 4.5e9, 5e9)
DISTANCE_M = 300
LIMITS: dict[str, tuple[int | None, ...]] = {
    "alexnet": (None, 15, 8, 4),
    "vgg16": (None, 17, 10, 6),
}
METHODS = ("paper", "exact")
METHOD_NAMES = {"paper": "paper's algorithm", "exact": "exact"}
COLORS = (palette.INK, palette.RED, palette.GREEN, palette.BLUE)


def compute(scale: Scale, progress: Progress) -> Data:
    """All devices of a fleet at one speed; a curve for each model, method and L̂.

    The paper gives the speed as a frequency, at one MAC a cycle.
    """
    panels: list[dict[str, Any]] = []
    for model in LIMITS:
        progress(f"{model}, {len(LIMITS[model])} limits")
        panels += _panels(model, scale.fleets)
    profiles = {model: load_shipped_profile(model) for model in LIMITS}
    own = {"batch_size": BATCH_SIZE, "mean_distance_m": DISTANCE_M, "methods": METHODS}
    return {
        "settings": settings(scale.fleets, profiles, **own),
        "macs_per_second": MACS_PER_SECOND,
        "panels": panels,
    }


def _panels(model: str, fleets: int) -> list[dict[str, Any]]:
    profile = load_shipped_profile(model)
    splits = {limit: _splits(profile, limit, fleets) for limit in LIMITS[model]}
    return [
        {
            "model": model,
            "method": method,
            "curves": [
                _curve(profile, limit, splits[limit][method], splits[None][method])
                for limit in LIMITS[model]
            ],
        }
        for method in METHODS
    ]


def _splits(profile: Profile, limit: int | None, fleets: int) -> dict[str, Ints]:
    """Speeds × fleets × devices, of each method."""
    plan = planner(profile, METHODS, limit)
    points = [over_fleets(fleets, DISTANCE_M, 1 / speed, plan) for speed in MACS_PER_SECOND]
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

    >>> reachable_split(load_shipped_profile("vgg16"), 6)  # layer 6 sends more than layer 5
    5
    """
    fleet = Fleet.sample(DEVICES, seed=0)
    return int(make_problem(profile, fleet, max_split=limit).front_rows[-1]) + 1


def draw(data: Data) -> Canvas:
    """Models side by side, the paper's algorithm above the exact optimum."""
    figure, axes = style.make_figure(2, 2, 4.6, sharex=True, sharey="col")
    billions = [speed / 1e9 for speed in data["macs_per_second"]]
    for panel, cell in zip(data["panels"], axes.T.ravel(), strict=True):
        _draw_panel(cell, billions, panel)
    for cell in axes[1]:
        cell.set_xlabel("speed 1/a [GMAC/s]")
    for cell, method in zip(axes[:, 0], METHODS, strict=True):
        cell.set_ylabel(f"{METHOD_NAMES[method]}:\nsplit after layer")
    for cell, panel in zip(axes[0], data["panels"][:: len(METHODS)], strict=True):
        style.add_legend_above(cell, style.MODEL_NAMES[panel["model"]])
    kinds = [
        Line2D([], [], color=palette.FAINT, label="planned within L̂"),
        Line2D(
            [],
            [],
            color=palette.FAINT,
            label="planned without a limit, then cut off at L̂",
            **style.DOTTED,
        ),
    ]
    figure.legend(handles=kinds, loc="outside upper center", ncols=2, columnspacing=1)
    given = data["settings"]
    style.add_caption(
        figure,
        f"All devices of one speed at {given['mean_distance_m']} m, batch {given['batch_size']}, "
        f"mean split over {given['devices']} devices of {given['fleets']} fleets. Where solid and dotted differ, L̂ changes plans before "
        f"it binds. No limit: any split that leaves a parameter to be averaged.{_short_of_limit(data)}",
    )
    return figure


def _short_of_limit(data: Data) -> str:
    """Name the limits that no plan ever reaches."""
    found = {
        (style.MODEL_NAMES[panel["model"]], curve["max_split"], curve["reachable_split"])
        for panel in data["panels"]
        for curve in panel["curves"]
        if curve["max_split"] not in (None, curve["reachable_split"])
    }
    return "".join(
        f" {model} with L̂ = {limit} stops at {reach}, where less is sent."
        for model, limit, reach in sorted(found)
    )


def _draw_panel(axes: Axes, x: list[float], panel: dict[str, Any]) -> None:
    curves = panel["curves"]
    for color, entry in zip(COLORS, curves, strict=True):
        label = "no limit" if entry["max_split"] is None else f"L̂ = {entry['max_split']}"
        axes.plot(x, entry["mean_split_over_all"], color=color, label=label)
        axes.plot(x, entry["unlimited_capped_over_all"], color=color, **style.DOTTED)
    axes.set_xticks(range(1, 6))
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_locator(MultipleLocator(4))


FIGURE = Figure(6, "Split point against device speed for several L̂", compute, draw)
