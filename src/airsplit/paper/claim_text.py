"""Parts of sentences for claims and captions, and the comparisons behind them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from airsplit.plots.style import (
    DATASET_NAMES,
    MODEL_NAMES,
    NAMES_WITH_INPUT,
    PARTITION_NAMES,
    format_pace,
    format_plain,
)

# Numbers of a figure, or of a part of it, as in its JSON.
Numbers = dict[str, Any]

FASTEST = "fastest_quarter_mean_split_over_all"
SLOWEST = "slowest_quarter_mean_split_over_all"
# Units of what figures 7 and 8 vary.
UNITS = {"mean_distance_m": "m", "nanoseconds_per_mac": "ns/MAC"}


def describe_model(data: Numbers) -> str:
    """Return the model and the limit of a figure over distances."""
    return f"{MODEL_NAMES[data['settings']['model']]} with L̂ = {data['settings']['max_split']}"


def format_limit(max_split: int | None) -> str:
    """
    >>> format_limit(8), format_limit(None)
    ('L̂ = 8', 'no limit')
    """
    if max_split is None:
        return "no limit"
    return f"L̂ = {max_split}"


def format_span(values: Collection[float], form: str = ",.3g") -> str:
    """
    >>> format_span([0.25, 0.5]), format_span([8.7, 8.7004])
    ('0.25–0.5', '8.7')
    """
    low = format(min(values), form)
    high = format(max(values), form)
    return low if low == high else f"{low}–{high}"


def format_percents(values: Sequence[float]) -> str:
    """
    >>> format_percents([0.829, 0.8])
    '83, 80 %'
    """
    return ", ".join(f"{100 * v:.0f}" for v in values) + " %"


def is_mixed(curve: Numbers) -> bool:
    """Return whether a curve's fleets mix fast and slow devices."""
    return isinstance(curve["seconds_per_mac"], list)


def curves_by_method(data: Numbers) -> list[list[Numbers]]:
    """Return the curves of each method."""
    return [
        [c for c in data["curves"] if c["method"] == method]
        for method in data["settings"]["methods"]
    ]


def compare_paces(curves: list[Numbers]) -> Iterator[tuple[float, float]]:
    """Yield splits of a faster and a slower group at each distance.

    Groups are fleets of one pace, and quarters of mixed fleets.
    """
    for faster, slower in pairwise(c for c in curves if not is_mixed(c)):
        yield from zip(faster["mean_split"]["median"], slower["mean_split"]["median"], strict=True)
    for curve in filter(is_mixed, curves):
        yield from zip(curve[FASTEST], curve[SLOWEST], strict=True)


def describe_widest_gap(data: Numbers) -> str:
    """Return the largest lead of the fastest quarter of mixed fleets over the slowest."""
    # Only of the exact plans: the claim is about the problem, not about a method.
    mixed = next(c for c in data["curves"] if is_mixed(c) and c["method"] == "exact")
    gap = np.subtract(mixed[FASTEST], mixed[SLOWEST])
    distance_m = data["mean_distances_m"][int(gap.argmax())]
    return f"up to {gap.max():.2g} layers deeper than the slowest (at {distance_m} m)"


def describe_falling_fleets(data: Numbers) -> str:
    """Return how many single fleets split earlier at some larger distance, for each method."""
    parts = []
    for curves in curves_by_method(data):
        falling = sum(curve["fleets_with_falling_split"] for curve in curves)
        fleets = data["settings"]["fleets"] * len(curves)
        parts.append(f"{falling} of {fleets} with {curves[0]['method']}")
    return ", ".join(parts)


