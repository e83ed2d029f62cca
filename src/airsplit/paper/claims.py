"""The paper's claims, each judged by a stated criterion on the numbers of the figures that carry it.

A judgement sees the figures that were drawn, never other numbers, and returns a sentence and whether the claim holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from airsplit.paper import wording
from airsplit.paper.comparison import SCHEMES
from airsplit.paper.wording import Numbers
from airsplit.plots.style import DATASET_NAMES, MODEL_NAMES, PARTITION_NAMES, format_plain

Drawn = Mapping[int, Numbers]
"""The numbers of each drawn figure."""

Verdict = tuple[str, bool]

SAVING_OF_VGG = 0.75
CLEARLY_BELOW = 0.25
A_LITTLE_ABOVE = 2.0
STRONGLY = 2.0


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, what was measured, and whether it holds."""

    id: str
    claim: str
    measured: str
    holds: bool


@dataclass(frozen=True)
class Statement:
    """A claim before it is judged: the figures that carry it, any of which is enough, and its judgement."""

    id: str
    claim: str
    figures: tuple[int, ...]
    judge: Callable[[Drawn], Verdict]


def judged(drawn: Drawn) -> list[Claim]:
    """The claims that the drawn figures carry, in order."""
    return [
        _claim(statement, drawn)
        for statement in STATEMENTS
        if any(n in drawn for n in statement.figures)
    ]


def _claim(statement: Statement, drawn: Drawn) -> Claim:
    here = {number: drawn[number] for number in statement.figures if number in drawn}
    missing = ", ".join(str(number) for number in statement.figures if number not in drawn)
    measured, holds = statement.judge(here)
    note = f" Judged without figure {missing}, which was not drawn." if missing else ""
    return Claim(statement.id, statement.claim, measured + note, bool(holds))


def convolutions_dominate(drawn: Drawn) -> Verdict:
    """C1 holds if convolutions are more than 90 % of the MACs, with and without the light operations."""
    convolution = np.array([name.startswith("conv") for name in drawn[3]["layers"]])
    products, work = np.diff(drawn[3]["matmul_macs"], prepend=0), np.array(drawn[3]["layer_macs"])
    share, of_all = (float(w[convolution].sum() / w.sum()) for w in (products, work))
    measured = f"{100 * share:.1f} % of the MACs of convolutions and matrix products, {100 * of_all:.1f} % when the light operations count too."
    return measured, min(share, of_all) > 0.9


def output_shrinks(drawn: Drawn) -> Verdict:
    """C2 holds if the rank correlation of depth and output size is below -0.8; rises from layer to layer are listed."""
    layers, sizes = drawn[3]["layers"], drawn[3]["activation_elements"]
    correlation = rank_correlation(range(len(sizes)), sizes)
    rises = [
        f"{layers[i + 1]} ({i + 2})"
        for i, (one, other) in enumerate(pairwise(sizes))
        if other > one
    ]
    exceptions = f"it rises at {', '.join(rises)}" if rises else "it never rises"
    return (
        f"Spearman's rank correlation with depth is {correlation:.2f}; {exceptions}.",
        correlation < -0.8,
    )


def nearer_splits_earlier(drawn: Drawn) -> Verdict:
    """C3 holds if no median split falls as the distance grows, and for each model some rises."""
    parts, holds = [], True
    for data in drawn.values():
        medians = [curve["mean_split"]["median"] for curve in data["curves"]]
        falling = sum(any(b < a for a, b in pairwise(m)) for m in medians)
        rising = [m for m in medians if m[-1] > m[0]]
        holds = holds and falling == 0 and bool(rising)
        ends = f"from {min(m[0] for m in medians):.3g} to {max(m[-1] for m in medians):.3g}"
        parts.append(
            f"{wording.setting(data)}, {wording.span(data['mean_distances_m'], ',g')} m: of {len(medians)} median "
            f"curves (pace × method) {len(rising)} rise ({ends}), {falling} fall, the others stay; "
            f"single fleets whose split falls somewhere: {wording.unruly(data)}."
        )
    return " ".join(parts), holds


