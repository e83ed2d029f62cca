"""E[max_k τ_k]: plans against brute force and by hand, and bounds against every kind of plan."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import minimize_scalar
from scipy.stats import gamma

from airsplit import Cell, Clock, Fleet, Profile, plan
from airsplit.core.arrays import Floats, Ints
from airsplit.planning import expected_max, newton_shares
from airsplit.planning.newton_shares import refine_shares
from airsplit.planning.search import risk_levels
from airsplit.system.latency import Fluctuation, LatencyLaw
from airsplit.system.radio import TransmitTime
from planning.problems import (
    ALEXNET,
    VGG16,
    Case,
    Reference,
    cases,
    examples,
    make_profile,
    random_plans,
)

TARGET = 1e-3  # the gap at which the search is content


def law_of(reference: Reference, rows: Ints, shares: Floats) -> LatencyLaw:
    fleet, c = reference.case.fleet, reference.work[rows]
    draws = reference.clock.iterations_per_round if reference.clock.barrier == "round" else 1
    shift = fleet.seconds_per_mac * c + reference.server_s[rows] + reference.air_s(rows, shares)
    return LatencyLaw(shift, c / fleet.fluctuation, Fluctuation(draws))


def closed_form(law: LatencyLaw) -> float:
    """E[max] of two single draws, or the law's own quadrature."""
    if len(law) != 2 or law.fluctuation.draws > 1 or (law.scale_s == 0).any():
        return law.expected_max_s
    last = int(law.shift_s.argmax())
    (x1, b1), (x2, b2) = (
        (law.shift_s[last], law.scale_s[last]),
        (law.shift_s[1 - last], law.scale_s[1 - last]),
    )
    return float(x1 + b1 + math.exp(-(x1 - x2) / b2) * b2 * b2 / (b1 + b2))


def pair(**more: Any) -> Fleet:
    """Two equal devices."""
    return Fleet(seconds_per_mac=1e-9, fluctuation=2e9, full_band_rate_bps=[1e7, 1e7], **more)


def least_for(reference: Reference, rows: Ints) -> float:
    """The least E[max] of one or two devices at given splits, over all shares."""
    if len(rows) == 1:
        return closed_form(law_of(reference, rows, np.ones(1)))

    def value(odds: float) -> float:
        return closed_form(
            law_of(reference, rows, np.array([1 / (1 + math.exp(-odds)), 1 / (1 + math.exp(odds))]))
        )

    return float(
        minimize_scalar(value, bounds=(-30, 30), method="bounded", options={"xatol": 1e-7}).fun
    )


def least_of_all(case: Case) -> float:
    reference = Reference(case)
    return min(least_for(reference, rows) for rows in reference.choices)


@examples(60)
@given(cases(most_devices=2, most_rows=3))
def test_tiny_problems_agree_with_every_combination_of_splits_and_its_best_shares(
    case: Case,
) -> None:
    found, least = case.plan("expected-max"), least_of_all(case)
    assert least * (1 - 1e-6) <= found.objective_s <= least * (1 + TARGET)
    assert found.lower_bound_s <= least * (1 + 1e-9)
    assert found.gap <= TARGET * (1 + 1e-6)
    assert found.objective_s == found.expected_latency_s
    assert found.shares.sum() <= 1.0


@examples(25)
@given(cases(most_devices=3, most_rows=3))
def test_tiny_problems_agree_with_refined_shares_of_every_combination(case: Case) -> None:
    reference = Reference(case)
    problem = case.problem()
    options = problem.options
    found = case.plan("expected-max")
    best = math.inf
    K = len(case.fleet)
    for rows in reference.choices:
        base = law_of(reference, rows, np.ones(K))
        shift = base.shift_s - reference.air_s(rows, np.ones(K))

        def air(b: Floats, rows: Ints = rows) -> TransmitTime:
            return problem.link.transmit(options.up_bits[rows], options.down_bits[rows], b)

        best = min(
            best, refine_shares(shift, base.scale_s, base.fluctuation, air, np.full(K, 1 / K))[0]
        )
    assert found.objective_s <= best * (1 + TARGET)
    assert found.lower_bound_s <= best * (1 + 1e-9)