def find_latency_exceptions(data: Numbers, key: str) -> list[str]:
    """Describe where a median latency does not rise with the distance or with a."""
    distances_m = data["mean_distances_m"]
    exceptions = []
    for curve in data["curves"]:
        name = f"{curve['method']}, {format_pace(curve['seconds_per_mac'])}"
        points = zip(distances_m, curve[key]["median"], strict=True)
        for (near_m, near_s), (far_m, far_s) in pairwise(points):
            if far_s <= near_s:
                exceptions.append(
                    f"{name}: {near_s:.3g} s at {near_m} m but {far_s:.3g} s at {far_m} m"
                )

    # Mixed fleets have no single a, so they are not compared with others.
    for curves in curves_by_method(data):
        for faster, slower in pairwise(c for c in curves if not is_mixed(c)):
            fast = format_pace(faster["seconds_per_mac"])
            slow = format_pace(slower["seconds_per_mac"])
            medians = (faster[key]["median"], slower[key]["median"])
            for distance_m, fast_s, slow_s in zip(distances_m, *medians, strict=True):
                if slow_s <= fast_s:
                    exceptions.append(
                        f"{faster['method']}, {distance_m} m: {fast_s:.3g} s with {fast} "
                        f"but {slow_s:.3g} s with {slow}"
                    )
    return exceptions


def describe_conditions(data: Numbers, holds: Sequence[bool]) -> str:
    """Return at which conditions something holds.

    >>> data = {"values": [50, 100], "condition": "mean_distance_m"}
    >>> describe_conditions(data, [True, True]), describe_conditions(data, [False, True])
    ('everywhere', 'at 100 m only')
    >>> describe_conditions(data, [False, False])
    'nowhere'
    """
    if all(holds):
        return "everywhere"
    if not any(holds):
        return "nowhere"
    values = [
        format_plain(value) for value, held in zip(data["values"], holds, strict=True) if held
    ]
    return f"at {', '.join(values)} {UNITS[data['condition']]} only"


def compare_with_fedavg(data: Numbers, entry: Numbers) -> str:
    """Return all parts of the comparison for one model, condition by condition."""
    # Ratios as their range over the conditions; savings one by one, because C7 depends on them.
    values = ", ".join(format_plain(value) for value in data["values"])
    compute = format_span(entry["compute_ratio"]["median"])
    air_time = format_span(entry["air_time_ratio"]["median"])
    transmit = format_span(entry["transmit_ratio"]["median"])
    saving = format_percents(entry["saving"]["median"])
    expected_max_saving = format_percents(entry["expected_max_saving"]["median"])
    return (
        f"{NAMES_WITH_INPUT[entry['model']]}, at {values} {UNITS[data['condition']]}: "
        f"SFL ÷ FedAvg is {compute} in compute time, {air_time} in air time ({transmit} in the "
        f"devices' transmit time), saving {saving} ({expected_max_saving} in E[max])."
    )


# With two seeds, Student's interval is nine times as wide as their distance, and says little.
FEWEST_FOR_AN_INTERVAL = 3


def is_surely_positive(difference: Numbers) -> bool:
    """Return whether the 95 % interval of a difference is above zero.

    With fewer than three seeds: whether the difference of each seed is.

    >>> is_surely_positive({"mean": 0.1, "half_width": 0.2, "least": 0.05, "seeds": 3})
    False
    >>> is_surely_positive({"mean": 0.1, "half_width": 0.6, "least": 0.05, "seeds": 2})
    True
    """
    if difference["seeds"] < FEWEST_FOR_AN_INTERVAL:
        return bool(difference["least"] > 0)
    return bool(difference["mean"] > difference["half_width"])


def format_points(difference: Numbers) -> str:
    """Return a difference of accuracies in percentage points, with its error as far as known.

    >>> format_points({"mean": 0.123, "half_width": 0.05, "least": 0.1, "seeds": 3})
    '12.3 ± 5.0 points'
    >>> format_points({"mean": 0.123, "half_width": 0.2, "least": 0.1, "seeds": 3})
    '12.3 ± 20.0 points (each seed at least 10.0)'
    >>> format_points({"mean": 0.123, "half_width": 0.6, "least": 0.1, "seeds": 2})
    '12.3 points (two seeds, at least 10.0)'
    """
    text = f"{100 * difference['mean']:.1f}"
    if difference["seeds"] == 1:
        return f"{text} points (one seed)"
    if difference["seeds"] < FEWEST_FOR_AN_INTERVAL:
        return f"{text} points (two seeds, at least {100 * difference['least']:.1f})"
    text += f" ± {100 * difference['half_width']:.1f} points"
    # Three seeds that agree may still leave zero in a wide interval, so both are stated.
    if not is_surely_positive(difference) and difference["least"] > 0:
        text += f" (each seed at least {100 * difference['least']:.1f})"
    return text