def slower_splits_earlier(drawn: Drawn) -> Verdict:
    """C4 holds if a slower group is nowhere split deeper than a faster one, and for each model somewhere less deep.

    The groups, at each distance and for each method: fleets of one pace by their medians, and in mixed fleets the
    slowest and the fastest quarter by their means.
    """
    parts, holds = [], True
    for data in drawn.values():
        pairs = [
            pair for curves in wording.by_method(data) for pair in wording.faster_and_slower(curves)
        ]
        deeper, earlier = sum(s > f for f, s in pairs), sum(s < f for f, s in pairs)
        holds = holds and deeper == 0 and earlier > 0
        parts.append(
            f"{wording.setting(data)}: in {len(pairs)} comparisons of a faster with a slower group, the slower one "
            f"splits earlier in {earlier}, later in {deeper}, at the same layer in the others; in mixed fleets the "
            f"fastest quarter is {wording.widest_gap(data)}."
        )
    return " ".join(parts), holds


def better_is_faster(drawn: Drawn) -> Verdict:
    """C5 holds if the median of max_k E[τ_k] rises with every step of distance and of a, where a is the same for all.

    That is the latency which the paper's algorithms minimize; E[max_k τ_k] of the same plans is reported beside it.
    """
    parts, holds = [], True
    for data in drawn.values():
        wrong = wording.latency_exceptions(data, "mean_latency_s")
        holds = holds and wrong == "none"
        parts.append(
            f"{wording.setting(data)}: exceptions in max E[τ]: {wrong}; "
            f"in E[max τ] of the same plans: {wording.latency_exceptions(data, 'expected_latency_s')}."
        )
    return " ".join(parts), holds


def limit_is_silent(drawn: Drawn) -> Verdict:
    """C6 holds if at every speed, for every L̂, model and method, at most 1 % of the devices are unlike.

    A device is unlike if it is short of the deepest useful split within L̂, yet splits elsewhere than without a limit.
    """
    parts, worst = [], 0.0
    for panel in drawn[6]["panels"]:
        shares = np.array([curve["differs_before_limit"] for curve in panel["curves"]])
        c, f = np.unravel_index(int(shares.argmax()), shares.shape)
        worst = max(worst, float(shares[c, f]))
        limit, speed = panel["curves"][c]["max_split"], drawn[6]["macs_per_second"][f]
        where = f" (L̂ = {limit}, {speed / 1e9:g} GMAC/s)" if shares[c, f] > 0 else ""
        parts.append(
            f"{MODEL_NAMES[panel['model']]}, {panel['method']}: {100 * shares[c, f]:.0f} %{where}"
        )
    lead = "Devices short of the limit that split elsewhere than without it, at the worst speed and L̂, at "
    return f"{lead}{drawn[6]['settings']['mean_distance_m']} m: {'; '.join(parts)}.", worst <= 0.01


def vgg_beats_fedavg(drawn: Drawn) -> Verdict:
    """C7 holds if for VGG16, with 224×224 and with 32×32 inputs, all three parts hold at every condition drawn.

    The parts, as medians over fleets: SFL's compute time is below FedAvg's, its air time is below FedAvg's, and the
    total saves more than 75 %.
    """
    entries = [
        (data, e)
        for data in drawn.values()
        for e in data["models"]
        if e["model"].startswith("vgg16")
    ]
    sentences, holds = [], True
    for data, entry in entries:
        parts = {
            "Compute time below": [ratio < 1 for ratio in entry["compute_ratio"]["median"]],
            "air time below": [ratio < 1 for ratio in entry["air_time_ratio"]["median"]],
            "saving above 75 %": [saving > SAVING_OF_VGG for saving in entry["saving"]["median"]],
        }
        holds = holds and all(all(part) for part in parts.values())
        verdict = ", ".join(
            f"{part} {wording.conditions_where(data, where)}" for part, where in parts.items()
        )
        sentences.append(f"{wording.against_fedavg(data, entry)} {verdict}.")
    return " ".join(sentences), holds


