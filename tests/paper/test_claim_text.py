"""Parts of sentences: names as short as possible, exceptions with their numbers."""

from __future__ import annotations

from typing import Any

import pytest

from airsplit.paper.claim_text import (
    compare_paces,
    compare_with_fedavg,
    describe_falling_fleets,
    describe_means,
    describe_seeds,
    describe_training,
    describe_widest_gap,
    find_latency_exceptions,
    format_points,
    is_surely_positive,
)
from paper.crafted_numbers import accuracies, comparison, distances, flat_band, rounds


def split_panel(partition: str, seeds: dict[int, int]) -> dict[str, Any]:
    """Return a panel of figure 10 with this number of seeds at each split."""
    curves = [{"split": split, "seeds": count} for split, count in seeds.items()]
    return {"dataset": "mnist", "partition": partition, "curves": curves}


def test_curves_with_fewer_seeds_have_the_shortest_name_that_is_unique():
    same_splits = [split_panel("iid", {4: 3, 8: 1}), split_panel("non-iid", {4: 3, 8: 1})]
    assert describe_seeds({"panels": same_splits}) == "3 seeds (ℓ = 4), one seed elsewhere"

    other_partition = [split_panel("iid", {4: 3}), split_panel("non-iid", {4: 1, 8: 1})]
    assert (
        describe_seeds({"panels": other_partition})
        == "3 seeds (ℓ = 4, MNIST, IID), one seed elsewhere"
    )


def test_means_of_one_seed_are_no_means():
    assert describe_means({"panels": [split_panel("iid", {4: 1})]}) == "One seed."
    assert describe_means({"panels": [split_panel("iid", {4: 3})]}) == (
        "Means and ranges of 3 seeds."
    )


def test_a_training_is_described_by_model_data_length_and_seeds():
    assert describe_training(accuracies([], {})[9]) == (
        "alexnet32 at width 0.25 on digits, 2 rounds of 5 iterations, 3 seeds."
    )


@pytest.mark.parametrize(
    ("seeds", "half_width", "least", "expected"),
    [(3, 0.2, 0.2, True), (3, 0.4, 0.2, False), (2, 2.0, 0.2, True), (2, 0.1, -0.1, False)],
)
def test_three_seeds_need_an_interval_above_zero_and_fewer_a_difference_above_zero(
    seeds, half_width, least, expected
):
    difference = {"mean": 0.3, "half_width": half_width, "least": least, "seeds": seeds}
    assert is_surely_positive(difference) is expected


def test_a_loss_is_formatted_with_its_sign():
    loss = {"mean": -0.1, "half_width": 0.02, "least": -0.12, "seeds": 3}
    assert format_points(loss) == "-10.0 ± 2.0 points"


def test_paces_are_compared_between_fleets_and_within_mixed_ones():
    curves = distances()[4]["curves"]
    assert list(compare_paces(curves)) == [(4, 4), (8, 4), (5, 4), (7, 6)]


def test_the_widest_gap_names_its_distance():
    data = distances()[4]
    data["curves"][2]["fastest_quarter_mean_split_over_all"] = [5, 9]
    assert describe_widest_gap(data) == "up to 3 layers deeper than the slowest (at 400 m)"


def test_falling_fleets_are_counted_over_all_curves_of_a_method():
    data = distances()[4]
    data["curves"][1]["fleets_with_falling_split"] = 2
    assert describe_falling_fleets(data) == "2 of 15 with exact"


def test_exceptions_of_latency_state_both_numbers():
    data = distances()[4]
    assert find_latency_exceptions(data, "mean_latency_s") == []

    data["curves"][1]["mean_latency_s"] = flat_band([4, 3.5])
    assert find_latency_exceptions(data, "mean_latency_s") == [
        "exact, 1 ns/MAC: 4 s at 50 m but 3.5 s at 400 m"
    ]


def test_ratios_are_compared_as_ranges_and_savings_one_by_one():
    data = rounds(comparison("alexnet", saving=[0.8, 0.4]))[7]
    assert compare_with_fedavg(data, data["models"][0]) == (
        "AlexNet, 227×227 input, at 50, 400 m: SFL ÷ FedAvg is 0.1 in compute time, 1.2–1.5 in air "
        "time (0.5 in the devices' transmit time), saving 80, 40 % (70, 70 % in E[max])."
    )