@examples(25)
@given(cases(most_devices=2, most_rows=1))
def test_refined_shares_agree_with_a_line_search(case: Case) -> None:
    assume(len(case.fleet) == 2)
    found = case.plan("expected-max", max_split=1, min_split=1)
    least = least_for(Reference(case), np.zeros(2, dtype=int))
    # where devices hardly fluctuate, the kink is smoothed over one part in 10⁵ of the latency
    assert found.objective_s == pytest.approx(least, rel=1e-5)


@examples(30)
@given(cases(most_rows=3), st.integers(0, 2**32 - 1))
def test_no_plan_of_any_kind_is_below_the_bound_and_no_method_beats_it(
    case: Case, seed: int
) -> None:
    reference, rng = Reference(case), np.random.default_rng(seed)
    sure, quick = case.plan("expected-max"), case.plan("expected-max", certify=False)
    others = [
        case.plan(m, **more)
        for m, more in (("exact", {}), ("paper", {}), ("equal", {}), ("random", {"seed": seed}))
    ]
    others.append(
        case.plan("fixed", split=[int(rng.choice(rows)) + 1 for rows in reference.options])
    )
    latencies = [other.expected_latency_s for other in [*others, sure, quick]]
    drawn = [
        law_of(reference, rows, shares).expected_max_s
        for rows, shares in random_plans(case, rng, 20)
    ]
    for bounded in (sure, quick):
        assert 0 < bounded.lower_bound_s <= min(latencies + drawn) * (1 + 1e-9)
    assert sure.objective_s <= min(latencies) * (1 + 1e-6)
    assert sure.objective_s <= quick.objective_s * (1 + 1e-9)


@pytest.mark.parametrize("profile", [ALEXNET, VGG16], ids=["AlexNet", "VGG16"])
@pytest.mark.parametrize("cell", [Cell(), Cell(noise_dbm_per_hz=-174.0)], ids=["power", "density"])
@pytest.mark.parametrize(("distance_m", "limit"), [(50.0, 6), (200.0, None), (800.0, None)])
def test_the_paper_s_fleets_are_planned_to_a_thousandth(
    profile: Profile, cell: Cell, distance_m: float, limit: int | None
) -> None:
    case = Case(
        profile,
        Fleet.sample(20, seed=1, mean_distance_m=distance_m, cell=cell),
        {"max_split": limit},
    )
    found = case.plan("expected-max")
    assert 0 <= found.gap <= TARGET * (1 + 1e-6)
    for method in ("exact", "paper", "equal", "random"):
        other = case.plan(method)
        assert found.objective_s <= other.expected_latency_s * (1 + 1e-9)
        assert other.mean_latency_s <= other.expected_latency_s
    reference, rng = Reference(case), np.random.default_rng(0)
    for rows, shares in random_plans(case, rng, 20):
        assert found.lower_bound_s <= law_of(reference, rows, shares).expected_max_s
    # and near the plan, where a bound that is too high would show
    for _ in range(20):
        nearby = found.shares * np.exp(0.05 * rng.normal(size=20))
        assert (
            found.lower_bound_s
            <= law_of(reference, found.splits - 1, nearby / nearby.sum()).expected_max_s
        )


@pytest.mark.parametrize(
    "options",
    [
        {"downlink": True},
        {"barrier": "round", "iterations_per_round": 20},
        {"server_seconds_per_mac": 1e-10},
    ],
)
def test_other_clocks_are_certified_too(options: dict[str, Any]) -> None:
    case = Case(ALEXNET, Fleet.sample(20, seed=5), {"clock": Clock(**options)})
    found = case.plan("expected-max")
    assert 0 <= found.gap <= TARGET * (1 + 1e-6)
    assert found.objective_s <= case.plan("exact").expected_latency_s * (1 + 1e-9)
    assert found.objective_s >= case.plan("exact").lower_bound_s


def test_without_a_certificate_the_bound_holds_and_names_its_proof() -> None:
    case = Case(VGG16, Fleet.sample(20, seed=2, mean_distance_m=800.0), {})
    sure, quick = case.plan("expected-max"), case.plan("expected-max", certify=False)
    assert quick.lower_bound_s <= sure.lower_bound_s * (1 + 1e-6)
    assert quick.lower_bound_s <= sure.objective_s
    assert sure.lower_bound_s <= quick.objective_s
    assert any(word in quick.bound for word in ("price bound", "Jensen"))
    assert any(word in sure.bound for word in ("branch and bound", "relaxation"))


