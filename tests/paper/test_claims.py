"""Every judgement on crafted numbers: the claim can hold, and it can fail."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from airsplit.paper.claims import (
    judge_accuracy_over_time,
    judge_alexnet_against_fedavg,
    judge_claims,
    judge_convolutions,
    judge_latency,
    judge_limit,
    judge_number_of_devices,
    judge_output_sizes,
    judge_split_depth,
    judge_split_over_distance,
    judge_split_over_speed,
    judge_split_point,
    judge_vgg_against_fedavg,
    rank_correlation,
)


def flat(values: list[float]) -> dict[str, list[float]]:
    return {"median": values, "p10": values, "p90": values}


LAYERS = {
    3: {
        "layers": ["conv1", "pool1", "fc2"],
        "matmul_macs": [950, 950, 1000],
        "layer_macs": [950, 5, 50],
        "activation_elements": [90, 30, 10],
    }
}


def curve(pace: Any, splits: list[float], seconds: list[float]) -> dict[str, Any]:
    return {
        "seconds_per_mac": pace,
        "method": "exact",
        "mean_split": flat(splits),
        "slowest_quarter_mean_split_over_all": splits,
        "fastest_quarter_mean_split_over_all": [s + 1 for s in splits],
        "fleets_with_falling_split": 0,
        "mean_latency_s": flat(seconds),
        "expected_latency_s": flat(seconds),
    }


def distances() -> dict[int, dict[str, Any]]:
    settings = {"model": "alexnet", "max_split": 8, "fleets": 5, "methods": ["exact"]}
    curves = [
        curve(2e-10, [4, 8], [1, 3]),
        curve(1e-9, [4, 4], [2, 4]),
        curve([2e-10, 1e-9], [4, 6], [1.5, 3.5]),
    ]
    return {4: {"settings": settings, "mean_distances_m": [50, 400], "curves": curves}}


def limits(share: float) -> dict[int, dict[str, Any]]:
    curves = [
        {"max_split": 8, "differs_before_limit": [0.0, share]},
        {"max_split": None, "differs_before_limit": [0.0, 0.0]},
    ]
    panel = {"model": "alexnet", "method": "exact", "curves": curves}
    return {
        6: {"settings": {"mean_distance_m": 300}, "macs_per_second": [1e9, 4e9], "panels": [panel]}
    }


def comparison(model: str, **changes: list[float]) -> dict[str, Any]:
    entry = {
        "compute_ratio": [0.1, 0.1],
        "air_time_ratio": [1.5, 1.2] if model == "alexnet" else [0.6, 0.6],
        "transmit_ratio": [0.5, 0.5],
        "saving": [0.8, 0.8],
        "expected_max_saving": [0.7, 0.7],
    } | changes
    return {"model": model} | {key: flat(values) for key, values in entry.items()}


def rounds(*models: dict[str, Any]) -> dict[int, dict[str, Any]]:
    return {7: {"condition": "mean_distance_m", "values": [50, 400], "models": list(models)}}


def split_latencies(worst: float) -> dict[int, dict[str, Any]]:
    total = {"mean_distance_m": 50, "total_s": flat([worst, 1.0, 1.5, 0.1])}
    return {
        11: {"models": [{"model": "alexnet", "layers": ["a", "b", "c", "d"], "curves": [total]}]}
    }


def test_convolutions_dominate_or_do_not():
    measured, holds = judge_convolutions(LAYERS)
    assert holds
    assert measured.startswith("95.0 %")
    light = {3: LAYERS[3] | {"layer_macs": [950, 200, 50]}}
    assert not judge_convolutions(light)[1]


def test_the_output_shrinks_or_does_not_and_exceptions_are_listed():
    assert judge_output_sizes(LAYERS)[1]
    measured, holds = judge_output_sizes({3: LAYERS[3] | {"activation_elements": [10, 30, 90]}})
    assert not holds
    assert "rises at pool1 (2), fc2 (3)" in measured


def test_the_rank_correlation_takes_ties_at_their_mean_rank():
    # ranks 1, 2.5, 2.5, 4 against 1, 2, 3, 4: 4.5 / √(4.5 · 5)
    assert rank_correlation([1, 2, 3, 4], [0, 5, 5, 9]) == pytest.approx((4.5 / 5) ** 0.5)


def test_nearer_splits_earlier_needs_a_rise_and_no_fall():
    assert judge_split_over_distance(distances())[1]
    falling, still = distances(), distances()
    falling[4]["curves"][1]["mean_split"] = flat([4, 3])
    assert not judge_split_over_distance(falling)[1]
    for entry in still[4]["curves"]:
        entry["mean_split"] = flat([4, 4])
    assert not judge_split_over_distance(still)[1]


def test_slower_splits_earlier_fails_where_a_slower_fleet_or_quarter_is_deeper():
    measured, holds = judge_split_over_speed(distances())
    assert holds
    assert "in 4 comparisons" in measured
    deeper_fleet, deeper_quarter = distances(), distances()
    deeper_fleet[4]["curves"][1]["mean_split"] = flat([5, 4])
    deeper_quarter[4]["curves"][2]["slowest_quarter_mean_split_over_all"] = [9, 9]
    assert not judge_split_over_speed(deeper_fleet)[1]
    assert not judge_split_over_speed(deeper_quarter)[1]


def test_latency_must_rise_with_distance_and_pace():
    measured, holds = judge_latency(distances())
    assert holds
    assert "max E[τ]: none" in measured
    nearer_slower, faster_slower = distances(), distances()
    nearer_slower[4]["curves"][2]["mean_latency_s"] = flat([3.5, 3.5])
    faster_slower[4]["curves"][0]["mean_latency_s"] = flat([1, 5])
    assert not judge_latency(nearer_slower)[1]
    measured, holds = judge_latency(faster_slower)
    assert not holds
    assert "exact, 400 m: 5 s with 0.2 ns/MAC but 4 s with 1 ns/MAC" in measured


def test_an_exception_in_the_expected_maximum_is_reported_without_deciding():
    data = distances()
    data[4]["curves"][0]["expected_latency_s"] = flat([1, 5])
    measured, holds = judge_latency(data)
    assert holds
    assert "in E[max τ] of the same plans: exact, 400 m" in measured


def test_a_limit_that_matters_before_it_binds_is_found():
    assert judge_limit(limits(0.0))[1]
    measured, holds = judge_limit(limits(0.2))
    assert not holds
    assert "20 % (L̂ = 8, 4 GMAC/s)" in measured


@pytest.mark.parametrize(
    ("part", "values"),
    [("compute_ratio", [0.1, 1.1]), ("air_time_ratio", [8.7, 8.7]), ("saving", [0.83, 0.17])],
)
def test_each_part_of_the_vgg16_claim_can_fail_it(part, values):
    small = comparison("vgg16-3x32x32")
    assert judge_vgg_against_fedavg(rounds(comparison("vgg16"), small))[1]
    assert not judge_vgg_against_fedavg(rounds(comparison("vgg16", **{part: values}), small))[1]
    assert not judge_vgg_against_fedavg(
        rounds(comparison("vgg16"), comparison("vgg16-3x32x32", **{part: values}))
    )[1]


def test_the_vgg16_sentence_says_what_holds_where():
    data = rounds(comparison("vgg16", air_time_ratio=[8.7, 8.7], saving=[0.83, 0.17]))
    measured = judge_vgg_against_fedavg(data)[0]
    assert "saving 83, 17 %" in measured
    assert "air time below nowhere, saving above 75 % at 50 m only" in measured


@pytest.mark.parametrize(
    "changes",
    [{"saving": [0.8, 0.1]}, {"air_time_ratio": [0.9, 0.9]}, {"air_time_ratio": [5, 1.2]}],
)
def test_each_part_of_the_alexnet_claim_can_fail_it(changes):
    assert judge_alexnet_against_fedavg(rounds(comparison("alexnet")))[1]
    assert not judge_alexnet_against_fedavg(rounds(comparison("alexnet", **changes)))[1]


def test_the_split_matters_or_does_not_and_the_last_one_does_not_count():
    measured, holds = judge_split_point(split_latencies(4.0))
    assert holds
    assert "4.0 (a over b)" in measured
    assert not judge_split_point(split_latencies(1.9))[1]


def test_a_claim_says_which_of_its_figures_was_not_drawn():
    claims = judge_claims(distances() | LAYERS)
    assert [claim.id for claim in claims] == ["C1", "C2", "C3", "C4", "C5"]
    assert claims[0].measured.endswith("count too.")
    assert claims[2].measured.endswith("Judged without figure 5, which was not drawn.")


def test_both_models_must_satisfy_a_claim_of_two_figures():
    both = distances()
    both[5] = copy.deepcopy(both[4])
    both[5]["settings"]["model"] = "vgg16"
    assert judge_split_over_distance(both)[1]
    for entry in both[5]["curves"]:
        entry["mean_split"] = flat([5, 5])
    assert not judge_split_over_distance(both)[1]


def test_nothing_drawn_nothing_claimed():
    assert judge_claims({}) == []


TRAINED = {
    "model": "alexnet32",
    "arguments": {"width": 0.25},
    "datasets": ["digits"],
    "rounds": 2,
    "iterations_per_round": 5,
}
TRAINED |= {"devices": [5, 20]}
SURE, UNSURE, AGAINST = (
    {"mean": mean, "half_width": 0.1, "least": mean, "seeds": 3} for mean in (0.3, 0.05, -0.3)
)


def accuracies(
    ahead: list[dict[str, float]], gains: dict[str, dict[str, float]]
) -> dict[int, dict[str, Any]]:
    curve = {"seeds": 3, "virtual_time_s": [[1.0, 2.0]], "test_accuracy": [[0.5, 0.6]]}
    panel = {"dataset": "digits", "sfl_ahead": ahead, "sfl": curve, "fedavg": curve}
    panels = [{"devices": devices} | panel for devices in (5, 20)]
    return {
        9: {
            "settings": TRAINED,
            "panels": panels,
            "fewer_devices_gains": [{"dataset": "digits"} | gains],
        }
    }


@pytest.mark.parametrize(
    ("ahead", "holds"),
    [
        ([UNSURE, SURE], True),
        ([SURE, UNSURE], False),
        ([AGAINST, SURE], False),
        ([SURE, AGAINST], False),
    ],
)
def test_sfl_is_faster_if_it_is_ahead_always_and_surely_so_at_its_end(ahead, holds):
    measured, found = judge_accuracy_over_time(accuracies(ahead, {}))
    assert found is holds
    assert "3 seeds" in measured


@pytest.mark.parametrize(
    ("sfl", "fedavg", "holds"), [(SURE, SURE, True), (SURE, UNSURE, False), (AGAINST, SURE, False)]
)
def test_more_devices_are_worse_if_surely_so_for_both_schemes(sfl, fedavg, holds):
    measured, found = judge_number_of_devices(accuracies([], {"sfl": sfl, "fedavg": fedavg}))
    assert found is holds
    assert "± 10.0 points" in measured


@pytest.mark.parametrize(
    ("iid", "other", "more", "holds"),
    [
        (SURE, SURE, SURE, True),
        (UNSURE, SURE, SURE, False),
        (SURE, AGAINST, SURE, False),
        (SURE, SURE, UNSURE, False),
    ],
)
def test_deeper_splits_are_worse_if_surely_so_with_both_partitions_and_more_without_iid(
    iid, other, more, holds
):
    curves = [
        {"split": split, "seeds": 3, "test_accuracy": [[0.5, accuracy]]}
        for split, accuracy in ((4, 0.9), (15, 0.8))
    ]
    parts = {"iid": iid, "non-iid": other}
    panels = [
        {"dataset": "digits", "partition": name, "curves": curves, "shallow_gain": gain}
        for name, gain in parts.items()
    ]
    data = {
        "settings": TRAINED | {"splits": [4, 15]},
        "panels": panels,
        "non_iid_gains_over_iid": [{"dataset": "digits"} | more],
    }
    measured, found = judge_split_depth({10: data})
    assert found is holds
    assert "ℓ = 4, 15: digits: IID 90.0, 80.0 %" in measured


@pytest.mark.parametrize(("mean", "holds"), [(0.5, True), (-0.5, False)])
def test_with_one_seed_the_difference_itself_decides_and_it_is_said(mean, holds):
    lone = {"mean": mean, "half_width": None, "least": mean, "seeds": 1}
    measured, found = judge_number_of_devices(accuracies([], {"sfl": lone, "fedavg": lone}))
    assert found is holds
    assert "(one seed)" in measured


@pytest.mark.parametrize(("least", "holds"), [(0.2, True), (-0.1, False)])
def test_with_two_seeds_each_must_show_it(least, holds):
    # Student's interval of two values is nine times as wide as their distance: a second seed that
    # agrees must not undo the first.
    pair = {"mean": 0.3, "half_width": 1.3, "least": least, "seeds": 2}
    measured, found = judge_number_of_devices(accuracies([], {"sfl": pair, "fedavg": pair}))
    assert found is holds
    assert f"30.0 points (two seeds, at least {100 * least:.1f})" in measured


def test_curves_of_several_numbers_of_seeds_are_told_apart():
    drawn = accuracies([SURE], {})
    panel = drawn[9]["panels"][1]
    panel["fedavg"] = panel["fedavg"] | {"seeds": 1}
    assert (
        "one seed (20 devices, digits, FedAvg), 3 seeds elsewhere"
        in judge_accuracy_over_time(drawn)[0]
    )
