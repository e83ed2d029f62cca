"""Parts of the sentences in which claims are measured, and the comparisons behind them."""

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

Numbers = dict[str, Any]

FASTEST, SLOWEST = "fastest_quarter_mean_split_over_all", "slowest_quarter_mean_split_over_all"
UNITS = {"mean_distance_m": "m", "nanoseconds_per_mac": "ns/MAC"}


def setting(data: Numbers) -> str:
    """The model and the limit of a figure over distances."""
    return f"{MODEL_NAMES[data['settings']['model']]} with L̂ = {data['settings']['max_split']}"


def span(values: Collection[float], form: str = ",.3g") -> str:
    """
    >>> span([0.25, 0.5]), span([8.7, 8.7004])
    ('0.25–0.5', '8.7')
    """
    low, high = (format(v, form) for v in (min(values), max(values)))
    return low if low == high else f"{low}–{high}"


def percents(values: Sequence[float]) -> str:
    """
    >>> percents([0.829, 0.8])
    '83, 80 %'
    """
    return ", ".join(f"{100 * v:.0f}" for v in values) + " %"


def is_mixed(curve: Numbers) -> bool:
    """Whether a curve's fleets mix fast and slow devices."""
    return isinstance(curve["seconds_per_mac"], list)


def by_method(data: Numbers) -> list[list[Numbers]]:
    """The curves of each method."""
    return [
        [c for c in data["curves"] if c["method"] == method]
        for method in data["settings"]["methods"]
    ]


def faster_and_slower(curves: list[Numbers]) -> Iterator[tuple[float, float]]:
    """Splits of a faster and a slower group at each distance: fleets of one pace, and the quarters of mixed fleets."""
    for faster, slower in pairwise(c for c in curves if not is_mixed(c)):
        yield from zip(faster["mean_split"]["median"], slower["mean_split"]["median"], strict=True)
    for curve in filter(is_mixed, curves):
        yield from zip(curve[FASTEST], curve[SLOWEST], strict=True)


def widest_gap(data: Numbers) -> str:
    """How much deeper the fastest quarter of mixed fleets splits than the slowest, where that is most."""
    mixed = next(c for c in data["curves"] if is_mixed(c) and c["method"] == "exact")
    gap = np.subtract(mixed[FASTEST], mixed[SLOWEST])
    return f"up to {gap.max():.2g} layers deeper than the slowest (at {data['mean_distances_m'][int(gap.argmax())]} m)"


def unruly(data: Numbers) -> str:
    """How many single fleets split earlier at some larger distance, of each method."""
    return ", ".join(
        f"{sum(c['fleets_with_falling_split'] for c in curves)} of {data['settings']['fleets'] * len(curves)} with {curves[0]['method']}"
        for curves in by_method(data)
    )


def latency_exceptions(data: Numbers, key: str) -> str:
    """Where a median latency does not rise with the distance or with a."""
    found = [*_not_rising_with_distance(data, key), *_not_rising_with_pace(data, key)]
    return "; ".join(found) if found else "none"


def _not_rising_with_distance(data: Numbers, key: str) -> Iterator[str]:
    for curve in data["curves"]:
        who = f"{curve['method']}, {format_pace(curve['seconds_per_mac'])}"
        for (d, one), (e, other) in pairwise(
            zip(data["mean_distances_m"], curve[key]["median"], strict=True)
        ):
            if other <= one:
                yield f"{who}: {one:.3g} s at {d} m but {other:.3g} s at {e} m"


def _not_rising_with_pace(data: Numbers, key: str) -> Iterator[str]:
    for curves in by_method(data):
        for faster, slower in pairwise(c for c in curves if not is_mixed(c)):
            fast, slow = (format_pace(c["seconds_per_mac"]) for c in (faster, slower))
            medians = faster[key]["median"], slower[key]["median"]
            for d, one, other in zip(data["mean_distances_m"], *medians, strict=True):
                if other <= one:
                    yield f"{faster['method']}, {d} m: {one:.3g} s with {fast} but {other:.3g} s with {slow}"


def conditions_where(data: Numbers, holds: Sequence[bool]) -> str:
    """At which conditions something holds.

    >>> data = {"values": [50, 100], "condition": "mean_distance_m"}
    >>> conditions_where(data, [True, True]), conditions_where(data, [False, True]), conditions_where(data, [False, False])
    ('everywhere', 'at 100 m only', 'nowhere')
    """
    if all(holds):
        return "everywhere"
    where = [format_plain(value) for value, good in zip(data["values"], holds, strict=True) if good]
    return f"at {', '.join(where)} {UNITS[data['condition']]} only" if where else "nowhere"


def against_fedavg(data: Numbers, entry: Numbers) -> str:
    """Every part of the comparison for one model, condition by condition."""
    conditions = (
        ", ".join(format_plain(value) for value in data["values"]) + f" {UNITS[data['condition']]}"
    )
    ratio = {
        key: span(entry[f"{key}_ratio"]["median"]) for key in ("compute", "air_time", "transmit")
    }
    return (
        f"{NAMES_WITH_INPUT[entry['model']]}, at {conditions}: SFL ÷ FedAvg is {ratio['compute']} in compute time, "
        f"{ratio['air_time']} in air time ({ratio['transmit']} in the devices' transmit time), "
        f"saving {percents(entry['saving']['median'])} ({percents(entry['expected_max_saving']['median'])} in E[max])."
    )


FEWEST_FOR_AN_INTERVAL = 3
"""With two seeds Student's interval is nine times as wide as they are apart: it says little."""


