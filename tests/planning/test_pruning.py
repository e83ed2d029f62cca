"""No split that some device would need is ever left out: the pruned rows against all rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from airsplit import Clock, Fleet
from airsplit.core.arrays import Floats
from airsplit.planning.pruning import lower_hull, pareto_front
from planning.problems import ALEXNET, VGG16, Case, Reference, cases, examples, make_profile, powers

small = st.integers(0, 4)
THREE = Fleet.sample(3, seed=0)


@st.composite
def tables(draw: st.DrawFn) -> tuple[Floats, Any]:
    criteria, splits = draw(st.integers(1, 3)), draw(st.integers(1, 7))
    rows = st.lists(small, min_size=splits, max_size=splits)
    table = np.array(draw(st.lists(rows, min_size=criteria, max_size=criteria)), dtype=float)
    return table, np.arange(splits) <= draw(st.integers(0, splits))


@examples(150)
@given(tables())
def test_whatever_is_left_out_has_a_stand_in_that_everybody_may_take(
    table: tuple[Floats, Any],
) -> None:
    costs, always = table
    kept = pareto_front(costs, always).tolist()
    for out in set(range(costs.shape[1])) - set(kept):
        stand_ins = [
            r for r in kept if (costs[:, r] <= costs[:, out]).all() and (r < out or always[r])
        ]
        assert stand_ins, out


@examples(150)
@given(tables())
def test_nothing_stays_that_an_earlier_split_matches(table: tuple[Floats, Any]) -> None:
    costs, always = table
    kept = pareto_front(costs, always)
    for r in kept:
        assert not any((costs[:, e] <= costs[:, r]).all() for e in range(r))
    assert 0 in kept or always.any()
    assert len(kept) >= 1


def test_the_front_by_hand() -> None:
    costs = np.array([[1.0, 2, 3, 3, 4], [9.0, 9, 4, 4, 5]])
    assert pareto_front(costs, np.ones(5, dtype=bool)).tolist() == [0, 2]
    # a later split may only stand in for an earlier one where it is open to everybody
    later_better = np.array([[2.0, 2.0], [5.0, 3.0]])
    assert pareto_front(later_better, np.array([True, True])).tolist() == [1]
    assert pareto_front(later_better, np.array([True, False])).tolist() == [0, 1]


@examples(200)
@given(
    st.lists(st.tuples(st.integers(1, 20), st.integers(0, 40)), min_size=1, max_size=9),
    powers(-2, 2),
)
def test_the_hull_holds_the_least_of_every_weighting(
    steps: list[tuple[int, int]], weight: float
) -> None:
    x, y = (
        np.cumsum([dx for dx, _ in steps]).astype(float),
        np.array([h for _, h in steps], dtype=float),
    )
    hull = lower_hull(x, y)
    assert (y + weight * x)[hull].min() == pytest.approx((y + weight * x).min(), rel=1e-12)
    assert (y - weight * x)[hull].min() == pytest.approx(
        (y - weight * x).min(), rel=1e-12, abs=1e-9
    )
    assert hull[0] == 0
    assert hull[-1] == len(x) - 1


def test_the_hull_drops_what_lies_on_a_chord() -> None:
    assert lower_hull(np.array([0.0, 1, 2, 3]), np.array([3.0, 2, 1, 0])).tolist() == [0, 3]
    assert lower_hull(np.array([5.0]), np.array([7.0])).tolist() == [0]


def least_share(
    reference: Reference, k: int, rows: list[int], seconds: float, risk: float
) -> float:
    """The least band with which device k finishes by `seconds`, over some rows."""
    K = reference.devices
    found = []
    for row in rows:
        all_rows = np.full(K, row)
        found.append(
            float(reference.needed_share(all_rows, seconds - reference.busy_s(all_rows, risk))[k])
        )
    return min(found)


@examples(50)
@given(cases(most_rows=6), st.floats(0, 8), powers(-3, 3))
def test_the_rows_left_are_enough_for_every_device_at_every_latency_and_risk(
    case: Case, risk: float, factor: float
) -> None:
    problem, reference = case.problem(), Reference(case)
    seconds = case.plan().objective_s * factor
    for k, allowed in enumerate(reference.options):
        everything = least_share(reference, k, list(allowed), seconds, risk)
        for rows in (problem.rows, problem.hull_rows):
            left = least_share(
                reference, k, [r for r in rows.tolist() if r in allowed], seconds, risk
            )
            assert left == pytest.approx(everything, rel=1e-9) or left == everything == np.inf


@examples(100)
@given(cases(most_rows=6), powers(-3, 3), powers(-3, 3), powers(-3, 3))
def test_the_front_is_enough_for_any_prices_on_lateness_and_band(
    case: Case, pi: float, m: float, up: float
) -> None:
    # what the price bound minimizes: π x + m β + (air time at some share), rising in work, server time and data
    problem, reference = case.problem(), Reference(case)
    a, eps = case.fleet.seconds_per_mac, case.fleet.fluctuation
    c, server, bits = reference.work, reference.server_s, reference.bits
    for k, allowed in enumerate(reference.options):
        cost = pi * (a[k] * c + server) + m * c / eps[k] + up * bits * 1e-6
        left = [r for r in problem.rows.tolist() if r in allowed]
        assert cost[left].min() == pytest.approx(cost[list(allowed)].min(), rel=1e-12)


def test_of_the_paper_s_models_few_splits_remain() -> None:
    alexnet = Case(ALEXNET, THREE, {"max_split": 20}).problem()
    assert (alexnet.hull_rows + 1).tolist() == [1, 4, 20]
    assert {4, 8, 15, 20} <= set(
        (alexnet.rows + 1).tolist()
    )  # the hull is not enough for E[max], so these stay
    vgg16 = Case(VGG16, THREE, {"max_split": 36}).problem()
    assert (vgg16.hull_rows + 1).tolist() == [1, 5, 10, 17, 36]


def test_where_limits_differ_a_row_that_one_device_needs_stays() -> None:
    # row 2 is better in everything, but only the first device may take it
    case = Case(make_profile([5, 0, 9], [10, 1, 1]), THREE, {"max_split": [2, 1, 1]})
    assert case.problem().rows.tolist() == [0, 1]
    assert case.plan().splits.tolist() == [2, 1, 1]
    together = Case(case.profile, case.fleet, {"max_split": 2})
    assert together.problem().rows.tolist() == [1]


def test_a_slow_server_keeps_rows_that_a_quick_one_makes_pointless() -> None:
    profile = make_profile(
        [5, 5, 5], [1, 1, 1]
    )  # only the first cut makes sense, unless the server is slow
    quick = Case(profile, THREE, {"max_split": 2, "clock": Clock(server_seconds_per_mac=1e-12)})
    slow = Case(profile, THREE, {"max_split": 2, "clock": Clock(server_seconds_per_mac=1e-6)})
    assert quick.problem().rows.tolist() == [0]
    assert slow.problem().rows.tolist() == [0, 1]
    assert slow.plan().splits.tolist() == [2, 2, 2]


@examples(60)
@given(cases(most_rows=6))
def test_one_row_at_least_remains_for_every_device(case: Case) -> None:
    assume(len(case.fleet) > 1)
    problem = case.problem()
    for deepest in problem.deepest:
        assert (problem.rows <= deepest).any()
        assert (problem.hull_rows <= deepest).any()
    assert problem.rows.min() >= problem.shallowest
