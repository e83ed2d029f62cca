"""Options: no option that a device would need is left out, and a table need not be of splits."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from airsplit import Clock, Fleet
from airsplit.core.arrays import Floats
from airsplit.planning import baselines, exact
from airsplit.planning.cost_table import CostTable
from airsplit.planning.expected_max import minimize_max
from airsplit.planning.options import AllowedOptions, OptionTable, lower_hull, pareto_front
from airsplit.planning.paper_algorithms import alternate
from airsplit.planning.problem import Problem
from airsplit.planning.search import ExpectedMax
from planning.problems import ALEXNET, VGG16, Case, Reference, cases, examples, make_profile, powers

small = st.integers(0, 4)
THREE = Fleet.sample(3, seed=0)


@st.composite
def tables(draw: st.DrawFn) -> tuple[Floats, AllowedOptions]:
    """Costs, criteria × options, and who may take them."""
    criteria, splits = draw(st.integers(1, 3)), draw(st.integers(1, 7))
    rows = st.lists(small, min_size=splits, max_size=splits)
    table = np.array(draw(st.lists(rows, min_size=criteria, max_size=criteria)), dtype=float)
    sets = st.lists(st.booleans(), min_size=splits, max_size=splits)
    masks = np.array(draw(st.lists(sets, min_size=1, max_size=3)))
    # Every option is open to some device, and every device has one.
    masks[0] = True
    masks[:, draw(st.integers(0, splits - 1))] = True
    return table, AllowedOptions(masks, np.arange(len(masks)))


@examples(150)
@given(tables())
def test_an_option_left_out_has_a_stand_in_for_every_device(
    table: tuple[Floats, AllowedOptions],
) -> None:
    costs, allowed = table
    kept = pareto_front(costs, allowed.covers(np.arange(costs.shape[1]))).tolist()
    for out in set(range(costs.shape[1])) - set(kept):
        assert any(
            (costs[:, r] <= costs[:, out]).all()
            and (allowed.includes(r) | ~allowed.includes(out)).all()
            for r in kept
        )


@examples(150)
@given(tables())
def test_nothing_stays_that_an_earlier_option_matches(
    table: tuple[Floats, AllowedOptions],
) -> None:
    costs, _ = table
    kept = pareto_front(costs)
    for r in kept:
        assert not any((costs[:, e] <= costs[:, r]).all() for e in range(r))
    assert len(kept) >= 1


def test_the_front_by_hand() -> None:
    costs = np.array([[1.0, 2, 3, 3, 4], [9.0, 9, 4, 4, 5]])
    assert pareto_front(costs).tolist() == [0, 2]
    # An option may only stand in for another one if it is open to everyone who may take that.
    later_is_better = np.array([[2.0, 2.0], [5.0, 3.0]])
    assert pareto_front(later_is_better).tolist() == [1]
    both = AllowedOptions.up_to(np.array([1, 1]), np.array([True, True]))
    first_only = AllowedOptions.up_to(np.array([0, 1]), np.array([True, True]))
    rows = np.arange(2)
    assert pareto_front(later_is_better, both.covers(rows)).tolist() == [1]
    assert pareto_front(later_is_better, first_only.covers(rows)).tolist() == [0, 1]


@examples(200)
@given(
    st.lists(st.tuples(st.integers(1, 20), st.integers(0, 40)), min_size=1, max_size=9),
    powers(-2, 2),
)
def test_the_hull_contains_the_minimum_of_every_weighting(
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


def test_the_hull_drops_points_on_a_chord() -> None:
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
def test_front_and_hull_are_enough_for_every_device_at_any_latency_and_risk(
    case: Case, risk: float, factor: float
) -> None:
    problem, reference = case.problem(), Reference(case)
    seconds = case.plan().objective_s * factor
    for k, allowed in enumerate(reference.options):
        everything = least_share(reference, k, list(allowed), seconds, risk)
        for rows in (problem.front_rows, problem.hull_rows):
            left = least_share(
                reference, k, [r for r in rows.tolist() if r in allowed], seconds, risk
            )
            assert left == pytest.approx(everything, rel=1e-9) or left == everything == np.inf


@examples(100)
@given(cases(most_rows=6), powers(-3, 3), powers(-3, 3), powers(-3, 3))
def test_the_front_is_enough_for_any_prices_on_lateness_and_band(
    case: Case, pi: float, m: float, up: float
) -> None:
    # what the price bound minimizes: π x + m β + (air time at some share), rising in work, server
    # time and data
    problem, reference = case.problem(), Reference(case)
    a, eps = case.fleet.seconds_per_mac, case.fleet.fluctuation
    c, server, bits = reference.work, reference.server_s, reference.bits
    for k, allowed in enumerate(reference.options):
        cost = pi * (a[k] * c + server) + m * c / eps[k] + up * bits * 1e-6
        left = [r for r in problem.front_rows.tolist() if r in allowed]
        assert cost[left].min() == pytest.approx(cost[list(allowed)].min(), rel=1e-12)


def test_few_splits_of_the_paper_s_models_remain() -> None:
    alexnet = Case(ALEXNET, THREE, {"max_split": 20}).problem()
    assert (alexnet.hull_rows + 1).tolist() == [1, 4, 20]
    assert {4, 8, 15, 20} <= set(
        (alexnet.front_rows + 1).tolist()
    )  # the hull is not enough for E[max], so these stay
    vgg16 = Case(VGG16, THREE, {"max_split": 36}).problem()
    assert (vgg16.hull_rows + 1).tolist() == [1, 5, 10, 17, 36]


def test_with_different_limits_a_row_that_one_device_needs_stays() -> None:
    # row 2 is better in everything, but only the first device may take it
    case = Case(make_profile([5, 0, 9], [10, 1, 1]), THREE, {"max_split": [2, 1, 1]})
    assert case.problem().front_rows.tolist() == [0, 1]
    assert case.plan().splits.tolist() == [2, 1, 1]
    together = Case(case.profile, case.fleet, {"max_split": 2})
    assert together.problem().front_rows.tolist() == [1]


def test_a_slow_server_keeps_rows_that_a_quick_one_makes_superfluous() -> None:
    profile = make_profile(
        [5, 5, 5], [1, 1, 1]
    )  # only the first cut makes sense, unless the server is slow
    quick = Case(profile, THREE, {"max_split": 2, "clock": Clock(server_seconds_per_mac=1e-12)})
    slow = Case(profile, THREE, {"max_split": 2, "clock": Clock(server_seconds_per_mac=1e-6)})
    assert quick.problem().front_rows.tolist() == [0]
    assert slow.problem().front_rows.tolist() == [0, 1]
    assert slow.plan().splits.tolist() == [2, 2, 2]


@examples(60)
@given(cases(most_rows=6))
def test_at_least_one_row_remains_for_every_device(case: Case) -> None:
    assume(len(case.fleet) > 1)
    problem = case.problem()
    for deepest in problem.max_splits - 1:
        assert (problem.front_rows <= deepest).any()
        assert (problem.hull_rows <= deepest).any()
    assert problem.front_rows.min() >= problem.min_split - 1


def add_compressions(problem: Problem, ratios: Sequence[float], macs_per_bit: float) -> Problem:
    """Return a problem whose options are splits × compressions, in an order that mixes both.

    Compressing costs work on the device and on the server, and every second device cannot do it.
    """
    splits = problem.options
    tables = []
    for ratio in ratios:
        extra_work = macs_per_bit * splits.up_bits * (ratio < 1)
        tables.append(
            replace(
                splits,
                work=splits.work + extra_work,
                up_bits=np.ceil(splits.up_bits * ratio),
                down_bits=np.ceil(splits.down_bits * ratio),
                server_work=splits.server_work + extra_work,
            )
        )
    columns = {
        column.name: np.concatenate([getattr(table, column.name) for table in tables])
        for column in fields(OptionTable)
    }
    mask = np.tile(problem.allowed.mask(np.arange(len(splits))), len(ratios))
    plain = np.repeat(np.array(ratios) == 1, len(splits))
    mask[1::2] &= plain
    shuffled = np.random.default_rng(0).permutation(len(plain))
    return replace(
        problem,
        options=OptionTable(**{name: values[shuffled] for name, values in columns.items()}),
        allowed=AllowedOptions(mask[:, shuffled], np.arange(problem.devices)),
    )


@examples(80)
@given(
    cases(),
    st.lists(powers(-2, -0.1), min_size=1, max_size=2),
    st.just(0.0) | powers(-3, 2),
    st.sampled_from([None, 0.9]),
)
def test_exact_finds_the_optimum_of_a_table_that_is_not_of_splits(
    case: Case, ratios: list[float], macs_per_bit: float, device_quantile: float | None
) -> None:
    problem = case.problem(device_quantile=device_quantile)
    problem = add_compressions(problem, [1.0, *ratios], macs_per_bit)
    found = exact.solve(problem, problem.risk)
    rows, shares = baselines.exhaustive(problem)
    best_s = problem.worst_s(rows, shares, problem.risk)
    assert problem.allowed.includes(found.rows).all()
    assert problem.worst_s(found.rows, found.shares, problem.risk) == pytest.approx(
        best_s, rel=1e-9
    )
    assert found.lower_s <= best_s * (1 + 1e-12)


@examples(40)
@given(cases(most_devices=2), powers(-2, -0.1), st.just(0.0) | powers(-3, 2))
def test_every_method_plans_with_a_table_that_is_not_of_splits(
    case: Case, ratio: float, macs_per_bit: float
) -> None:
    problem = add_compressions(case.problem(), [1.0, ratio], macs_per_bit)
    optimum = exact.solve(problem, 1.0)
    best = minimize_max(problem)
    for propose in (baselines.equal, baselines.random):
        rows, shares = propose(problem)
        assert problem.allowed.includes(rows).all()
        assert problem.worst_s(rows, shares, 1.0) >= optimum.lower_s * (1 - 1e-12)
        assert problem.max_s(rows, shares) >= best.bound.lower_s * (1 - 1e-9)
    paper = alternate(problem)
    assert problem.allowed.includes(paper.rows).all()
    assert problem.worst_s(paper.rows, paper.shares, 1.0) >= optimum.lower_s * (1 - 1e-12)

    rows = np.asarray(best.splits) - 1
    assert problem.allowed.includes(rows).all()
    options = [problem.allowed.rows_of(k) for k in range(problem.devices)]
    objective = ExpectedMax(CostTable.of(problem))
    for combination in itertools.product(*options):
        rows = np.array(combination)
        choice = objective.table.choice_of(rows)
        assert objective.table.allowed[np.arange(problem.devices), choice].all()
        value_s = problem.max_s(rows, problem.allocate(rows, 1.0))
        assert best.bound.lower_s <= value_s * (1 + 1e-9)
        assert best.history[-1] <= value_s * (1 + 1e-2)