def surely_above(difference: Numbers) -> bool:
    """Return whether the whole 95 % interval of a difference is above zero; with fewer than three seeds, whether each of them is.

    >>> surely_above({"mean": 0.1, "half_width": 0.2, "least": 0.05, "seeds": 3})
    False
    >>> surely_above({"mean": 0.1, "half_width": 0.6, "least": 0.05, "seeds": 2})
    True
    """
    if difference["seeds"] < FEWEST_FOR_AN_INTERVAL:
        return bool(difference["least"] > 0)
    return bool(difference["mean"] > difference["half_width"])


def points(difference: Numbers) -> str:
    """Return a difference of accuracies in percentage points, with what is known of its error.

    >>> points({"mean": 0.123, "half_width": 0.05, "least": 0.1, "seeds": 3})
    '12.3 ± 5.0 points'
    >>> points({"mean": 0.123, "half_width": 0.2, "least": 0.1, "seeds": 3})
    '12.3 ± 20.0 points (each seed at least 10.0)'
    >>> points({"mean": 0.123, "half_width": 0.6, "least": 0.1, "seeds": 2})
    '12.3 points (two seeds, at least 10.0)'
    """
    text = f"{100 * difference['mean']:.1f}"
    if difference["seeds"] == 1:
        return f"{text} points (one seed)"
    if difference["seeds"] < FEWEST_FOR_AN_INTERVAL:
        return f"{text} points (two seeds, at least {100 * difference['least']:.1f})"
    text += f" ± {100 * difference['half_width']:.1f} points"
    if not surely_above(difference) and difference["least"] > 0:
        text += f" (each seed at least {100 * difference['least']:.1f})"
    return text


def trained_on(data: Numbers) -> str:
    """What an accuracy figure was trained on."""
    given = data["settings"]
    model = f"{given['model']} at width {given['arguments']['width']}"
    datasets = " and ".join(DATASET_NAMES[each] for each in given["datasets"])
    return f"{model} on {datasets}, {length_of_training(given)}, {seeds_text(data)}."


def length_of_training(given: Numbers) -> str:
    """How long trainings are, by the settings of a figure.

    >>> length_of_training({"rounds": 6, "iterations_per_round": 5}), length_of_training({"epochs": {"mnist": 8}})
    ('6 rounds of 5 iterations', '8 passes over MNIST')
    """
    if "rounds" in given:
        return f"{given['rounds']} rounds of {given['iterations_per_round']} iterations"
    return " and ".join(
        f"{passes} passes over {DATASET_NAMES[dataset]}"
        for dataset, passes in given["epochs"].items()
    )


def seeds_text(data: Numbers) -> str:
    """Return how many seeds the curves of a figure have, and which of them have more than others.

    >>> curves = {5: 1, 20: 3}
    >>> panels = [{"dataset": "mnist", "devices": k, "sfl": {"seeds": n}, "fedavg": {"seeds": n}} for k, n in curves.items()]
    >>> seeds_text({"panels": panels}), seeds_text({"panels": panels[1:]})
    ('3 seeds (20 devices), one seed elsewhere', '3 seeds')
    """
    found = [
        (where, _count_text(seeds)) for panel in data["panels"] for where, seeds in _seeds_of(panel)
    ]
    # name as little of where a curve is as tells its number of seeds
    for length in range(1 + len(found[0][0])):
        named = {(", ".join(where[:length]), count) for where, count in found}
        if len({name for name, _ in named}) == len(named):
            break
    groups = dict[str, list[str]]()
    for where, count in found:
        names = groups.setdefault(count, [])
        name = ", ".join(where[:length])
        if name not in names:
            names.append(name)
    *several, usual = sorted(groups, key=lambda count: (len(groups[count]), count))
    if not several:
        return usual
    return (
        ", ".join(f"{count} ({'; '.join(groups[count])})" for count in several)
        + f", {usual} elsewhere"
    )


def _seeds_of(panel: Numbers) -> Iterator[tuple[tuple[str, ...], int]]:
    """Yield where each curve of a panel is, the most telling part first, and its number of seeds."""
    dataset = DATASET_NAMES[panel["dataset"]]
    if "devices" in panel:
        for scheme, name in (("sfl", "SFL"), ("fedavg", "FedAvg")):
            yield (f"{panel['devices']} devices", dataset, name), panel[scheme]["seeds"]
    else:
        for each in panel["curves"]:
            yield (
                (f"ℓ = {each['split']}", dataset, PARTITION_NAMES[panel["partition"]]),
                each["seeds"],
            )


def _count_text(seeds: int) -> str:
    return "one seed" if seeds == 1 else f"{seeds} seeds"


def means_text(data: Numbers) -> str:
    """Return what lines and bands are means and ranges of, as a sentence."""
    seeds = seeds_text(data)
    return "One seed." if seeds == "one seed" else f"Means and ranges of {seeds}."


def tested_text(given: Numbers) -> str:
    """Return how many models are tested on how much, as a sentence.

    >>> tested_text({"evaluate_devices": 5})
    'Tested: up to 5 models.'
    >>> tested_text({"evaluate_devices": 10, "evaluate_samples": 2000})
    'Tested: up to 10 models on 2,000 samples each, at the end all on all.'
    """
    models = f"Tested: up to {given['evaluate_devices']} models"
    if "evaluate_samples" not in given:
        return f"{models}."
    return f"{models} on {given['evaluate_samples']:,} samples each, at the end all on all."
