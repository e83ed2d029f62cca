"""Branch and bound: how a set of plans is divided, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from airsplit.planning.branch_and_bound import Node, divide

TWO_OF_THREE = np.array([[True, True, False], [True, True, True]])


def node(
    allowed: np.ndarray, costs: list[list[float]], weights: list[list[float]], saving: list[float]
) -> Node:
    K = len(allowed)
    return Node(
        allowed, 10.0, np.array(weights), np.full(K, 1 / K), np.array(costs), np.array(saving)
    )


def parts(value_s: float, allowed: np.ndarray = TWO_OF_THREE) -> list[list[list[int]]]:
    """Return the options left to each device in each part.

    The second device mixes its last two options and saves most by it.
    """
    whole_set = node(allowed, [[10, 12, 99], [11, 10, 13]], [[1, 0, 0], [0, 0.7, 0.3]], [0.0, 0.5])
    return [[np.flatnonzero(row).tolist() for row in part] for part in divide(whole_set, value_s)]


def test_the_device_that_saves_most_by_mixing_is_divided_between_the_options_it_mixes() -> None:
    assert parts(20.0) == [[[0, 1], [0, 1]], [[0, 1], [2]]]


def test_options_that_cost_more_than_the_best_plan_are_dropped() -> None:
    assert parts(12.5) == [[[0, 1], [0]], [[0, 1], [1]]]
    assert parts(11.5) == [[[0], [0]], [[0], [1]]]


def test_a_single_plan_left_is_the_only_part() -> None:
    assert parts(10.5) == [[[0], [1]]]


@pytest.mark.parametrize("value_s", [10.0, 9.0])
def test_a_device_without_options_left_leaves_no_parts(
    value_s: float,
) -> None:
    assert parts(value_s) == []