@examples(40)
@given(cases(most_devices=1))
def test_one_device_waits_for_no_other(case: Case) -> None:
    found, exact = case.plan("expected-max"), case.plan("exact")
    assert found.objective_s == pytest.approx(exact.objective_s, rel=1e-8)
    assert found.shares == pytest.approx([1.0])
    assert found.gap <= 1e-6


@pytest.mark.parametrize("K", [2, 10, 50])
def test_equal_devices_do_at_least_as_well_as_all_at_one_split(K: int) -> None:
    fleet = Fleet(seconds_per_mac=[1e-9] * K, fluctuation=2e9, full_band_rate_bps=1e9)  # type: ignore[arg-type]
    found = plan(ALEXNET, fleet, method="expected-max", max_split=8)
    harmonic = sum(1 / k for k in range(1, K + 1))
    c, D = ALEXNET.macs[:8].astype(float), ALEXNET.activation_elements[:8] * 32.0
    at_one_split = (1e-9 * c + K * D / 1e9 + c / 2e9 * harmonic).min()
    assert found.objective_s <= at_one_split * (1 + 1e-8)
    assert found.lower_bound_s <= at_one_split
    assert found.gap <= TARGET * (1 + 1e-6)
    if len(set(found.splits.tolist())) == 1:
        assert found.shares == pytest.approx([1 / K] * K, rel=1e-4)


@pytest.mark.parametrize("noise", [{"noise_dbm": -114.0}, {"noise_dbm_per_hz": -174.0}])
def test_rows_without_work_do_not_fluctuate(
    noise: dict[str, float],
) -> None:
    fleet = Fleet.sample(4, seed=3, cell=Cell(**noise))
    profile = make_profile([0, 0, 10**9], [10**5, 10**4, 10])
    found, exact = (plan(profile, fleet, method=m, max_split=2) for m in ("expected-max", "exact"))
    assert found.splits.tolist() == exact.splits.tolist() == [2] * 4
    assert found.objective_s == pytest.approx(exact.objective_s, rel=1e-9)
    assert found.gap <= 1e-8


@pytest.mark.parametrize("noise", [{"noise_dbm": -114.0}, {"noise_dbm_per_hz": -174.0}])
def test_rows_with_and_without_work_are_planned_together(noise: dict[str, float]) -> None:
    case = Case(
        make_profile([0, 10**8, 10**9], [10**6, 10**4, 10]),
        Fleet.sample(2, seed=3, cell=Cell(**noise)),
        {"max_split": 2},
    )
    found, least = case.plan("expected-max"), least_of_all(case)
    assert least * (1 - 1e-6) <= found.objective_s <= least * (1 + TARGET)
    assert found.lower_bound_s <= least * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(12))
def test_steady_devices_that_tie_are_planned_at_the_kink_of_the_objective(seed: int) -> None:
    """One share to search along: two steady devices end together, and a third fluctuates.

    The steady ones have no work, and with share b of the third they end at τ = (A₁ + A₂)/(1 - b). A
    model that begins with a look-up has such a row; E[max] has no gradient where the two tie, and
    the optimum is there.
    """
    rng = np.random.default_rng(seed)
    rates, small = 10 ** rng.uniform(5, 7, 3), int(10 ** rng.uniform(2, 4))
    a = 1e-9 * 10 ** rng.uniform(-1, 0.5)
    eps, c = 10 ** rng.uniform(-0.5, 1) / a, 1e8
    fleet = Fleet(seconds_per_mac=a, fluctuation=eps, full_band_rate_bps=rates)  # type: ignore[arg-type]
    found = plan(
        make_profile([0, 10**8, 10**9], [10**5, small, 1]),
        fleet,
        method="expected-max",
        max_split=[1, 1, 2],
    )
    steady = 32 * 1e5 / rates

    def value(b: float) -> float:
        tau, x, beta = (steady[0] + steady[1]) / (1 - b), a * c + 32 * small / rates[2] / b, c / eps
        return float(tau + beta * math.exp(-(tau - x) / beta) if tau >= x else x + beta)

    along = minimize_scalar(
        value, bounds=(1e-9, 1 - 1e-9), method="bounded", options={"xatol": 1e-12}
    )
    least = min(float(along.fun), float(steady.sum()))
    assert least * (1 - 1e-9) <= found.objective_s <= least * (1 + TARGET)
    assert found.lower_bound_s <= least * (1 + 1e-9)
    assert found.gap <= TARGET * (1 + 1e-6)


