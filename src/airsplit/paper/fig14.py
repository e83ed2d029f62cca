"""Figure 14 (ours): latency against accuracy as the limit on the split is swept.

This is how to choose L̂; the paper's theorem is not. Accuracy depends on the splits only through the
deepest one, up to which nothing is averaged. So one training for each deepest split serves all
distances, and the virtual clock says when its rounds end.
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
from airsplit.paper.claim_text import describe_length, describe_tests
from airsplit.paper.declaration import Data, Figure
from airsplit.paper.jobs import FRONTS_EVERY, PARTITIONS
from airsplit.paper.studies import DEVICES, Case, Study, find_round_ends, get_study
from airsplit.paper.sweeps import Progress, Scale
from airsplit.planning.methods import plan
from airsplit.plots import style
from airsplit.runs.seeds import Trials

DISTANCES_M = (400.0, 800.0)
# Ways to train: title, color, and arguments of their case.
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


def compute(scale: Scale, progress: Progress) -> Data:
    """Compute the time of a round, the final accuracy, and the time to each target.

    For each distance, limit and way to train.
    """
    study = get_study(scale)
    sweep = study.sweep
    plans = {
        (d, limit): _find_deepest_split(study, d, limit)
        for d in DISTANCES_M
        for limit in sweep.limits
    }
    keys = [
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
    cases = {key: _make_case(*key[:3], plans[key[3:]]) for key in keys}
    trials = study.train(cases.values(), progress)
    round_ends: dict[tuple[object, ...], Floats] = {}
    points = []
    for (dataset, part, way, distance, limit), case in cases.items():
        # The clock does not depend on the partition.
        clock_key = (dataset, way, distance, limit)
        if clock_key not in round_ends:
            progress(f"the clock of {WAYS[way][0]} on {dataset}, {distance:g} m, L̂ = {limit}")
            planned = study.scenario(case).replace(**_plan_settings(distance, limit))
            round_ends[clock_key] = find_round_ends(planned)
        point = {
            "dataset": dataset,
            "partition": part,
            "way": way,
            "mean_distance_m": distance,
            "max_split": limit,
            "deepest_split": plans[distance, limit],
        }
        points.append(
            point | _summarize(trials[case], round_ends[clock_key], sweep.targets[dataset])
        )
    settings = study.settings() | {
        "devices": DEVICES,
        "max_splits": list(sweep.limits),
        "targets": dict(sweep.targets),
    }
    return {"settings": settings, "points": points}


def _make_case(dataset: str, part: str, way: str, split: int) -> Case:
    """Return the case to train.

    If all layers are averaged after each round, the split changes only the clock.
    """
    case = Case(dataset, devices=DEVICES, partition=part, **WAYS[way][2])
    return replace(case, split=split) if case.algorithm == "sfl" else case


def _plan_settings(distance_m: float, limit: int) -> dict[str, Any]:
    return {
        "fleet.mean_distance_m": distance_m,
        "plan.method": "exact",
        "plan.split": None,
        "plan.max_split": limit,
    }


def _find_deepest_split(study: Study, distance_m: float, limit: int) -> int:
    """Return the deepest split of the exact plan."""
    scenario = study.scenario(Case(study.sweep.datasets[0], devices=DEVICES)).replace(
        **_plan_settings(distance_m, limit)
    )
    exact = plan(profile_scenario(scenario), scenario.make_fleet(), **scenario.plan_arguments())
    return int(exact.splits.max())


def _summarize(trials: Trials, ends: Floats, targets: tuple[float, ...]) -> dict[str, Any]:
    """Return the final accuracy, and the time to each target; None if a seed never reaches it."""
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
            None if None in times_s else float(np.mean([t for t in times_s if t is not None]))
            for times_s in reached
        ],
    }


def draw(data: Data) -> Canvas:
    """Draw, for each data set, a row of accuracies and a row of times to a target.

    The target is the highest that is reached. Columns are partitions and distances.
    """
    settings = data["settings"]
    columns = [(part, distance) for part in PARTITIONS for distance in DISTANCES_M]
    datasets = settings["datasets"]
    figure, axes = style.make_figure(
        2 * len(datasets),
        len(columns),
        1.0 + 2.6 * len(datasets),
        wide=True,
        sharex=True,
        sharey="row",
    )
    for row, dataset in enumerate(datasets):
        which = _find_highest_target(
            [point for point in data["points"] if point["dataset"] == dataset]
        )
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
                    settings["max_splits"],
                    which,
                )
            above.set_title(
                f"{style.DATASET_NAMES[dataset]}, {style.PARTITION_NAMES[part]}, {distance:g} m",
                loc="left",
            )
            above.yaxis.set_major_formatter(FuncFormatter(style.format_plain))
            style.set_log_scale(below.yaxis)
        target = settings["targets"][dataset][which]
        axes[2 * row, 0].set_ylabel("accuracy at\nthe end [%]")
        axes[2 * row + 1, 0].set_ylabel(f"time to\n{100 * target:g} % [s]")
    for cell in axes[-1]:
        cell.set_xlabel("L̂")
        cell.set_xticks(
            range(len(settings["max_splits"])), [str(limit) for limit in settings["max_splits"]]
        )
        cell.set_xlim(-0.3, len(settings["max_splits"]) - 0.7)
    style.add_shared_legend(figure, axes[0, 0], len(WAYS))
    style.add_caption(
        figure,
        f"Exact plans with splits up to L̂, {settings['devices']} devices, alexnet32 at width "
        f"{settings['arguments']['width']}, {describe_length(settings)}, batch "
        f"{settings['batch_size']}. {_describe_seeds(data)} No mark below: not every seed reaches "
        f"the target. {describe_tests(settings)} FedAvg does not depend on L̂.",
    )
    return figure


def _describe_seeds(data: Data) -> str:
    """Return the number of seeds of the marks: trainings for this figure alone have fewer.

    >>> def point(split, seeds):
    ...     accuracies = [0.9] * seeds
    ...     where = {"way": "sfl", "deepest_split": split, "partition": "iid"}
    ...     return where | {"test_accuracy": accuracies}
    >>> _describe_seeds({"points": [point(4, 3), point(8, 1)]})
    'Means and ranges (bars) of 3 seeds for SFL at ℓ = 4; one seed elsewhere.'
    >>> _describe_seeds({"points": [point(8, 1)]})
    'One seed.'
    """
    counts = {len(point["test_accuracy"]) for point in data["points"]}
    if counts == {1}:
        return "One seed."
    if len(counts) == 1:
        return f"Means and ranges (bars) of {counts.pop()} seeds."
    several = sorted(counts - {1}, reverse=True)
    groups = "; ".join(
        f"{count} seeds for {_name_marks(data['points'], count)}" for count in several
    )
    rest = "; one seed elsewhere" if 1 in counts else ""
    return f"Means and ranges (bars) of {groups}{rest}."


def _name_marks(points: list[dict[str, Any]], count: int) -> str:
    """Name the marks with a number of seeds, by split or partition if those of a way differ."""
    names = []
    for way, (title, _, _) in WAYS.items():
        of_way = [point for point in points if point["way"] == way]
        selected = [point for point in of_way if len(point["test_accuracy"]) == count]
        if not selected:
            continue
        splits = sorted({point["deepest_split"] for point in selected})
        partitions = sorted({point["partition"] for point in selected})
        if len(selected) == len(of_way):
            names.append(title)
        elif len(selected) == sum(point["partition"] in partitions for point in of_way):
            kinds = " and ".join(style.PARTITION_NAMES[partition] for partition in partitions)
            names.append(f"{title} with {kinds} data")
        else:
            names.append(f"{title} at ℓ = {', '.join(map(str, splits))}")
    return " and ".join(names)


def _find_highest_target(points: list[dict[str, Any]]) -> int:
    """Return the index of the highest target that some way reaches; of the last if none is.

    >>> never = {"time_to_s": [None, None]}
    >>> _find_highest_target([{"time_to_s": [3.0, None]}, never]), _find_highest_target([never])
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