def alexnet_beats_fedavg(drawn: Drawn) -> Verdict:
    """C8 holds if for AlexNet the total saves over 25 % at every condition drawn, and the air time is a little above.

    A little: on the best channel drawn (figure 7) SFL's air time is above FedAvg's, but at most twice as long.
    """
    entries = {
        number: next(e for e in data["models"] if e["model"] == "alexnet")
        for number, data in drawn.items()
    }
    holds = all(min(e["saving"]["median"]) > CLEARLY_BELOW for e in entries.values())
    if 7 in entries:
        holds = holds and 1 < entries[7]["air_time_ratio"]["median"][0] <= A_LITTLE_ABOVE
    return " ".join(
        wording.against_fedavg(drawn[number], e) for number, e in entries.items()
    ), holds


def split_matters(drawn: Drawn) -> Verdict:
    """C12 holds if for each model and distance drawn the worst split's median latency is twice the best's or more."""
    parts, least = [], np.inf
    for entry in drawn[11]["models"]:
        for curve in entry["curves"]:
            latency = curve["total_s"]["median"][:-1]
            best, worst = int(np.argmin(latency)), int(np.argmax(latency))
            least = min(least, latency[worst] / latency[best])
            names = f"{entry['layers'][worst]} over {entry['layers'][best]}"
            where = f"{MODEL_NAMES[entry['model']]} at {curve['mean_distance_m']} m"
            parts.append(f"{where} {latency[worst] / latency[best]:.1f} ({names})")
    return f"Worst over best split, the last one left out: {'; '.join(parts)}.", least >= STRONGLY


def faster_than_fedavg(drawn: Drawn) -> Verdict:
    """C9 holds if on every data set and for every number of devices SFL is ahead, in the mean over seeds, whenever it is evaluated,
    and surely so at its end.

    Surely: the 95 % interval of the difference, seed by seed, is above zero; where there are fewer than three seeds, the difference of
    each is.  FedAvg counts with the best that it has had by then, and with guessing before its first round is over.
    """
    parts, holds = [], True
    for panel in drawn[9]["panels"]:
        ahead, end = [each["mean"] for each in panel["sfl_ahead"]], panel["sfl_ahead"][-1]
        holds = holds and min(ahead) > 0 and wording.surely_above(end)
        times = [
            np.mean(panel[scheme]["virtual_time_s"], axis=0)[-1] for scheme in ("sfl", "fedavg")
        ]
        last = [
            100 * np.mean(panel[scheme]["test_accuracy"], axis=0)[-1]
            for scheme in ("sfl", "fedavg")
        ]
        parts.append(
            f"{DATASET_NAMES[panel['dataset']]}, {panel['devices']} devices: SFL ends after {_seconds(times[0])} at {last[0]:.1f} %, and "
            f"is then {wording.points(end)} ahead of FedAvg (at the least {100 * min(ahead):.1f} before), which ends after "
            f"{_seconds(times[1])} at {last[1]:.1f} %."
        )
    return f"{wording.trained_on(drawn[9])} {' '.join(parts)}", holds


def _seconds(time_s: float) -> str:
    """Return a time in three digits.

    >>> _seconds(28165.8)
    '28,200 s'
    """
    return f"{format_plain(float(f'{time_s:.3g}'))} s"


