"""Figures 7 and 8: a round of split federated learning against one of FedAvg.

Figure 7 varies the channel, figure 8 the computing speed. For claims C7 and C8.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter

from airsplit.core import palette
from airsplit.core.arrays import Floats
from airsplit.paper.declaration import Data, Figure
from airsplit.paper.rounds import (
    BATCH_SIZE,
    ITERATIONS,
    SAMPLES,
    SCHEMES,
    fedavg_round,
    sfl_round,
)
from airsplit.paper.sweeps import (
    UNIFORM_PACE,
    Pace,
    Progress,
    Scale,
    band,
    describe_settings,
    over_fleets,
    select,
)
from airsplit.planning.round_time import Round
from airsplit.plots import style
from airsplit.system.fleet import Fleet
from airsplit.system.profile import Profile, load_shipped_profile

# L̂ of each model. VGG16 has two inputs: at 224×224 its activations outweigh its parameters.
LIMITS = {"alexnet": 8, "vgg16": 6, "vgg16-3x32x32": 6}
DISTANCES_M = (50, 100, 200, 300, 400)
PACES_NS = (0.2, 0.4, 0.6, 0.8, 1.0)
DISTANCE_OF_FIGURE_8_M = 200
# A scheme has one color; its transmit time is the lighter part of the bar.
TRANSMIT_ALPHA = 0.45


@dataclass(frozen=True)
class Conditions:
    """A varied quantity, and the distance and pace of the fleets at each of its values.

    Attributes:
        name: Name with unit, as in the JSON.
        label: Label of the axis.
    """

    name: str
    label: str
    values: Sequence[float]
    distances_m: Sequence[float]
    paces: Sequence[Pace]


def comparison_figure(number: int, title: str, conditions: Conditions) -> Figure:
    """Declare a figure of compute and transmit time under these conditions."""
    return Figure(number, title, partial(compute, conditions), partial(draw, conditions.label))


def compute(conditions: Conditions, scale: Scale, progress: Progress) -> Data:
    """Compute the rounds of both schemes under all conditions."""
    profiles = {model: load_shipped_profile(model) for model in LIMITS}
    models = []
    for model, profile in profiles.items():
        progress(f"{model}, {len(conditions.values)} conditions")
        entry = _compare_schemes(profile, LIMITS[model], conditions, scale.fleets)
        models.append({"model": model, "max_split": LIMITS[model]} | entry)
    settings = describe_settings(
        scale.fleets,
        profiles,
        samples=SAMPLES,
        batch_size=BATCH_SIZE,
        iterations_per_round=ITERATIONS,
        method="exact",
        mean_distances_m=conditions.distances_m,
        seconds_per_mac=conditions.paces,
    )
    return {
        "settings": settings,
        "condition": conditions.name,
        "values": conditions.values,
        "models": models,
    }


def _compare_schemes(
    profile: Profile, limit: int, conditions: Conditions, fleets: int
) -> dict[str, Any]:
    def time_rounds(fleet: Fleet) -> dict[str, Round]:
        return {"sfl": sfl_round(profile, fleet, limit), "fedavg": fedavg_round(profile, fleet)}

    points = [
        over_fleets(fleets, distance_m, pace, time_rounds)
        for distance_m, pace in zip(conditions.distances_m, conditions.paces, strict=True)
    ]
    sfl = _to_columns(select(points, "sfl"))
    fedavg = _to_columns(select(points, "fedavg"))
    # Both schemes see the same fleets, so ratios are taken fleet by fleet.
    return {
        "sfl": {key: band(values) for key, values in sfl.items()},
        "fedavg": {key: band(values) for key, values in fedavg.items()},
        "saving": band(1 - sfl["total_s"] / fedavg["total_s"]),
        "expected_max_saving": band(1 - sfl["expected_max_s"] / fedavg["expected_max_s"]),
        "compute_ratio": band(sfl["compute_s"] / fedavg["compute_s"]),
        "transmit_ratio": band(sfl["transmit_s"] / fedavg["transmit_s"]),
        "air_time_ratio": band(sfl["air_time_s"] / fedavg["air_time_s"]),
    }


def _to_columns(points: list[list[Round]]) -> dict[str, Floats]:
    """Return each field of a round as conditions × fleets."""
    return {
        field.name: np.array([[getattr(round_, field.name) for round_ in row] for row in points])
        for field in fields(Round)
    }


def draw(label: str, data: Data) -> Canvas:
    """Draw a row for each model: time of a round on the left, its air time on the right."""
    figure, axes = style.make_figure(len(data["models"]), 2, 5.6, sharex=True)
    for (times, air), entry in zip(axes, data["models"], strict=True):
        _draw_model(times, air, entry)
        times.set_title(style.NAMES_WITH_INPUT[entry["model"]], loc="left")

    # Conditions are evenly spaced whatever their values, so that bars have room.
    for cell in axes[-1]:
        cell.set_xticks(range(len(data["values"])), [style.format_plain(v) for v in data["values"]])
        cell.set_xlabel(label)
    swatches = [
        Patch(color=color, alpha=alpha, linewidth=0, label=f"{name} {part}")
        for name, color in SCHEMES.values()
        for part, alpha in (("compute", 1.0), ("transmit", TRANSMIT_ALPHA))
    ]
    figure.legend(
        handles=swatches, loc="outside upper center", ncols=2, columnspacing=2, handlelength=0.9
    )

    settings = data["settings"]
    limits = ", ".join(str(entry["max_split"]) for entry in data["models"])
    sample = style.describe_sample(settings).capitalize()
    style.add_caption(
        figure,
        f"A round is one pass over {settings['samples']:,} samples: "
        f"{settings['iterations_per_round']} iterations of batch {settings['batch_size']} (SFL, "
        f"exact plans, L̂ = {limits}), or all of it and the parameters once (FedAvg, its own "
        f"optimal shares). {sample}. Marks: the total (medians of its parts need not add up to "
        "it). All devices finish together, so those with time to spare send slowly on purpose: a "
        "long transmit time (light) is not a cost. What sending costs is air time (right), in "
        "seconds of the whole band.",
    )
    return figure


def _draw_model(times: Axes, air: Axes, entry: dict[str, Any]) -> None:
    """Draw one model's compute and transmit time as stacked bars, and its air time as points."""
    for side, (scheme, (_, color)) in zip((-1, 1), SCHEMES.items(), strict=True):
        values = entry[scheme]
        compute_s = np.array(values["compute_s"]["median"])
        transmit_s = np.array(values["transmit_s"]["median"])
        x = np.arange(len(compute_s), dtype=np.float64)
        beside = x + 0.2 * side
        times.bar(beside, compute_s, width=0.36, color=color)
        # Without linewidth=0 the edges of translucent bars would overlap in a darker line.
        times.bar(
            beside,
            transmit_s,
            width=0.36,
            bottom=compute_s,
            color=color,
            alpha=TRANSMIT_ALPHA,
            linewidth=0,
        )
        _draw_bands(times, beside, values["total_s"], palette.INK, marker="_")
        _draw_bands(air, x + 0.12 * side, values["air_time_s"], color, marker="o")
    times.grid(visible=False, axis="x")
    times.yaxis.set_major_formatter(FuncFormatter(style.format_plain))
    times.set_ylabel("round [s]")
    # Bars must start at zero, so only the air time can have a logarithmic axis.
    style.set_log_scale(air.yaxis)
    air.set_ylabel("air time Σ D/r [s]")


