"""Every judgment on crafted numbers: the claim can hold, and it can fail."""

from __future__ import annotations

import copy

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
from paper.crafted_numbers import (
    AGAINST,
    LAYERS,
    SURE,
    TRAINING_SETTINGS,
    UNSURE,
    accuracies,
    comparison,
    distances,
    flat_band,
    limits,
    rounds,
    split_latencies,
)


def test_c1_needs_convolutions_to_dominate_with_and_without_light_operations():
    measured, holds = judge_convolutions(LAYERS)
    assert holds
    assert measured.startswith("95.0 %")

    with_light_operations = {3: LAYERS[3] | {"layer_macs": [950, 200, 50]}}
    assert not judge_convolutions(with_light_operations)[1]


def test_c2_fails_if_the_output_grows_and_the_rises_are_listed():
    assert judge_output_sizes(LAYERS)[1]

    measured, holds = judge_output_sizes({3: LAYERS[3] | {"activation_elements": [10, 30, 90]}})
    assert not holds
    assert "rises at pool1 (2), fc2 (3)" in measured


def test_the_rank_correlation_takes_ties_at_their_mean_rank():
    # Ranks 1, 2.5, 2.5, 4 against 1, 2, 3, 4: 4.5 / √(4.5 · 5).
    assert rank_correlation([1, 2, 3, 4], [0, 5, 5, 9]) == pytest.approx((4.5 / 5) ** 0.5)


def test_c3_needs_a_rise_and_no_fall():
    assert judge_split_over_distance(distances())[1]

    falling = distances()
    falling[4]["curves"][1]["mean_split"] = flat_band([4, 3])
    assert not judge_split_over_distance(falling)[1]

    constant = distances()
    for curve in constant[4]["curves"]:
        curve["mean_split"] = flat_band([4, 4])
    assert not judge_split_over_distance(constant)[1]


def test_c4_fails_if_a_slower_fleet_or_quarter_splits_deeper():
    measured, holds = judge_split_over_speed(distances())
    assert holds
    assert "in 4 comparisons" in measured

    deeper_fleet = distances()
    deeper_fleet[4]["curves"][1]["mean_split"] = flat_band([5, 4])
    assert not judge_split_over_speed(deeper_fleet)[1]

    deeper_quarter = distances()
    deeper_quarter[4]["curves"][2]["slowest_quarter_mean_split_over_all"] = [9, 9]
    assert not judge_split_over_speed(deeper_quarter)[1]


def test_c5_needs_latency_to_rise_with_distance_and_pace():
    measured, holds = judge_latency(distances())
    assert holds
    assert "max E[τ]: none" in measured

    constant = distances()
    constant[4]["curves"][2]["mean_latency_s"] = flat_band([3.5, 3.5])
    assert not judge_latency(constant)[1]

    slow_with_a_fast_pace = distances()
    slow_with_a_fast_pace[4]["curves"][0]["mean_latency_s"] = flat_band([1, 5])
    measured, holds = judge_latency(slow_with_a_fast_pace)
    assert not holds
    assert "exact, 400 m: 5 s with 0.2 ns/MAC but 4 s with 1 ns/MAC" in measured


def test_an_exception_in_the_expected_maximum_is_reported_but_does_not_decide():
    data = distances()
    data[4]["curves"][0]["expected_latency_s"] = flat_band([1, 5])
    measured, holds = judge_latency(data)
    assert holds
    assert "in E[max τ] of the same plans: exact, 400 m" in measured


def test_c6_fails_if_a_limit_matters_before_it_binds():
    assert judge_limit(limits(0.0))[1]

    measured, holds = judge_limit(limits(0.2))
    assert not holds
    assert "20 % (L̂ = 8, 4 GMAC/s)" in measured


@pytest.mark.parametrize(
    ("part", "values"),
    [("compute_ratio", [0.1, 1.1]), ("air_time_ratio", [8.7, 8.7]), ("saving", [0.83, 0.17])],
)
def test_any_part_of_c7_can_fail_it_at_either_input_size(part, values):
    large = comparison("vgg16")
    small = comparison("vgg16-3x32x32")
    assert judge_vgg_against_fedavg(rounds(large, small))[1]

    failing_large = comparison("vgg16", **{part: values})
    assert not judge_vgg_against_fedavg(rounds(failing_large, small))[1]

    failing_small = comparison("vgg16-3x32x32", **{part: values})
    assert not judge_vgg_against_fedavg(rounds(large, failing_small))[1]


def test_c7_reports_the_conditions_at_which_its_parts_hold():
    data = rounds(comparison("vgg16", air_time_ratio=[8.7, 8.7], saving=[0.83, 0.17]))
    measured = judge_vgg_against_fedavg(data)[0]
    assert "saving 83, 17 %" in measured
    assert "air time below nowhere, saving above 75 % at 50 m only" in measured


