"""The paper's claims, each judged by a stated criterion on the numbers of its figures.

A judgment sees only figures that were drawn. It returns a sentence, and whether the claim holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from airsplit.paper import claim_text
from airsplit.paper.claim_text import Numbers
from airsplit.paper.rounds import SCHEMES
from airsplit.plots.style import DATASET_NAMES, MODEL_NAMES, PARTITION_NAMES, format_plain

# The numbers of each drawn figure.
Drawn = Mapping[int, Numbers]
# What was measured, and whether the claim holds.
Verdict = tuple[str, bool]

# The paper states these numbers: parts of all MACs (C1) and of FedAvg's time (C7).
FEWEST_CONVOLUTIONS = 0.9
SAVING_OF_VGG = 0.75
# These words of the paper needed a number, which is ours.
# "Tends to fall" (C2), as a rank correlation: it may rise at some layers.
FALLING_TREND = -0.8
# "Changes nothing" (C6), as a part of the devices: a near tie may go either way.
NEGLIGIBLE = 0.01
# "Clearly below" (C8), as a saving.
CLEARLY_BELOW = 0.25
# "A little above" (C8) and "strongly" (C12), as ratios.
A_LITTLE_ABOVE = 2.0
STRONGLY = 2.0


@dataclass(frozen=True)
class Claim:
    """A judged claim of the paper: what was measured, and whether it holds."""

    id: str
    claim: str
    measured: str
    holds: bool


@dataclass(frozen=True)
class Statement:
    """A claim to judge.

    Attributes:
        figures: Figures with the numbers that it needs. Any of them is enough.
        judge: Judges the claim by those of its figures that were drawn.
    """

    id: str
    claim: str
    figures: tuple[int, ...]
    judge: Callable[[Drawn], Verdict]


def judge_claims(drawn: Drawn) -> list[Claim]:
    """Judge the claims of the drawn figures, in order."""
    claims = []
    for statement in STATEMENTS:
        numbers = {number: drawn[number] for number in statement.figures if number in drawn}
        if not numbers:
            continue
        measured, holds = statement.judge(numbers)
        missing = ", ".join(str(number) for number in statement.figures if number not in drawn)
        if missing:
            measured += f" Judged without figure {missing}, which was not drawn."
        # numpy's booleans are no JSON.
        claims.append(Claim(statement.id, statement.claim, measured, bool(holds)))
    return claims


def judge_convolutions(drawn: Drawn) -> Verdict:
    """Judge C1: convolutions are more than 90 % of the MACs, with and without light operations."""
    is_convolution = np.array([name.startswith("conv") for name in drawn[3]["layers"]])
    # Published counts leave the light operations out.
    products = np.diff(drawn[3]["matmul_macs"], prepend=0)
    work = np.array(drawn[3]["layer_macs"])
    of_products = float(products[is_convolution].sum() / products.sum())
    of_all = float(work[is_convolution].sum() / work.sum())
    measured = (
        f"{100 * of_products:.1f} % of the MACs of convolutions and matrix products, "
        f"{100 * of_all:.1f} % when the light operations count too."
    )
    return measured, min(of_products, of_all) > FEWEST_CONVOLUTIONS


def judge_output_sizes(drawn: Drawn) -> Verdict:
    """Judge C2: the rank correlation of depth and output size is below -0.8. List the rises."""
    layers = drawn[3]["layers"]
    sizes = drawn[3]["activation_elements"]
    correlation = rank_correlation(range(len(sizes)), sizes)
    rises = [
        f"{layers[i + 1]} ({i + 2})"
        for i, (size, next_size) in enumerate(pairwise(sizes))
        if next_size > size
    ]
    exceptions = f"it rises at {', '.join(rises)}" if rises else "it never rises"
    measured = f"Spearman's rank correlation with depth is {correlation:.2f}; {exceptions}."
    return measured, correlation < FALLING_TREND


def judge_split_over_distance(drawn: Drawn) -> Verdict:
    """Judge C3: no median split falls as the distance grows, and for each model some rise."""
    parts = []
    holds = True
    for data in drawn.values():
        # Medians over fleets, for each pace and method. A curve may be flat: the distance then has
        # no effect within the limit.
        medians = [curve["mean_split"]["median"] for curve in data["curves"]]
        falling = sum(any(far < near for near, far in pairwise(splits)) for splits in medians)
        rising = sum(splits[-1] > splits[0] for splits in medians)
        holds = holds and falling == 0 and rising > 0
        shallowest = min(splits[0] for splits in medians)
        deepest = max(splits[-1] for splits in medians)
        distances_m = claim_text.format_span(data["mean_distances_m"], ",g")
        parts.append(
            f"{claim_text.describe_model(data)}, {distances_m} m: of {len(medians)} median curves "
            f"(pace × method) {rising} rise (from {shallowest:.3g} to {deepest:.3g}), {falling} "
            "fall, the others stay; single fleets whose split falls somewhere: "
            f"{claim_text.describe_falling_fleets(data)}."
        )
    return " ".join(parts), holds


def judge_split_over_speed(drawn: Drawn) -> Verdict:
    """Judge C4: a slower group never splits deeper than a faster one, and sometimes less deep.

    The groups, at each distance and for each method: fleets of one pace by their medians, and in
    mixed fleets the slowest and the fastest quarter by their means.
    """
    parts = []
    holds = True
    for data in drawn.values():
        pairs = [
            pair
            for curves in claim_text.curves_by_method(data)
            for pair in claim_text.compare_paces(curves)
        ]
        deeper = sum(slow > fast for fast, slow in pairs)
        earlier = sum(slow < fast for fast, slow in pairs)
        holds = holds and deeper == 0 and earlier > 0
        parts.append(
            f"{claim_text.describe_model(data)}: in {len(pairs)} comparisons of a faster with a "
            f"slower group, the slower one splits earlier in {earlier}, later in {deeper}, at the "
            "same layer in the others; in mixed fleets the fastest quarter is "
            f"{claim_text.describe_widest_gap(data)}."
        )
    return " ".join(parts), holds


def judge_latency(drawn: Drawn) -> Verdict:
    """Judge C5: the median of max_k E[τ_k] rises with every step of distance and of a.

    a is the same for all devices. The paper's algorithms minimize this latency; E[max_k τ_k] of the
    same plans is reported as well.
    """
    parts = []
    holds = True
    for data in drawn.values():
        # E[max] does not decide: the plans do not minimize it, and faster devices may take a deeper
        # split that fluctuates more.
        exceptions = claim_text.find_latency_exceptions(data, "mean_latency_s")
        unplanned = claim_text.find_latency_exceptions(data, "expected_latency_s")
        holds = holds and not exceptions
        parts.append(
            f"{claim_text.describe_model(data)}: exceptions in max E[τ]: "
            f"{'; '.join(exceptions) or 'none'}; in E[max τ] of the same plans: "
            f"{'; '.join(unplanned) or 'none'}."
        )
    return " ".join(parts), holds


def judge_limit(drawn: Drawn) -> Verdict:
    """Judge C6: for every speed, L̂, model and method, L̂ affects at most 1 % of the devices early.

    Early: a device splits before the deepest useful split within L̂, but elsewhere than without a
    limit.
    """
    parts = []
    worst = 0.0
    for panel in drawn[6]["panels"]:
        # Parts of the devices, as limits × speeds.
        affected = np.array([curve["differs_before_limit"] for curve in panel["curves"]])
        row, column = np.unravel_index(int(affected.argmax()), affected.shape)
        largest = float(affected[row, column])
        worst = max(worst, largest)
        text = f"{MODEL_NAMES[panel['model']]}, {panel['method']}: {100 * largest:.0f} %"
        if largest > 0:
            limit = panel["curves"][row]["max_split"]
            speed = drawn[6]["macs_per_second"][column]
            text += f" (L̂ = {limit}, {speed / 1e9:g} GMAC/s)"
        parts.append(text)
    measured = (
        "Devices short of the limit that split elsewhere than without it, at the worst speed and "
        f"L̂, at {drawn[6]['settings']['mean_distance_m']} m: {'; '.join(parts)}."
    )
    return measured, worst <= NEGLIGIBLE


def judge_vgg_against_fedavg(drawn: Drawn) -> Verdict:
    """Judge C7 for VGG16, with 224×224 and with 32×32 inputs, at every condition drawn.

    As medians over fleets, SFL's compute time and air time are below FedAvg's, and the total saves
    more than 75 %.
    """
    entries = [
        (data, entry)
        for data in drawn.values()
        for entry in data["models"]
        if entry["model"].startswith("vgg16")
    ]
    sentences = []
    holds = True
    for data, entry in entries:
        # "Transmit time" as air time: devices with time to spare send slowly on purpose, so how
        # long they transmit says little about what sending costs.
        parts = {
            "Compute time below": [ratio < 1 for ratio in entry["compute_ratio"]["median"]],
            "air time below": [ratio < 1 for ratio in entry["air_time_ratio"]["median"]],
            "saving above 75 %": [saving > SAVING_OF_VGG for saving in entry["saving"]["median"]],
        }
        holds = holds and all(all(part) for part in parts.values())
        verdict = ", ".join(
            f"{part} {claim_text.describe_conditions(data, held)}" for part, held in parts.items()
        )
        sentences.append(f"{claim_text.compare_with_fedavg(data, entry)} {verdict}.")
    return " ".join(sentences), holds


def judge_alexnet_against_fedavg(drawn: Drawn) -> Verdict:
    """Judge C8 for AlexNet: the total saves over 25 % at every condition drawn.

    And on the best channel drawn (figure 7), SFL's air time is above FedAvg's, but at most twice as
    long.
    """
    entries = {
        number: next(entry for entry in data["models"] if entry["model"] == "alexnet")
        for number, data in drawn.items()
    }
    holds = all(min(entry["saving"]["median"]) > CLEARLY_BELOW for entry in entries.values())
    if 7 in entries:
        # "On good channels": the first condition is the shortest distance.
        holds = holds and 1 < entries[7]["air_time_ratio"]["median"][0] <= A_LITTLE_ABOVE
    sentences = (
        claim_text.compare_with_fedavg(drawn[number], entry) for number, entry in entries.items()
    )
    return " ".join(sentences), holds


def judge_split_point(drawn: Drawn) -> Verdict:
    """Judge C12: the worst split's median latency is at least twice the best's, for every curve."""
    parts = []
    least = np.inf
    for entry in drawn[11]["models"]:
        for curve in entry["curves"]:
            # Without the last split, which averages nothing and so is no option.
            latency_s = curve["total_s"]["median"][:-1]
            best = int(np.argmin(latency_s))
            worst = int(np.argmax(latency_s))
            ratio = latency_s[worst] / latency_s[best]
            least = min(least, ratio)
            parts.append(
                f"{MODEL_NAMES[entry['model']]} at {curve['mean_distance_m']} m {ratio:.1f} "
                f"({entry['layers'][worst]} over {entry['layers'][best]})"
            )
    measured = f"Worst over best split, the last one left out: {'; '.join(parts)}."
    return measured, least >= STRONGLY


def judge_accuracy_over_time(drawn: Drawn) -> Verdict:
    """Judge C9: SFL is ahead at each evaluation on average over seeds, and surely at its end.

    For every data set and number of devices. Surely: the 95 % interval of the difference, seed by
    seed, is above zero; with fewer than three seeds, each difference is. FedAvg counts with its
    best accuracy so far, and with guessing before its first round is over.
    """
    parts = []
    holds = True
    for panel in drawn[9]["panels"]:
        # Certainty is required once, at the end: of many intervals some would fail by chance.
        ahead = [difference["mean"] for difference in panel["sfl_ahead"]]
        end = panel["sfl_ahead"][-1]
        holds = holds and min(ahead) > 0 and claim_text.is_surely_positive(end)
        parts.append(
            f"{DATASET_NAMES[panel['dataset']]}, {panel['devices']} devices: "
            f"SFL ends {_describe_end(panel['sfl'])}, and is then "
            f"{claim_text.format_points(end)} ahead of FedAvg (at the least "
            f"{100 * min(ahead):.1f} before), which ends {_describe_end(panel['fedavg'])}."
        )
    return f"{claim_text.describe_training(drawn[9])} {' '.join(parts)}", holds


def _describe_end(curve: Numbers) -> str:
    """Return time, in three digits, and accuracy at the end of a curve, as means over seeds.

    >>> _describe_end({"virtual_time_s": [[5.0, 28165.8]], "test_accuracy": [[0.1, 0.875]]})
    'after 28,200 s at 87.5 %'
    """
    time_s = np.mean(curve["virtual_time_s"], axis=0)[-1]
    accuracy = 100 * np.mean(curve["test_accuracy"], axis=0)[-1]
    return f"after {format_plain(float(f'{time_s:.3g}'))} s at {accuracy:.1f} %"


def judge_number_of_devices(drawn: Drawn) -> Verdict:
    """Judge C10: the most devices are surely less accurate than the fewest.

    For SFL and FedAvg, on every data set, after as many rounds or passes over the training set as
    the figure says.
    """
    devices = drawn[9]["settings"]["devices"]
    parts = []
    holds = True
    for gains in drawn[9]["fewer_devices_gains"]:
        by_scheme = {scheme: gain for scheme, gain in gains.items() if scheme != "dataset"}
        holds = holds and all(claim_text.is_surely_positive(gain) for gain in by_scheme.values())
        texts = ", ".join(
            f"{SCHEMES[scheme][0]} {claim_text.format_points(gain)}"
            for scheme, gain in by_scheme.items()
        )
        parts.append(f"{DATASET_NAMES[gains['dataset']]}: {texts}")
    measured = (
        f"{claim_text.describe_training(drawn[9])} Accuracy of {devices[0]} devices above that of "
        f"{devices[-1]} at the end: {'; '.join(parts)}."
    )
    return measured, holds


def judge_split_depth(drawn: Drawn) -> Verdict:
    """Judge C11: the deep split is surely less accurate, and surely loses more on non-IID data.

    On every data set, the former with both partitions.
    """
    data = drawn[10]
    parts = []
    holds = True
    for more in data["non_iid_gains_over_iid"]:
        # `more` is the loss on non-IID data less that on IID data, seed by seed.
        panels = [panel for panel in data["panels"] if panel["dataset"] == more["dataset"]]
        differences = [*(panel["shallow_gain"] for panel in panels), more]
        holds = holds and all(map(claim_text.is_surely_positive, differences))
        losses = "; ".join(_describe_loss(panel) for panel in panels)
        parts.append(
            f"{DATASET_NAMES[more['dataset']]}: {losses}; non-IID more than IID by "
            f"{claim_text.format_points(more)}."
        )
    splits = ", ".join(str(split) for split in data["settings"]["splits"])
    measured = (
        f"{claim_text.describe_training(data)} Accuracy at the end with ℓ = {splits}: "
        f"{' '.join(parts)}"
    )
    return measured, holds


def _describe_loss(panel: Numbers) -> str:
    """Return the final accuracy of each split of a partition, and what the deepest loses."""
    ends = [np.mean(curve["test_accuracy"], axis=0)[-1] for curve in panel["curves"]]
    percents = ", ".join(f"{100 * end:.1f}" for end in ends)
    loss = claim_text.format_points(panel["shallow_gain"])
    return f"{PARTITION_NAMES[panel['partition']]} {percents} %, so the deepest loses {loss}"


def rank_correlation(x: Sequence[float], y: Sequence[float]) -> float:
    """Return Spearman's rank correlation, with ties at their mean rank.

    >>> rank_correlation([1, 2, 3, 4], [9, 7, 7, 1]) < -0.9
    True
    """
    # A value's rank is the number of smaller ones plus half the number of equal ones. Sequences are
    # a model's layers, so that all pairs are few; scipy would take longer to load.
    ranks = [
        (v[:, None] > v).sum(axis=1) + 0.5 * (v[:, None] == v).sum(axis=1)
        for v in (np.asarray(x), np.asarray(y))
    ]
    return float(np.corrcoef(*ranks)[0, 1])


# All claims, in the words of this reproduction and the order of the paper.
STATEMENTS = (
    Statement("C1", "Convolutions are more than 90 % of AlexNet's MACs.", (3,), judge_convolutions),
    Statement("C2", "The data sent tends to fall with depth.", (3,), judge_output_sizes),
    Statement("C3", "Shorter distance: split nearer the input.", (4, 5), judge_split_over_distance),
    Statement("C4", "Slower devices: split nearer the input.", (4, 5), judge_split_over_speed),
    Statement(
        "C5", "Latency falls with faster devices and shorter distance.", (4, 5), judge_latency
    ),
    Statement("C6", "L̂ changes nothing until it binds.", (6,), judge_limit),
    Statement(
        "C7",
        "VGG16: compute and transmit time both below FedAvg's, total saving above 75 %.",
        (7, 8),
        judge_vgg_against_fedavg,
    ),
    Statement(
        "C8",
        "AlexNet: total clearly below FedAvg's, transmit time a little above it on good channels.",
        (7, 8),
        judge_alexnet_against_fedavg,
    ),
    Statement(
        "C9",
        "SFL reaches higher accuracy than FL in the same time.",
        (9,),
        judge_accuracy_over_time,
    ),
    Statement("C10", "More devices: lower accuracy.", (9,), judge_number_of_devices),
    Statement(
        "C11", "Larger ℓ: lower accuracy, more so for non-IID data.", (10,), judge_split_depth
    ),
    Statement("C12", "Latency depends strongly on the split point.", (11,), judge_split_point),
)
