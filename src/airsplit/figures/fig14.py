"""Figure 14 (ours): latency against accuracy as the limit on the split is swept: the guide to L̂ that the theorem is not.

Accuracy depends on the splits only through the deepest one, below which nothing is averaged: one training for each serves all distances.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter

from airsplit.figures import style
from airsplit.figures.accuracies import PARTITION_TITLES, PARTITIONS, scenario, training_settings, with_each_partition
from airsplit.figures.declaration import Data, Figure
from airsplit.figures.sweeps import Progress, Scale
from airsplit.models.loading import profile_for
from airsplit.planning.methods import plan

DEVICES = 20
LIMITS = (4, 8, 15)
DISTANCES_M = (400.0, 800.0)
COLOURS = {"iid": style.BLUE, "non-iid": style.RED}


def compute(scale: Scale, progress: Progress) -> Data:  # noqa: ARG001 - one shape for all
    """For each distance and limit the exact plan's latency, and the accuracy of a training with its deepest split."""
    points = [_planned(distance, limit) for distance in DISTANCES_M for limit in LIMITS]
    found = with_each_partition(sorted({point["deepest_split"] for point in points}), DEVICES, progress)
    for point in points:
        for part in PARTITIONS:
            trials = found[part, point["deepest_split"]]
            point[part] = {"test_accuracy": trials.last("test_accuracy"), "own_accuracy": trials.last("own_accuracy")}
    return {"settings": training_settings() | {"devices": DEVICES, "max_splits": LIMITS}, "points": points}


def _planned(distance_m: float, limit: int) -> dict[str, Any]:
    given = scenario(**{"fleet.devices": DEVICES, "fleet.mean_distance_m": distance_m, "plan.max_split": limit})
    made = plan(profile_for(given), given.make_fleet(), **given.plan_arguments())
    latency = made.expected_latency_s * given.training.iterations_per_round
    return {"mean_distance_m": distance_m, "max_split": limit, "deepest_split": int(made.splits.max()), "round_latency_s": latency}


def draw(data: Data) -> Canvas:
    """A panel for each distance."""
    figure, axes = style.canvas(1, len(DISTANCES_M), 2.4, sharey=True)
    for cell, distance in zip(axes[0], DISTANCES_M, strict=True):
        points = [point for point in data["points"] if point["mean_distance_m"] == distance]
        for part in PARTITIONS:
            _draw_curve(cell, points, part)
        cell.set_title(f"mean distance {distance:g} m", loc="left")
        cell.set_xlabel("a round, on average [s]")
        cell.margins(x=0.12)
        cell.yaxis.set_major_formatter(FuncFormatter(style.plain))
    axes[0, 0].set_ylabel("test accuracy at the end [%]")
    axes[0, 0].legend(loc="upper left")
    given = data["settings"]
    style.caption(
        figure,
        f"SFL with exact plans, L̂ beside each point: a higher limit makes rounds shorter and averages less. {given['devices']} "
        f"devices, alexnet32 at width {given['arguments']['width']} on {given['dataset']}, {given['rounds']} rounds of "
        f"{given['iterations_per_round']} iterations, batch {given['batch_size']}. Means and ranges of {len(given['seeds'])} seeds.",
    )
    return figure


def _draw_curve(axes: Axes, points: list[dict[str, Any]], part: str) -> None:
    x = [point["round_latency_s"] for point in points]
    percent = 100 * np.array([point[part]["test_accuracy"] for point in points])
    mean = percent.mean(axis=1)
    reach = [mean - percent.min(axis=1), percent.max(axis=1) - mean]
    axes.errorbar(x, mean, yerr=reach, color=COLOURS[part], marker="o", elinewidth=0.7, label=PARTITION_TITLES[part])
    for point, at, height in zip(points, x, mean, strict=True):
        axes.annotate(f"{point['max_split']}", (at, height), xytext=(3, 3), textcoords="offset points", fontsize=6)


FIGURE = Figure(14, "Latency against accuracy as the limit on the split is swept", compute, draw, scales=("smoke",))