@pytest.mark.parametrize(
    "changes",
    [{"saving": [0.8, 0.1]}, {"air_time_ratio": [0.9, 0.9]}, {"air_time_ratio": [5, 1.2]}],
)
def test_any_part_of_c8_can_fail_it(changes):
    assert judge_alexnet_against_fedavg(rounds(comparison("alexnet")))[1]
    assert not judge_alexnet_against_fedavg(rounds(comparison("alexnet", **changes)))[1]


def test_c12_compares_the_worst_split_with_the_best_except_the_last():
    measured, holds = judge_split_point(split_latencies(4.0))
    assert holds
    assert "4.0 (a over b)" in measured
    assert not judge_split_point(split_latencies(1.9))[1]


def test_a_claim_names_its_figures_that_were_not_drawn():
    claims = judge_claims(distances() | LAYERS)
    assert [claim.id for claim in claims] == ["C1", "C2", "C3", "C4", "C5"]
    assert claims[0].measured.endswith("count too.")
    assert claims[2].measured.endswith("Judged without figure 5, which was not drawn.")


def test_a_claim_of_two_figures_must_hold_for_both_models():
    both = distances()
    both[5] = copy.deepcopy(both[4])
    both[5]["settings"]["model"] = "vgg16"
    assert judge_split_over_distance(both)[1]

    for curve in both[5]["curves"]:
        curve["mean_split"] = flat_band([5, 5])
    assert not judge_split_over_distance(both)[1]


def test_without_figures_no_claim_is_judged():
    assert judge_claims({}) == []


@pytest.mark.parametrize(
    ("ahead", "expected"),
    [
        ([UNSURE, SURE], True),
        ([SURE, UNSURE], False),
        ([AGAINST, SURE], False),
        ([SURE, AGAINST], False),
    ],
)
def test_c9_needs_sfl_ahead_at_all_times_and_surely_at_its_end(ahead, expected):
    measured, holds = judge_accuracy_over_time(accuracies(ahead, {}))
    assert holds is expected
    assert "3 seeds" in measured


@pytest.mark.parametrize(
    ("sfl", "fedavg", "expected"),
    [(SURE, SURE, True), (SURE, UNSURE, False), (AGAINST, SURE, False)],
)
def test_c10_needs_both_schemes_to_be_surely_worse_with_more_devices(sfl, fedavg, expected):
    measured, holds = judge_number_of_devices(accuracies([], {"sfl": sfl, "fedavg": fedavg}))
    assert holds is expected
    assert "± 10.0 points" in measured


@pytest.mark.parametrize(
    ("iid", "non_iid", "more", "expected"),
    [
        (SURE, SURE, SURE, True),
        (UNSURE, SURE, SURE, False),
        (SURE, AGAINST, SURE, False),
        (SURE, SURE, UNSURE, False),
    ],
)
def test_c11_needs_a_sure_loss_with_both_partitions_and_a_larger_one_with_non_iid_data(
    iid, non_iid, more, expected
):
    curves = [
        {"split": split, "seeds": 3, "test_accuracy": [[0.5, accuracy]]}
        for split, accuracy in ((4, 0.9), (15, 0.8))
    ]
    panels = [
        {"dataset": "digits", "partition": partition, "curves": curves, "shallow_gain": gain}
        for partition, gain in (("iid", iid), ("non-iid", non_iid))
    ]
    data = {
        "settings": TRAINING_SETTINGS | {"splits": [4, 15]},
        "panels": panels,
        "non_iid_gains_over_iid": [{"dataset": "digits"} | more],
    }
    measured, holds = judge_split_depth({10: data})
    assert holds is expected
    assert "ℓ = 4, 15: digits: IID 90.0, 80.0 %" in measured


@pytest.mark.parametrize(("mean", "expected"), [(0.5, True), (-0.5, False)])
def test_with_one_seed_its_difference_decides_and_the_sentence_says_so(mean, expected):
    gain = {"mean": mean, "half_width": None, "least": mean, "seeds": 1}
    measured, holds = judge_number_of_devices(accuracies([], {"sfl": gain, "fedavg": gain}))
    assert holds is expected
    assert "(one seed)" in measured


@pytest.mark.parametrize(("least", "expected"), [(0.2, True), (-0.1, False)])
def test_with_two_seeds_the_difference_of_each_decides(least, expected):
    # Student's interval of two values is nine times as wide as their distance: a second seed that
    # agrees must not undo the first.
    gain = {"mean": 0.3, "half_width": 1.3, "least": least, "seeds": 2}
    measured, holds = judge_number_of_devices(accuracies([], {"sfl": gain, "fedavg": gain}))
    assert holds is expected
    assert f"30.0 points (two seeds, at least {100 * least:.1f})" in measured


def test_a_sentence_names_the_curves_with_fewer_seeds():
    drawn = accuracies([SURE], {})
    panel = drawn[9]["panels"][1]
    panel["fedavg"] = panel["fedavg"] | {"seeds": 1}
    measured, _ = judge_accuracy_over_time(drawn)
    assert "one seed (20 devices, digits, FedAvg), 3 seeds elsewhere" in measured
