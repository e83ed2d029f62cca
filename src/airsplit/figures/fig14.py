"""Figure 14 (ours): latency against accuracy as the limit on the split is swept: the guide to L̂ that the theorem is not."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter

from airsplit.figures import style
from airsplit.figures.accuracies import PARTITIONS, scenario, trained, training_settings
from airsplit.figures.declaration import Data, Figure
from airsplit.figures.sweeps import Progress, Scale
from airsplit.trials import Trials

DEVICES = 20
LIMITS = (4, 8, 15)
DISTANCE_M = 400.0
COLOURS = {"iid": style.BLUE, "non-iid": style.RED}
TITLES = {"iid": "IID", "non-iid": "non-IID"}


def compute(scale: Scale, progress: Progress) -> Data:  # noqa: ARG001 - one shape for all
    """SFL with the exact plan for each limit, with both partitions."""
    keys = [(part, limit) for part in PARTITIONS for limit in LIMITS]
    given: dict[str, Any] = {"fleet.devices": DEVICES, "fleet.mean_distance_m": DISTANCE_M}
    scenarios = [scenario(**PARTITIONS[part], **given, **{"plan.max_split": limit}) for part, limit in keys]
    found = dict(zip(keys, trained(scenarios, progress), strict=True))
    curves = [{"partition": part, "points": [_point(limit, found[part, limit]) for limit in LIMITS]} for part in PARTITIONS]
    return {"settings": training_settings(scenarios[0]) | {"devices": DEVICES, "max_splits": LIMITS}, "curves": curves}


def _point(limit: int, trials: Trials) -> dict[str, Any]:
    return {
        "max_split": limit,
        "round_latency_s": [np.mean([record.latency_s for record in run]) for run in trials.runs],
        "test_accuracy": trials.last("test_accuracy"),
        "own_accuracy": trials.last("own_accuracy"),
    }


def draw(data: Data) -> Canvas:
    """Accuracy on the common test set to the left, on each device's own classes to the right."""
    figure, axes = style.canvas(1, 2, 2.4, sharey=True)
    for cell, field, title in zip(axes[0], ("test_accuracy", "own_accuracy"), ("common test set", "own classes"), strict=True):
        for each in data["curves"]:
            points = each["points"]
            x = [np.mean(point["round_latency_s"]) for point in points]
            y = [100 * np.mean(point[field]) for point in points]
            reach = [[100 * abs(np.mean(p[field]) - end(p[field])) for p in points] for end in (np.min, np.max)]
            cell.errorbar(x, y, yerr=reach, color=COLOURS[each["partition"]], marker="o", elinewidth=0.7, label=TITLES[each["partition"]])
            for point, at, height in zip(points, x, y, strict=True):
                cell.annotate(f"{point['max_split']}", (at, height), xytext=(3, 3), textcoords="offset points", fontsize=6)
        cell.set_title(title, loc="left")
        cell.set_xlabel("a round [s]")
        cell.yaxis.set_major_formatter(FuncFormatter(style.plain))
    axes[0, 0].set_ylabel("accuracy at the end [%]")
    axes[0, 0].legend(loc="lower right")
    given = data["settings"]
    style.caption(
        figure,
        f"SFL with exact plans, L̂ beside each point, {given['devices']} devices at {given['fleet']['mean_distance_m']:g} m; alexnet32 at "
        f"width {given['arguments']['width']} on {given['dataset']}, {given['rounds']} rounds of {given['iterations_per_round']} "
        f"iterations, batch {given['batch_size']}. Means and ranges of {len(given['seeds'])} seeds.",
    )
    return figure


FIGURE = Figure(14, "Latency against accuracy as the limit on the split is swept", compute, draw, scales=("smoke",))