def _draw_bands(
    axes: Axes, x: Floats, values: dict[str, list[float]], color: str, marker: str
) -> None:
    """Draw medians as marks with whiskers over the 10–90 % band."""
    median = np.array(values["median"])
    # matplotlib takes distances from the mark, downwards first.
    lengths = [median - np.array(values["p10"]), np.array(values["p90"]) - median]
    axes.errorbar(x, median, yerr=lengths, color=color, fmt=marker, elinewidth=0.8, markersize=3)


FIGURE_7 = comparison_figure(
    7,
    "SFL against FedAvg under different channel conditions",
    Conditions(
        "mean_distance_m",
        "mean distance [m]",
        DISTANCES_M,
        DISTANCES_M,
        (UNIFORM_PACE,) * len(DISTANCES_M),
    ),
)
FIGURE_8 = comparison_figure(
    8,
    f"SFL against FedAvg under different computing conditions, at {DISTANCE_OF_FIGURE_8_M} m",
    Conditions(
        "nanoseconds_per_mac",
        f"a [ns/MAC], at {DISTANCE_OF_FIGURE_8_M} m",
        PACES_NS,
        (DISTANCE_OF_FIGURE_8_M,) * len(PACES_NS),
        tuple(1e-9 * pace for pace in PACES_NS),
    ),
)
