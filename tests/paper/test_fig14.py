"""Figure 14: rounds and accuracies as the limit on the split is swept."""

from __future__ import annotations

from typing import Any

import pytest

from airsplit.paper.fig14 import describe_marks, find_highest_target
from paper.tiny_figures import read_numbers


def marks(partition: str, split: int, seeds: int) -> dict[str, Any]:
    """Return a point of SFL."""
    return {
        "way": "sfl",
        "partition": partition,
        "deepest_split": split,
        "test_accuracy": [0.9] * seeds,
    }


@pytest.mark.parametrize("partition", ["iid", "non-iid"])
def test_at_a_large_distance_a_higher_limit_makes_rounds_shorter(folder, partition):
    condition = (800, partition, "sfl")
    points = [
        point
        for point in read_numbers(folder, 14)["points"]
        if (point["mean_distance_m"], point["partition"], point["way"]) == condition
    ]
    assert [point["max_split"] for point in points] == [4, 15]
    assert points[0]["round_s"] > points[1]["round_s"]
    assert all(0 <= accuracy <= 1 for point in points for accuracy in point["test_accuracy"])


def test_marks_with_more_seeds_are_named_by_way_partition_or_split():
    of_one_partition = [marks("iid", 4, 3), marks("iid", 8, 3), marks("non-iid", 4, 1)]
    assert describe_marks({"points": of_one_partition}) == (
        "Means and ranges (bars) of 3 seeds for SFL with IID data; one seed elsewhere."
    )
    of_one_way = [marks("iid", 4, 3), marks("iid", 4, 1) | {"way": "fedavg"}]
    assert describe_marks({"points": of_one_way}) == (
        "Means and ranges (bars) of 3 seeds for SFL; one seed elsewhere."
    )
    assert describe_marks({"points": [marks("iid", 4, 2)]}) == (
        "Means and ranges (bars) of 2 seeds."
    )


def test_the_highest_target_may_be_reached_by_another_way_than_the_lowest():
    low = {"time_to_s": [1.0, None, None]}
    high = {"time_to_s": [None, 5.0, None]}
    assert find_highest_target([low, high]) == 1