def test_hardly_any_work_beside_much_air_does_not_upset_the_search() -> None:
    # fluctuations of 1e-16 of the latency: the Hessian is all cancellation
    profile = make_profile([1, 10**6], [10**6, 10**5])
    for rates in ([1e3], [1e3, 1e5], [1e3, 1e4, 1e5]):
        fleet = Fleet(seconds_per_mac=1e-12, fluctuation=1e13, full_band_rate_bps=rates)  # type: ignore[arg-type]
        found, exact = (
            plan(profile, fleet, method=m, max_split=1) for m in ("expected-max", "exact")
        )
        assert found.objective_s == pytest.approx(exact.objective_s, rel=1e-9)
        assert found.gap <= TARGET


def test_with_too_many_devices_to_branch_the_relaxation_proves_one_percent() -> None:
    fleet = Fleet.sample(expected_max.MOST_TO_BRANCH + 1, seed=0, distance_spread=0.5)
    assert plan(ALEXNET, fleet, method="expected-max").gap <= 0.01


def test_three_hundred_devices_are_planned_with_a_useful_bound() -> None:
    case = Case(ALEXNET, Fleet.sample(300, seed=0), {"max_split": 8})
    found = case.plan("expected-max", certify=False)
    assert found.objective_s <= case.plan("exact").expected_latency_s * (1 + 1e-9)
    assert 0 <= found.gap <= 0.05
    assert math.fsum(found.shares) <= 1.0


@pytest.mark.parametrize("blocks", [5, 8, 40, 1000])
def test_in_whole_blocks_shares_are_multiples_and_the_bound_still_holds(blocks: int) -> None:
    fleet = Fleet.sample(5, seed=6, cell=Cell(resource_blocks=blocks))
    found = plan(ALEXNET, fleet, method="expected-max", max_split=8)
    at_will = plan(ALEXNET, fleet.replace(cell=Cell()), method="expected-max", max_split=8)
    counts = found.shares * blocks
    assert counts == pytest.approx(np.round(counts), abs=1e-8)
    assert np.round(counts).min() >= 1
    assert math.fsum(found.shares) <= 1.0
    assert found.lower_bound_s <= found.objective_s
    assert found.objective_s >= at_will.lower_bound_s
    if blocks == 5:
        assert np.round(counts).tolist() == [1] * 5
    if blocks == 1000:
        assert found.objective_s <= at_will.objective_s * 1.02


@examples(20)
@given(cases(most_devices=2, most_rows=2, blocks=7))
def test_whole_blocks_of_tiny_problems_are_near_the_optimum_and_above_the_bound(
    case: Case,
) -> None:
    found, reference, K = case.plan("expected-max"), Reference(case), len(case.fleet)
    ways = [np.array([7.0])] if K == 1 else [np.array([n, 7 - n], dtype=float) for n in range(1, 7)]
    least = min(
        law_of(reference, rows, counts / 7).expected_max_s
        for rows in reference.choices
        for counts in ways
    )
    assert found.lower_bound_s <= least * (1 + 1e-9)
    assert found.objective_s >= least * (1 - 1e-9)
    same_splits = min(
        law_of(reference, found.splits - 1, counts / 7).expected_max_s for counts in ways
    )
    assert found.objective_s == pytest.approx(same_splits, rel=1e-9)


def test_blocks_are_allocated_optimally_for_the_chosen_splits() -> None:
    for seed in range(0, 60, 3):
        blocks = int(np.random.default_rng(seed).integers(4, 12))
        fleet = Fleet.sample(
            3, seed=seed, mean_distance_m=50 + 10 * seed, cell=Cell(resource_blocks=blocks)
        )
        case = Case(ALEXNET, fleet, {"max_split": 8})
        found, reference = case.plan("expected-max"), Reference(case)
        ways = [
            np.diff([0, *ends, blocks]) / blocks
            for ends in itertools.combinations(range(1, blocks), 2)
        ]
        best = min(law_of(reference, found.splits - 1, shares).expected_max_s for shares in ways)
        assert found.objective_s == pytest.approx(best, rel=1e-9)


