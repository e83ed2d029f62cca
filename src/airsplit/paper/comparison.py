"""What figures 7 and 8 share: a round of split federated learning against one of FedAvg.  They carry C7 and C8."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter

from airsplit.core import palette
from airsplit.paper.declaration import Data, Figure
from airsplit.paper.rounds import BATCH_SIZE, ITERATIONS, SAMPLES, fedavg_round, sfl_round
from airsplit.paper.sweeps import Pace, Progress, Scale, band, over_fleets, picked, settings
from airsplit.planning.round_time import Round
from airsplit.plots import style
from airsplit.system.fleet import Fleet
from airsplit.system.profile import Profile, load_shipped_profile

LIMITS = {"alexnet": 8, "vgg16": 6, "vgg16-3x32x32": 6}
SCHEMES = {"sfl": ("SFL", palette.BLUE), "fedavg": ("FedAvg", palette.ORANGE)}


@dataclass(frozen=True)
class Conditions:
    """What varies: the name with its unit, its values, and the distance and pace of the fleets at each."""

    name: str
    label: str
    values: Sequence[float]
    distances_m: Sequence[float]
    paces: Sequence[Pace]


def comparison_figure(number: int, title: str, conditions: Conditions) -> Figure:
    """Compute and transmit time of both schemes under these conditions."""
    return Figure(number, title, partial(compute, conditions), partial(draw, conditions.label))


def compute(conditions: Conditions, scale: Scale, progress: Progress) -> Data:
    """Both schemes on the same fleets, so that their ratio is taken fleet by fleet."""
    profiles = {model: load_shipped_profile(model) for model in LIMITS}
    models = []
    for model, profile in profiles.items():
        progress(f"{model}, {len(conditions.values)} conditions")
        entry = _model(profile, LIMITS[model], conditions, scale.fleets)
        models.append({"model": model, "max_split": LIMITS[model]} | entry)
    own = {
        "samples": SAMPLES,
        "batch_size": BATCH_SIZE,
        "iterations_per_round": ITERATIONS,
        "method": "exact",
    }
    varied = {"mean_distances_m": conditions.distances_m, "seconds_per_mac": conditions.paces}
    given = settings(scale.fleets, profiles, **own, **varied)
    return {
        "settings": given,
        "condition": conditions.name,
        "values": conditions.values,
        "models": models,
    }


def _model(profile: Profile, limit: int, conditions: Conditions, fleets: int) -> dict[str, Any]:
    def both(fleet: Fleet) -> dict[str, Round]:
        return {"sfl": sfl_round(profile, fleet, limit), "fedavg": fedavg_round(profile, fleet)}

    points = [
        over_fleets(fleets, d, a, both)
        for d, a in zip(conditions.distances_m, conditions.paces, strict=True)
    ]
    sfl, fedavg = (_columns(picked(points, scheme)) for scheme in SCHEMES)
    return {
        "sfl": {key: band(values) for key, values in sfl.items()},
        "fedavg": {key: band(values) for key, values in fedavg.items()},
        "saving": band(1 - sfl["total_s"] / fedavg["total_s"]),
        "expected_max_saving": band(1 - sfl["expected_max_s"] / fedavg["expected_max_s"]),
        "compute_ratio": band(sfl["compute_s"] / fedavg["compute_s"]),
        "transmit_ratio": band(sfl["transmit_s"] / fedavg["transmit_s"]),
        "air_time_ratio": band(sfl["air_time_s"] / fedavg["air_time_s"]),
    }


def _columns(points: list[list[Round]]) -> dict[str, Any]:
    """Conditions × fleets of each number of a round."""
    rows = [[asdict(round_) for round_ in fleets] for fleets in points]
    return {
        key: np.array([[entry[key] for entry in fleets] for fleets in rows]) for key in rows[0][0]
    }


def draw(label: str, data: Data) -> Canvas:
    """A row for each model: the time of a round to the left, the air time that it needs to the right."""
    figure, axes = style.make_figure(len(data["models"]), 2, 5.6, sharex=True)
    for (times, air), entry in zip(axes, data["models"], strict=True):
        _draw_times(times, entry, len(data["values"]))
        _draw_air(air, entry, len(data["values"]))
        times.set_title(style.NAMES_WITH_INPUT[entry["model"]], loc="left")
    for cell in axes[-1]:
        cell.set_xticks(range(len(data["values"])), [style.format_plain(v) for v in data["values"]])
        cell.set_xlabel(label)
    _legend(figure)
    _caption(figure, data)
    return figure


def _draw_times(axes: Axes, entry: dict[str, Any], count: int) -> None:
    """Compute and transmit time stacked, the median of the total as a mark with its band."""
    for shift, (scheme, (_, color)) in zip((-0.2, 0.2), SCHEMES.items(), strict=True):
        x = np.arange(count) + shift
        compute_s, transmit_s = (
            np.array(entry[scheme][key]["median"]) for key in ("compute_s", "transmit_s")
        )
        axes.bar(x, compute_s, width=0.36, color=color)
        axes.bar(x, transmit_s, width=0.36, bottom=compute_s, color=color, alpha=0.45, linewidth=0)
        _whiskers(axes, x, entry[scheme]["total_s"], palette.INK, marker="_")
    axes.grid(visible=False, axis="x")
    axes.yaxis.set_major_formatter(FuncFormatter(style.format_plain))
    axes.set_ylabel("round [s]")


def _draw_air(axes: Axes, entry: dict[str, Any], count: int) -> None:
    for shift, (scheme, (_, color)) in zip((-0.12, 0.12), SCHEMES.items(), strict=True):
        _whiskers(axes, np.arange(count) + shift, entry[scheme]["air_time_s"], color, marker="o")
    style.set_log_scale(axes.yaxis)
    axes.set_ylabel("air time Σ D/r [s]")


def _whiskers(axes: Axes, x: Any, values: dict[str, list[float]], color: str, marker: str) -> None:
    middle = np.array(values["median"])
    reach = [middle - np.array(values["p10"]), np.array(values["p90"]) - middle]
    axes.errorbar(x, middle, yerr=reach, color=color, fmt=marker, elinewidth=0.8, markersize=3)


def _legend(figure: Canvas) -> None:
    swatches = [
        Patch(color=color, alpha=alpha, linewidth=0, label=f"{name} {part}")
        for name, color in SCHEMES.values()
        for part, alpha in (("compute", 1.0), ("transmit", 0.45))
    ]
    figure.legend(
        handles=swatches, loc="outside upper center", ncols=2, columnspacing=2, handlelength=0.9
    )


def _caption(figure: Canvas, data: Data) -> None:
    given = data["settings"]
    limits = ", ".join(f"{entry['max_split']}" for entry in data["models"])
    style.add_caption(
        figure,
        f"A round is one pass over {given['samples']:,} samples: {given['iterations_per_round']} iterations of batch "
        f"{given['batch_size']} (SFL, exact plans, L̂ = {limits}), or all of it and the parameters once (FedAvg, its "
        f"own optimal shares). {style.describe_sample(given).capitalize()}. Marks: the total (medians of its parts need not add "
        "up to it). All devices finish together, so those with time to spare send slowly on purpose: a long transmit time "
        "(light) is not a cost. What sending costs is air time (right), in seconds of the whole band.",
    )
