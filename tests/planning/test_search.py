"""The search for good plans: the neighbors of a plan by hand, and swaps that improve it."""

from __future__ import annotations

import numpy as np
import pytest

from airsplit import Fleet
from airsplit.planning.arguments import make_problem
from airsplit.planning.cost_table import CostTable
from airsplit.planning.problem import Problem
from airsplit.planning.search import ExpectedMax, neighbors, plan_rivals, starting_candidates
from planning.problems import ALEXNET

HERE = np.array([0, 0])


def swaps(costs: list[list[float]], most: int) -> list[list[int]]:
    return [choice.tolist() for choice in neighbors(np.array(costs), HERE, most)]


def test_single_swaps_are_tried_cheapest_first() -> None:
    """They cost 3 and 1 more for the first device, 2 more or 1 less for the second."""
    costs = [[10.0, 13.0, 11.0], [20.0, 22.0, 19.0]]
    assert swaps(costs, 4) == [[0, 2], [2, 0], [0, 1], [1, 0]]
    assert swaps(costs, 2) == [[0, 2], [2, 0]]
    assert swaps(costs, 0) == []


def test_several_devices_with_cheaper_options_are_swapped_together_first() -> None:
    assert swaps([[10.0, 8.0], [20.0, 19.0]], 1) == [[1, 1], [1, 0]]


def test_an_option_that_is_not_allowed_is_not_tried() -> None:
    assert swaps([[10.0, np.inf], [20.0, 21.0]], 4) == [[0, 1]]


@pytest.fixture
def problem() -> Problem:
    return make_problem(ALEXNET, Fleet.sample(4, seed=0, distance_spread=0.5))


def test_one_device_at_a_bad_split_is_corrected(problem: Problem) -> None:
    objective = ExpectedMax(CostTable.of(problem))
    best = objective.improve(starting_candidates(objective, plan_rivals(problem))[0], most_tries=12)
    for split in np.flatnonzero(objective.table.allowed[0]):
        start = objective.refine(np.array([split, *best.choice[1:]]), best.shares)
        assert objective.improve(start, most_tries=12).value_s <= best.value_s * (1 + 1e-6)
    assert start.value_s > 1.01 * best.value_s  # the deepest split is bad indeed
