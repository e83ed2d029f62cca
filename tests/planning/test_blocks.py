"""Whole resource blocks: how shares are rounded to them."""

from __future__ import annotations

import numpy as np
import pytest

from airsplit import Cell, Fleet
from airsplit.core.arrays import Floats, Ints
from airsplit.planning.blocks import round_to_blocks
from airsplit.planning.problem import Problem
from planning.problems import Case, make_profile

TWO_EQUAL_DEVICES = Fleet(
    seconds_per_mac=1e-9,
    fluctuation=2e9,
    full_band_rate_bps=[1e7, 1e7],
    cell=Cell(resource_blocks=100),
)


def round_shares(problem: Problem, rows: Ints, shares: Floats) -> Floats:
    """Return shares rounded to the blocks of the problem's cell."""
    assert problem.blocks is not None
    return round_to_blocks(
        shares,
        problem.blocks,
        air_s=lambda b: problem.transmit_s(rows, b),
        law=lambda b: problem.law(rows, b),
        objective_s=problem.objective_s,
    )


def test_with_as_many_blocks_as_devices_each_gets_one() -> None:
    """Shares that differ by a thousand round to more blocks than there are."""
    fleet = Fleet(
        seconds_per_mac=1e-9,
        fluctuation=2e9,
        full_band_rate_bps=[1e4, 1e7, 1e7],
        cell=Cell(resource_blocks=3),
    )
    case = Case(make_profile([10**6, 10**6], [1000, 10]), fleet)
    assert case.plan("expected-max").shares * 3 == pytest.approx(np.ones(3), rel=1e-9)
    rows, uneven = np.zeros(3, dtype=np.int64), np.array([0.998, 0.001, 0.001])
    assert round_shares(case.problem(), rows, uneven) * 3 == pytest.approx(np.ones(3), rel=1e-9)


def test_blocks_are_exchanged_one_by_one_and_at_most_two_per_device() -> None:
    """Two equal devices would have fifty each; four exchanges from 99 and 1 come to 95 and 5."""
    case = Case(make_profile([10**6, 10**6], [1000, 10]), TWO_EQUAL_DEVICES)
    rows = np.zeros(2, dtype=np.int64)
    problem = case.problem()
    far = round_shares(problem, rows, np.array([0.99, 0.01]))
    near = round_shares(problem, rows, np.array([0.52, 0.48]))
    assert far * 100 == pytest.approx([95, 5], rel=1e-9)
    assert near * 100 == pytest.approx([50, 50], rel=1e-9)