def more_devices_are_worse(drawn: Drawn) -> Verdict:
    """C10 holds if the most devices are surely less accurate than the fewest, for SFL and for FedAvg, on every data set.

    They train as long: as many rounds, or as many passes over the training set, as the figure says.
    """
    given, parts, holds = drawn[9]["settings"], [], True
    few, many = given["devices"][0], given["devices"][-1]
    for gains in drawn[9]["fewer_devices_gains"]:
        found = {scheme: gain for scheme, gain in gains.items() if scheme != "dataset"}
        holds = holds and all(wording.surely_above(gain) for gain in found.values())
        gained = ", ".join(
            f"{SCHEMES[scheme][0]} {wording.points(gain)}" for scheme, gain in found.items()
        )
        parts.append(f"{DATASET_NAMES[gains['dataset']]}: {gained}")
    lead = (
        f"{wording.trained_on(drawn[9])} Accuracy of {few} devices above that of {many} at the end:"
    )
    return f"{lead} {'; '.join(parts)}.", holds


def deeper_splits_are_worse(drawn: Drawn) -> Verdict:
    """C11 holds if on every data set the deep split is surely less accurate with both partitions, and surely loses more when data are
    not IID."""
    data, parts, holds = drawn[10], [], True
    for more in data["non_iid_gains_over_iid"]:
        panels = [panel for panel in data["panels"] if panel["dataset"] == more["dataset"]]
        holds = holds and all(
            wording.surely_above(each)
            for each in (*(panel["shallow_gain"] for panel in panels), more)
        )
        each = "; ".join(
            f"{PARTITION_NAMES[panel['partition']]} {', '.join(f'{100 * end:.1f}' for end in _ends(panel))} %, so the deepest loses "
            f"{wording.points(panel['shallow_gain'])}"
            for panel in panels
        )
        parts.append(
            f"{DATASET_NAMES[more['dataset']]}: {each}; non-IID more than IID by {wording.points(more)}."
        )
    splits = ", ".join(str(split) for split in data["settings"]["splits"])
    return (
        f"{wording.trained_on(data)} Accuracy at the end with ℓ = {splits}: {' '.join(parts)}",
        holds,
    )


def _ends(panel: Numbers) -> list[float]:
    """The accuracy at the end of each curve."""
    return [float(np.mean(each["test_accuracy"], axis=0)[-1]) for each in panel["curves"]]


def rank_correlation(x: Sequence[float], y: Sequence[float]) -> float:
    """Spearman's: the correlation of the ranks, ties at their mean rank.

    >>> rank_correlation([1, 2, 3, 4], [9, 7, 7, 1]) < -0.9
    True
    """
    ranks = [
        (v[:, None] > v).sum(axis=1) + 0.5 * (v[:, None] == v).sum(axis=1)
        for v in (np.asarray(x), np.asarray(y))
    ]
    return float(np.corrcoef(*ranks)[0, 1])


STATEMENTS = (
    Statement(
        "C1", "Convolutions are more than 90 % of AlexNet's MACs.", (3,), convolutions_dominate
    ),
    Statement("C2", "The data sent tends to fall with depth.", (3,), output_shrinks),
    Statement("C3", "Shorter distance: split nearer the input.", (4, 5), nearer_splits_earlier),
    Statement("C4", "Slower devices: split nearer the input.", (4, 5), slower_splits_earlier),
    Statement(
        "C5", "Latency falls with faster devices and shorter distance.", (4, 5), better_is_faster
    ),
    Statement("C6", "L̂ changes nothing until it binds.", (6,), limit_is_silent),
    Statement(
        "C7",
        "VGG16: compute and transmit time both below FedAvg's, total saving above 75 %.",
        (7, 8),
        vgg_beats_fedavg,
    ),
    Statement(
        "C8",
        "AlexNet: total clearly below FedAvg's, transmit time a little above it on good channels.",
        (7, 8),
        alexnet_beats_fedavg,
    ),
    Statement(
        "C9", "SFL reaches higher accuracy than FL in the same time.", (9,), faster_than_fedavg
    ),
    Statement("C10", "More devices: lower accuracy.", (9,), more_devices_are_worse),
    Statement(
        "C11", "Larger ℓ: lower accuracy, more so for non-IID data.", (10,), deeper_splits_are_worse
    ),
    Statement("C12", "Latency depends strongly on the split point.", (11,), split_matters),
)
