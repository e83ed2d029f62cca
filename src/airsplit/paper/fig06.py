"""Figure 6: split point against device speed for several L̂. For claim C6."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.ticker import MultipleLocator

from airsplit.core import palette
from airsplit.core.arrays import Ints
from airsplit.paper.claim_text import format_limit
from airsplit.paper.declaration import Data, Figure
from airsplit.paper.sweeps import (
    BATCH_SIZE,
    DEVICES,
    Progress,
    Scale,
    band,
    describe_settings,
    make_planner,
    over_fleets,
    select,
)
from airsplit.planning.arguments import make_problem
from airsplit.plots import style
from airsplit.system.fleet import Fleet
from airsplit.system.profile import Profile, load_shipped_profile

# All devices of a fleet have one speed. The paper states it as a frequency, at one MAC per cycle.
MACS_PER_SECOND = (1e9, 1.5e9, 2e9, 2.5e9, 3e9, 3.5e9, 4e9, 4.5e9, 5e9)
DISTANCE_M = 300
# Limits of each model. None comes first: the others are compared with it.
LIMITS: dict[str, tuple[int | None, ...]] = {
    "alexnet": (None, 15, 8, 4),
    "vgg16": (None, 17, 10, 6),
}
METHODS = ("paper", "exact")
METHOD_NAMES = {"paper": "paper's algorithm", "exact": "exact"}
COLORS = (palette.INK, palette.RED, palette.GREEN, palette.BLUE)


def compute(scale: Scale, progress: Progress) -> Data:
    """Compute a curve for each model, method and L̂."""
    profiles = {model: load_shipped_profile(model) for model in LIMITS}
    panels: list[dict[str, Any]] = []
    for model, limits in LIMITS.items():
        progress(f"{model}, {len(limits)} limits")
        profile = profiles[model]
        splits = {limit: _plan_splits(profile, limit, scale.fleets) for limit in limits}
        for method in METHODS:
            unlimited = splits[None][method]
            curves = [
                _summarize(profile, limit, splits[limit][method], unlimited) for limit in limits
            ]
            panels.append({"model": model, "method": method, "curves": curves})
    settings = describe_settings(
        scale.fleets,
        profiles,
        batch_size=BATCH_SIZE,
        mean_distance_m=DISTANCE_M,
        methods=METHODS,
    )
    return {"settings": settings, "macs_per_second": MACS_PER_SECOND, "panels": panels}


def _plan_splits(profile: Profile, limit: int | None, fleets: int) -> dict[str, Ints]:
    """Return the splits of each method, as speeds × fleets × devices."""
    plan_fleet = make_planner(profile, METHODS, limit)
    points = [over_fleets(fleets, DISTANCE_M, 1 / speed, plan_fleet) for speed in MACS_PER_SECOND]
    return {
        method: np.array([[plan.splits for plan in row] for row in select(points, method)])
        for method in METHODS
    }


def _summarize(
    profile: Profile, limit: int | None, splits: Ints, unlimited: Ints
) -> dict[str, Any]:
    """Summarize one method's splits under one L̂, as speeds × fleets × devices.

    If L̂ changed nothing before it binds, `mean_split_over_all` would equal
    `unlimited_capped_over_all`. `differs_before_limit` is the fraction of devices that split
    before the limit, but elsewhere than without it.
    """
    # Measured from the deepest split that can be optimal: a device there is at its limit, even if
    # the limit itself is deeper.
    reach = reachable_split(profile, limit)
    differs = (splits < reach) & (splits != unlimited)
    return {
        "max_split": limit,
        "reachable_split": reach,
        "mean_split": band(splits.mean(axis=2)),
        "mean_split_over_all": splits.mean(axis=(1, 2)),
        "unlimited_capped_over_all": np.minimum(unlimited, reach).mean(axis=(1, 2)),
        "differs_before_limit": differs.mean(axis=(1, 2)),
    }


def reachable_split(profile: Profile, limit: int | None) -> int:
    """Return the deepest split within a limit that can be optimal.

    >>> reachable_split(load_shipped_profile("vgg16"), 6)  # layer 6 sends more than layer 5
    5
    """
    # Any fleet will do: splits that another one beats in both work and payload are dropped for all
    # devices alike.
    fleet = Fleet.sample(DEVICES, seed=0)
    return int(make_problem(profile, fleet, max_split=limit).front_rows[-1]) + 1


def draw(data: Data) -> Canvas:
    """Draw models side by side, the paper's algorithm above the exact optimum."""
    figure, axes = style.make_figure(2, 2, 4.6, sharex=True, sharey="col")
    giga_macs_per_second = [speed / 1e9 for speed in data["macs_per_second"]]
    # Panels are ordered by model and then method, so they fill the columns.
    for panel, cell in zip(data["panels"], axes.T.ravel(), strict=True):
        for color, curve in zip(COLORS, panel["curves"], strict=True):
            label = format_limit(curve["max_split"])
            means = curve["mean_split_over_all"]
            capped = curve["unlimited_capped_over_all"]
            cell.plot(giga_macs_per_second, means, color=color, label=label)
            cell.plot(giga_macs_per_second, capped, color=color, **style.DOTTED)
        cell.set_xticks(range(1, 6))
        cell.set_ylim(bottom=0)
        # Layers are whole numbers; automatic ticks need not be.
        cell.yaxis.set_major_locator(MultipleLocator(4))
    for cell in axes[1]:
        cell.set_xlabel("speed 1/a [GMAC/s]")
    for cell, method in zip(axes[:, 0], METHODS, strict=True):
        cell.set_ylabel(f"{METHOD_NAMES[method]}:\nsplit after layer")

    # One legend a column, since limits differ between models; one for the kinds of line.
    for cell, panel in zip(axes[0], data["panels"][:: len(METHODS)], strict=True):
        style.add_legend_above(cell, style.MODEL_NAMES[panel["model"]])
    cut_off = "planned without a limit, then cut off at L̂"
    kinds = [
        Line2D([], [], color=palette.FAINT, label="planned within L̂"),
        Line2D([], [], color=palette.FAINT, label=cut_off, **style.DOTTED),
    ]
    figure.legend(handles=kinds, loc="outside upper center", ncols=2, columnspacing=1)
    settings = data["settings"]
    style.add_caption(
        figure,
        f"All devices of one speed at {settings['mean_distance_m']} m, "
        f"batch {settings['batch_size']}, mean split over {settings['devices']} devices of "
        f"{settings['fleets']} fleets. Where solid and dotted differ, L̂ changes plans before it "
        "binds. No limit: any split that leaves a parameter to be averaged."
        + describe_unreachable_limits(data),
    )
    return figure


def describe_unreachable_limits(data: Data) -> str:
    """Return a sentence for each limit that no plan reaches.

    >>> curve = {"max_split": 6, "reachable_split": 5}
    >>> describe_unreachable_limits({"panels": [{"model": "vgg16", "curves": [curve]}]})
    ' VGG16 with L̂ = 6 stops at 5, where less is sent.'
    """
    # A set, because both methods have the same limits.
    unreachable = {
        (style.MODEL_NAMES[panel["model"]], curve["max_split"], curve["reachable_split"])
        for panel in data["panels"]
        for curve in panel["curves"]
        if curve["max_split"] not in (None, curve["reachable_split"])
    }
    return "".join(
        f" {model} with L̂ = {limit} stops at {reach}, where less is sent."
        for model, limit, reach in sorted(unreachable)
    )


FIGURE = Figure(6, "Split point against device speed for several L̂", compute, draw)
