"""Figure 14 (ours): latency against accuracy as the limit on the split is swept.

This is how to choose L̂; the paper's theorem is not. Accuracy depends on the splits only through
the deepest one, up to which nothing is averaged. So one training for each deepest split serves all
distances, and the virtual clock says when its rounds end.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import product
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

# Far enough that deep splits pay.
DISTANCES_M = (400.0, 800.0)
# Results of one way to train on one data set and partition, at one distance and limit.
Point = dict[str, Any]
# Ways to train: title, color, and arguments of their case.
WAYS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "sfl": ("SFL", palette.get_algorithm_color("sfl"), {"algorithm": "sfl"}),
    "averaged": (
        f"SFL, fronts averaged every {FRONTS_EVERY} rounds",
        palette.GREEN,
        {"algorithm": "sfl", "average_fronts_every": FRONTS_EVERY},
    ),
    "splitfed": (
        "SplitFed V1",
        palette.get_algorithm_color("splitfed-v1"),
        {"algorithm": "splitfed-v1"},
    ),
    "fedavg": ("FedAvg", palette.get_algorithm_color("fedavg"), {"algorithm": "fedavg"}),
}


def compute(scale: Scale, progress: Progress) -> Data:
    """Compute the time of a round, the final accuracy, and the time to each target.

    For each distance, limit and way to train.
    """
    study = get_study(scale)
    sweep = study.sweep
    conditions = list(product(DISTANCES_M, sweep.limits))
    deepest = {
        (distance_m, limit): _find_deepest_split(study, distance_m, limit)
        for distance_m, limit in conditions
    }
    # Averaged fronts are an extra, trained only at the ends of the range of splits.
    ends = (sweep.splits[0], sweep.splits[-1])
    cases = {}
    for dataset, partition, way, condition in product(sweep.datasets, PARTITIONS, WAYS, conditions):
        if way == "averaged" and deepest[condition] not in ends:
            continue
        case = Case(dataset, devices=DEVICES, partition=partition, **WAYS[way][2])
        # If all layers are averaged after each round, the split changes only the clock: one
        # training serves all limits.
        if case.algorithm == "sfl":
            case = replace(case, split=deepest[condition])
        cases[dataset, partition, way, *condition] = case
    trials = study.train(cases.values(), progress)

    round_ends: dict[tuple[object, ...], Floats] = {}
    points = []
    for (dataset, partition, way, distance_m, limit), case in cases.items():
        # The clock does not depend on the partition.
        clock_key = (dataset, way, distance_m, limit)
        if clock_key not in round_ends:
            progress(f"the clock of {WAYS[way][0]} on {dataset}, {distance_m:g} m, L̂ = {limit}")
            planned = study.scenario(case).replace(**_plan_settings(distance_m, limit))
            round_ends[clock_key] = find_round_ends(planned)
        point = {
            "dataset": dataset,
            "partition": partition,
            "way": way,
            "mean_distance_m": distance_m,
            "max_split": limit,
            "deepest_split": deepest[distance_m, limit],
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


def _plan_settings(distance_m: float, limit: int) -> dict[str, Any]:
    return {
        "fleet.mean_distance_m": distance_m,
        "plan.method": "exact",
        "plan.split": None,
        "plan.max_split": limit,
    }


def _find_deepest_split(study: Study, distance_m: float, limit: int) -> int:
    """Return the deepest split of the exact plan."""
    # The model and the fleet are the same for all data sets, and so is the plan.
    case = Case(study.sweep.datasets[0], devices=DEVICES)
    scenario = study.scenario(case).replace(**_plan_settings(distance_m, limit))
    exact = plan(profile_scenario(scenario), scenario.make_fleet(), **scenario.plan_arguments())
    return int(exact.splits.max())


def _summarize(trials: Trials, ends: Floats, targets: tuple[float, ...]) -> dict[str, Any]:
    """Return the final accuracy, and the time to each target; None if a seed never reaches it.

    Args:
        ends: Virtual time at the end of each round.
    """
    rounds, _, accuracies = trials.curve()
    # The clock of the plan in question, not that of the training, which had a fixed split.
    times_s = ends[np.minimum(rounds.astype(int), len(ends)) - 1]
    time_to_s: list[float | None] = []
    for target in targets:
        reached = accuracies >= target
        if reached.any(axis=1).all():
            # argmax finds the first True of each seed.
            time_to_s.append(float(np.mean(times_s[reached.argmax(axis=1)])))
        else:
            # A mean over the other seeds would favor the way that fails more often.
            time_to_s.append(None)
    return {
        "round_s": float(ends[-1] / len(ends)),
        "test_accuracy": trials.last("test_accuracy"),
        "own_accuracy": trials.last("own_accuracy"),
        "time_to_s": time_to_s,
    }


def draw(data: Data) -> Canvas:
    """Draw, for each data set, a row of accuracies and a row of times to a target.

    The target is the highest that is reached. Columns are partitions and distances.
    """
    settings = data["settings"]
    datasets = settings["datasets"]
    columns = len(PARTITIONS) * len(DISTANCES_M)
    height_in = 1.0 + 2.6 * len(datasets)
    figure, axes = style.make_figure(
        2 * len(datasets), columns, height_in, wide=True, sharex=True, sharey="row"
    )
    for dataset, above, below in zip(datasets, axes[::2], axes[1::2], strict=True):
        points = [point for point in data["points"] if point["dataset"] == dataset]
        _draw_dataset(above, below, points, settings)

    # Limits are evenly spaced whatever their values.
    limits = settings["max_splits"]
    for cell in axes[-1]:
        cell.set_xlabel("L̂")
        cell.set_xticks(range(len(limits)), [str(limit) for limit in limits])
        cell.set_xlim(-0.3, len(limits) - 0.7)
    style.add_shared_legend(figure, axes[0, 0], len(WAYS))
    style.add_caption(
        figure,
        f"Exact plans with splits up to L̂, {settings['devices']} devices, alexnet32 at width "
        f"{settings['arguments']['width']}, {describe_length(settings)}, batch "
        f"{settings['batch_size']}. {describe_marks(data)} No mark below: not every seed reaches "
        f"the target. {describe_tests(settings)} FedAvg does not depend on L̂.",
    )
    return figure


def _draw_dataset(
    above: Iterable[Axes], below: Iterable[Axes], points: list[Point], settings: dict[str, Any]
) -> None:
    """Draw the two rows of a data set: accuracy above, time to the highest target below."""
    index = find_highest_target(points)
    dataset = points[0]["dataset"]
    columns = list(product(PARTITIONS, DISTANCES_M))
    rows = list(zip(above, below, strict=True))
    for (partition, distance_m), (accuracy, time_to) in zip(columns, rows, strict=True):
        for way in WAYS:
            condition = (partition, distance_m, way)
            of_way = [
                point
                for point in points
                if (point["partition"], point["mean_distance_m"], point["way"]) == condition
            ]
            _draw_way(accuracy, time_to, of_way, way, settings["max_splits"], index)
        accuracy.set_title(
            f"{style.DATASET_NAMES[dataset]}, {style.PARTITION_NAMES[partition]}, {distance_m:g} m",
            loc="left",
        )
        accuracy.yaxis.set_major_formatter(FuncFormatter(style.format_plain))
        style.set_log_scale(time_to.yaxis)

    target = settings["targets"][dataset][index]
    accuracy, time_to = rows[0]
    accuracy.set_ylabel("accuracy at\nthe end [%]")
    time_to.set_ylabel(f"time to\n{100 * target:g} % [s]")


def _draw_way(
    above: Axes, below: Axes, points: list[Point], way: str, limits: list[int], index: int
) -> None:
    """Draw one curve over the limits in both panels.

    Args:
        index: Index of the target below.
    """
    title, color, _ = WAYS[way]
    curve: dict[str, Any] = {"color": color, "marker": "o", "markersize": 2.5}
    # Dashed, because FedAvg is the reference that does not depend on L̂.
    curve["linestyle"] = "--" if way == "fedavg" else "-"
    x = [limits.index(point["max_split"]) for point in points]
    above.plot(x, [100 * np.mean(point["test_accuracy"]) for point in points], label=title, **curve)
    for place, point in zip(x, points, strict=True):
        accuracies = point["test_accuracy"]
        if len(accuracies) > 1:
            low = 100 * min(accuracies)
            above.vlines(place, low, 100 * max(accuracies), color=color, linewidth=0.8)

    reached = [
        (place, point["time_to_s"][index])
        for place, point in zip(x, points, strict=True)
        if point["time_to_s"][index] is not None
    ]
    if reached:
        below.plot(*zip(*reached, strict=True), **curve)


def describe_marks(data: Data) -> str:
    """Return the number of seeds of the marks: trainings for this figure alone have fewer.

    >>> def point(split, seeds):
    ...     accuracies = [0.9] * seeds
    ...     where = {"way": "sfl", "deepest_split": split, "partition": "iid"}
    ...     return where | {"test_accuracy": accuracies}
    >>> describe_marks({"points": [point(4, 3), point(8, 1)]})
    'Means and ranges (bars) of 3 seeds for SFL at ℓ = 4; one seed elsewhere.'
    >>> describe_marks({"points": [point(8, 1)]})
    'One seed.'
    """
    counts = {len(point["test_accuracy"]) for point in data["points"]}
    if counts == {1}:
        return "One seed."
    if len(counts) == 1:
        return f"Means and ranges (bars) of {counts.pop()} seeds."
    groups = [
        f"{count} seeds for {_name_marks(data['points'], count)}"
        for count in sorted(counts - {1}, reverse=True)
    ]
    if 1 in counts:
        groups.append("one seed elsewhere")
    return f"Means and ranges (bars) of {'; '.join(groups)}."


def _name_marks(points: list[Point], count: int) -> str:
    """Name the marks with a number of seeds, by split or partition if those of a way differ."""
    names = []
    for way, (title, _, _) in WAYS.items():
        of_way = [point for point in points if point["way"] == way]
        selected = [point for point in of_way if len(point["test_accuracy"]) == count]
        if not selected:
            continue
        splits = sorted({point["deepest_split"] for point in selected})
        partitions = sorted({point["partition"] for point in selected})
        # The shortest name that fits no other mark of this way.
        if len(selected) == len(of_way):
            names.append(title)
        elif len(selected) == sum(point["partition"] in partitions for point in of_way):
            kinds = " and ".join(style.PARTITION_NAMES[partition] for partition in partitions)
            names.append(f"{title} with {kinds} data")
        else:
            names.append(f"{title} at ℓ = {', '.join(map(str, splits))}")
    return " and ".join(names)


def find_highest_target(points: list[Point]) -> int:
    """Return the index of the highest target that a way reaches; of the last if none is reached.

    >>> never = {"time_to_s": [None, None]}
    >>> find_highest_target([{"time_to_s": [3.0, None]}, never]), find_highest_target([never])
    (0, 1)
    """
    last = len(points[0]["time_to_s"]) - 1
    for index in range(last, -1, -1):
        if any(point["time_to_s"][index] is not None for point in points):
            return index
    return last


FIGURE = Figure(
    14, "Latency against accuracy as the limit on the split is swept", compute, draw, trains=True
)
