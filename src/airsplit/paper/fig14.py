"""Figure 14 (ours): latency against accuracy as the limit on the split is swept: the guide to L̂ that the theorem is not.

Accuracy depends on the splits only through the deepest one, below which nothing is averaged: one training for each serves all distances,
and the virtual clock says when its rounds end.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter

from airsplit.core import palette
from airsplit.core.arrays import Floats
from airsplit.models.profiling import profile_scenario
from airsplit.paper.accuracies import DEVICES, Case, Study, round_ends, study_of
from airsplit.paper.declaration import Data, Figure
from airsplit.paper.jobs import FRONTS_EVERY, PARTITIONS
from airsplit.paper.sweeps import Progress, Scale
from airsplit.paper.wording import length_of_training, tested_text
from airsplit.planning.methods import plan
from airsplit.plots import style
from airsplit.runs.seeds import Trials

DISTANCES_M = (400.0, 800.0)
WAYS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "sfl": ("SFL", palette.BLUE, {"algorithm": "sfl"}),
    "averaged": (
        f"SFL, fronts averaged every {FRONTS_EVERY} rounds",
        palette.GREEN,
        {"algorithm": "sfl", "average_fronts_every": FRONTS_EVERY},
    ),
    "splitfed": ("SplitFed V1", palette.PURPLE, {"algorithm": "splitfed-v1"}),
    "fedavg": ("FedAvg", palette.ORANGE, {"algorithm": "fedavg"}),
}
"""Ways to train: title, color, and what they are."""


def compute(scale: Scale, progress: Progress) -> Data:
    """For each distance, limit and way to train: how long a round takes, the accuracy at the end, and the time to each target."""
    study = study_of(scale)
    sweep = study.sweep
    plans = {(d, limit): _deepest(study, d, limit) for d in DISTANCES_M for limit in sweep.limits}
    asked = [
        (dataset, part, way, distance, limit)
        for dataset in sweep.datasets
        for part in PARTITIONS
        for way in WAYS
        for distance in DISTANCES_M
        for limit in sweep.limits
        if not (
            way == "averaged" and plans[distance, limit] not in (sweep.splits[0], sweep.splits[-1])
        )
    ]
    cases = {key: _case(*key[:3], plans[key[3:]]) for key in asked}
    found = study.trained(cases.values(), progress)
    ends = dict[tuple[object, ...], Floats]()
    points = []
    for (dataset, part, way, distance, limit), case in cases.items():
        timed = (dataset, way, distance, limit)  # the clock does not know who holds which samples
        if timed not in ends:
            progress(f"the clock of {WAYS[way][0]} on {dataset}, {distance:g} m, L̂ = {limit}")
            ends[timed] = _ends(study, case, distance, limit)
        where = {
            "dataset": dataset,
            "partition": part,
            "way": way,
            "mean_distance_m": distance,
            "max_split": limit,
        }
        points.append(
            where
            | {"deepest_split": plans[distance, limit]}
            | _timed(found[case], ends[timed], sweep.targets[dataset])
        )
    given = study.settings() | {
        "devices": DEVICES,
        "max_splits": list(sweep.limits),
        "targets": dict(sweep.targets),
    }
    return {"settings": given, "points": points}


def _case(dataset: str, part: str, way: str, split: int) -> Case:
    """What is trained; where all layers are averaged after each round, the split changes the clock only."""
    case = Case(dataset, devices=DEVICES, partition=part, **WAYS[way][2])
    return replace(case, split=split) if case.algorithm == "sfl" else case


def _planned(distance_m: float, limit: int) -> dict[str, Any]:
    return {
        "fleet.mean_distance_m": distance_m,
        "plan.method": "exact",
        "plan.split": None,
        "plan.max_split": limit,
    }


def _deepest(study: Study, distance_m: float, limit: int) -> int:
    """The deepest split of the exact plan."""
    given = study.scenario(Case(study.sweep.datasets[0], devices=DEVICES)).replace(
        **_planned(distance_m, limit)
    )
    return int(
        plan(profile_scenario(given), given.make_fleet(), **given.plan_arguments()).splits.max()
    )


def _ends(study: Study, case: Case, distance_m: float, limit: int) -> Floats:
    """When the rounds of a way to train end, with the exact plan."""
    return round_ends(study.scenario(case).replace(**_planned(distance_m, limit)))


def _timed(trials: Trials, ends: Floats, targets: tuple[float, ...]) -> dict[str, Any]:
    """Accuracy at the end, and for each target when it is reached first; None where a seed never reaches it."""
    rounds, _, accuracies = trials.curve()
    times = ends[np.minimum(rounds.astype(int), len(ends)) - 1]
    reached = [
        [times[(row >= target).argmax()] if (row >= target).any() else None for row in accuracies]
        for target in targets
    ]
    return {
        "round_s": float(ends[-1] / len(ends)),
        "test_accuracy": trials.last("test_accuracy"),
        "own_accuracy": trials.last("own_accuracy"),
        "time_to_s": [
            None if None in each else float(np.mean([time for time in each if time is not None]))
            for each in reached
        ],
    }


def draw(data: Data) -> Canvas:
    """For each data set a row of accuracies, and one of times to the highest target that is reached; columns: partitions and distances."""
    given = data["settings"]
    columns = [(part, distance) for part in PARTITIONS for distance in DISTANCES_M]
    datasets = given["datasets"]
    figure, axes = style.make_figure(
        2 * len(datasets),
        len(columns),
        1.0 + 2.6 * len(datasets),
        wide=True,
        sharex=True,
        sharey="row",
    )
    for row, dataset in enumerate(datasets):
        which = _highest_reached([point for point in data["points"] if point["dataset"] == dataset])
        for at, (part, distance) in enumerate(columns):
            points = [
                p
                for p in data["points"]
                if (p["dataset"], p["partition"], p["mean_distance_m"]) == (dataset, part, distance)
            ]
            above, below = axes[2 * row, at], axes[2 * row + 1, at]
            for way in WAYS:
                _draw_way(
                    above,
                    below,
                    [p for p in points if p["way"] == way],
                    way,
                    given["max_splits"],
                    which,
                )
            above.set_title(
                f"{style.DATASET_NAMES[dataset]}, {style.PARTITION_NAMES[part]}, {distance:g} m",
                loc="left",
            )
            above.yaxis.set_major_formatter(FuncFormatter(style.format_plain))
            style.set_log_scale(below.yaxis)
        target = given["targets"][dataset][which]
        axes[2 * row, 0].set_ylabel("accuracy at\nthe end [%]")
        axes[2 * row + 1, 0].set_ylabel(f"time to\n{100 * target:g} % [s]")
    for cell in axes[-1]:
        cell.set_xlabel("L̂")
        cell.set_xticks(
            range(len(given["max_splits"])), [str(limit) for limit in given["max_splits"]]
        )
        cell.set_xlim(-0.3, len(given["max_splits"]) - 0.7)
    style.add_shared_legend(figure, axes[0, 0], len(WAYS))
    style.add_caption(
        figure,
        f"Exact plans with splits up to L̂, {given['devices']} devices, alexnet32 at width {given['arguments']['width']}, "
        f"{length_of_training(given)}, batch {given['batch_size']}. {_seeds_text(data)} No mark below: not every seed reaches the target. "
        f"{tested_text(given)} FedAvg does not depend on L̂.",
    )
    return figure


def _seeds_text(data: Data) -> str:
    """Return of how many seeds the marks are: what only this figure shows may have fewer than the rest.

    >>> points = [{"way": "sfl", "deepest_split": split, "partition": "iid", "test_accuracy": [0.9] * n} for split, n in ((4, 3), (8, 1))]
    >>> _seeds_text({"points": points}), _seeds_text({"points": points[1:]})
    ('Means and ranges (bars) of 3 seeds for SFL at ℓ = 4; one seed elsewhere.', 'One seed.')
    """
    counts = {len(point["test_accuracy"]) for point in data["points"]}
    if counts == {1}:
        return "One seed."
    if len(counts) == 1:
        return f"Means and ranges (bars) of {counts.pop()} seeds."
    several = sorted(counts - {1}, reverse=True)
    named = "; ".join(
        f"{count} seeds for {_with_seeds(data['points'], count)}" for count in several
    )
    return f"Means and ranges (bars) of {named}" + ("; one seed elsewhere." if 1 in counts else ".")


def _with_seeds(points: list[dict[str, Any]], count: int) -> str:
    """Return which marks have so many seeds, by way to train, and by split or partition where those of a way differ."""
    names = []
    for way, (title, _, _) in WAYS.items():
        whole = [point for point in points if point["way"] == way]
        chosen = [point for point in whole if len(point["test_accuracy"]) == count]
        if not chosen:
            continue
        splits, parts = ({point[key] for point in chosen} for key in ("deepest_split", "partition"))
        if len(chosen) == len(whole):
            names.append(title)
        elif len(chosen) == sum(point["partition"] in parts for point in whole):
            names.append(
                f"{title} with {' and '.join(style.PARTITION_NAMES[part] for part in sorted(parts))} data"
            )
        else:
            names.append(f"{title} at ℓ = {', '.join(map(str, sorted(splits)))}")
    return " and ".join(names)


def _highest_reached(points: list[dict[str, Any]]) -> int:
    """Which of the targets is the highest that some way to train reaches; the highest of all where none is.

    >>> _highest_reached([{"time_to_s": [3.0, None]}, {"time_to_s": [None, None]}]), _highest_reached([{"time_to_s": [None, None]}])
    (0, 1)
    """
    targets = range(len(points[0]["time_to_s"]))
    return max(
        (
            which
            for which in targets
            if any(point["time_to_s"][which] is not None for point in points)
        ),
        default=targets[-1],
    )


def _draw_way(
    above: Axes, below: Axes, points: list[dict[str, Any]], way: str, limits: list[int], which: int
) -> None:
    title, color, _ = WAYS[way]
    drawn: dict[str, Any] = {
        "color": color,
        "marker": "o",
        "markersize": 2.5,
        "linestyle": "--" if way == "fedavg" else "-",
    }
    x = [limits.index(point["max_split"]) for point in points]
    above.plot(x, [100 * np.mean(point["test_accuracy"]) for point in points], label=title, **drawn)
    for at, point in zip(x, points, strict=True):
        if len(point["test_accuracy"]) > 1:
            above.vlines(
                at,
                100 * min(point["test_accuracy"]),
                100 * max(point["test_accuracy"]),
                color=color,
                linewidth=0.8,
            )
    reached = [
        (at, point["time_to_s"][which])
        for at, point in zip(x, points, strict=True)
        if point["time_to_s"][which] is not None
    ]
    if reached:
        below.plot(*zip(*reached, strict=True), **drawn)


FIGURE = Figure(
    14, "Latency against accuracy as the limit on the split is swept", compute, draw, trains=True
)