@pytest.mark.parametrize("quantile", [None, 0.9])
def test_a_fleet_too_large_to_refine_gets_the_best_plan_of_the_other_methods(
    monkeypatch: pytest.MonkeyPatch, quantile: float | None
) -> None:
    case = Case(
        ALEXNET,
        Fleet.sample(6, seed=2, distance_spread=0.5),
        {"max_split": 19, "quantile": quantile},
    )
    refined = case.plan("expected-max")
    for module in (expected_max, newton_shares):
        monkeypatch.setattr(module, "MOST_TO_REFINE", 5)
    quick = case.plan("expected-max")
    assert len(quick.history) < len(refined.history)
    assert quick.lower_bound_s <= refined.objective_s <= quick.objective_s * (1 + 1e-9)
    others = [case.plan(method, quantile=None) for method in ("exact", "paper", "equal")]
    best = min(
        each.expected_latency_s if quantile is None else each.quantile_s(quantile)
        for each in others
    )
    assert quick.objective_s <= best * (1 + 1e-9)
    assert quick.gap < 0.5


def test_many_iterations_per_round_approach_the_plan_for_the_means() -> None:
    fleet = Fleet.sample(6, seed=7)
    exact = plan(ALEXNET, fleet, method="exact", max_split=8)
    excess = []
    for iterations in (1, 10, 1000):
        clock = Clock(barrier="round", iterations_per_round=iterations)
        excess.append(
            plan(ALEXNET, fleet, method="expected-max", max_split=8, clock=clock).objective_s
            / exact.objective_s
            - 1
        )
    assert excess == sorted(excess, reverse=True)
    assert 0 <= excess[-1] < 0.03 < excess[0]


@pytest.mark.parametrize("iterations", [20, 100])
def test_the_bound_of_a_round_holds_against_an_independent_quadrature(iterations: int) -> None:
    # equal devices, one split: the optimum is known, K equal Gamma fluctuations on top of one shift
    K = 200
    profile, fleet = (
        make_profile([10**8, 10**8], [10**4, 10]),
        Fleet(seconds_per_mac=[1e-10] * K, fluctuation=1e9, full_band_rate_bps=1e9),
    )  # type: ignore[arg-type]
    found = plan(
        profile,
        fleet,
        method="expected-max",
        clock=Clock(barrier="round", iterations_per_round=iterations),
    )
    start = float(gamma.ppf(1e-6, iterations)) / iterations
    rest, _ = quad(
        lambda z: 1 - gamma.cdf(iterations * z, iterations) ** K,
        start,
        6.0,
        points=[1.0, 1.5, 2.0],
        epsrel=1e-12,
        limit=400,
    )
    optimum = 0.01 + K * 10**4 * 32 / 1e9 + 0.1 * (start + rest)
    assert found.lower_bound_s <= optimum * (1 + 1e-9)
    assert found.objective_s == pytest.approx(optimum, rel=1e-6)


def test_the_objective_agrees_with_a_monte_carlo_of_the_plan() -> None:
    found = plan(ALEXNET, Fleet.sample(10, seed=11), method="expected-max", max_split=8)
    slowest = found.law.draw(np.random.default_rng(2), 200_000).max(axis=1)
    assert slowest.mean() == pytest.approx(
        found.objective_s, abs=5 * float(slowest.std()) / math.sqrt(200_000)
    )


def test_the_search_never_ends_worse_than_its_start() -> None:
    found = plan(VGG16, Fleet.sample(20, seed=4, mean_distance_m=400.0), method="expected-max")
    assert found.objective_s <= min(found.history) * (1 + 1e-9)
    assert found.iterations == len(found.history) >= 1


def test_risk_levels_start_at_the_mean_and_reach_beyond_the_mean_of_the_maximum() -> None:
    for K in (1, 20, 1000):
        levels = risk_levels(K)
        assert levels[0] == 1.0
        assert min(levels) == 0.0
        assert max(levels) == pytest.approx(math.log(K) + 3)