def describe_training(data: Numbers) -> str:
    """Return what an accuracy figure was trained on, as a sentence."""
    settings = data["settings"]
    model = f"{settings['model']} at width {settings['arguments']['width']}"
    datasets = " and ".join(DATASET_NAMES[name] for name in settings["datasets"])
    return f"{model} on {datasets}, {describe_length(settings)}, {describe_seeds(data)}."


def describe_length(settings: Numbers) -> str:
    """Return the length of a figure's trainings.

    >>> describe_length({"rounds": 6, "iterations_per_round": 5})
    '6 rounds of 5 iterations'
    >>> describe_length({"epochs": {"mnist": 8}})
    '8 passes over MNIST'
    """
    if "rounds" in settings:
        return f"{settings['rounds']} rounds of {settings['iterations_per_round']} iterations"
    return " and ".join(
        f"{passes} passes over {DATASET_NAMES[dataset]}"
        for dataset, passes in settings["epochs"].items()
    )


def describe_seeds(data: Numbers) -> str:
    """Return the number of seeds of a figure's curves, and which curves have more than others.

    >>> def panel(devices, seeds):
    ...     curve = {"seeds": seeds}
    ...     return {"dataset": "mnist", "devices": devices, "sfl": curve, "fedavg": curve}
    >>> describe_seeds({"panels": [panel(5, 1), panel(20, 3)]})
    '3 seeds (20 devices), one seed elsewhere'
    >>> describe_seeds({"panels": [panel(20, 3)]})
    '3 seeds'
    """
    curves = [
        (place, "one seed" if seeds == 1 else f"{seeds} seeds")
        for panel in data["panels"]
        for place, seeds in _seeds_by_curve(panel)
    ]
    # Name no more of a curve's place than it takes to know its number of seeds.
    for length in range(1 + len(curves[0][0])):
        named = {(", ".join(place[:length]), count) for place, count in curves}
        if len({name for name, _ in named}) == len(named):
            break
    names_by_count: dict[str, list[str]] = {}
    for place, count in curves:
        names = names_by_count.setdefault(count, [])
        name = ", ".join(place[:length])
        if name not in names:
            names.append(name)

    # The count with the most names is what the others are exceptions from.
    *others, usual = sorted(names_by_count, key=lambda count: (len(names_by_count[count]), count))
    if not others:
        return usual
    groups = [f"{count} ({'; '.join(names_by_count[count])})" for count in others]
    return f"{', '.join(groups)}, {usual} elsewhere"


def _seeds_by_curve(panel: Numbers) -> Iterator[tuple[tuple[str, ...], int]]:
    """Yield the place of each curve of a panel, the most specific part first, and its seeds."""
    dataset = DATASET_NAMES[panel["dataset"]]
    if "devices" in panel:
        # Figure 9 has a curve for each scheme; figure 10, below, one for each split.
        for scheme, name in (("sfl", "SFL"), ("fedavg", "FedAvg")):
            yield (f"{panel['devices']} devices", dataset, name), panel[scheme]["seeds"]
    else:
        partition = PARTITION_NAMES[panel["partition"]]
        for curve in panel["curves"]:
            yield (f"ℓ = {curve['split']}", dataset, partition), curve["seeds"]


def describe_means(data: Numbers) -> str:
    """Return which seeds lines and bands stand for, as a sentence."""
    seeds = describe_seeds(data)
    if seeds == "one seed":
        return "One seed."
    return f"Means and ranges of {seeds}."


def describe_tests(settings: Numbers) -> str:
    """Return how many models are tested on how many samples, as a sentence.

    >>> describe_tests({"evaluate_devices": 5})
    'Tested: up to 5 models.'
    >>> describe_tests({"evaluate_devices": 10, "evaluate_samples": 2000})
    'Tested: up to 10 models on 2,000 samples each, at the end all on all.'
    """
    models = f"Tested: up to {settings['evaluate_devices']} models"
    if "evaluate_samples" not in settings:
        return f"{models}."
    return f"{models} on {settings['evaluate_samples']:,} samples each, at the end all on all."
