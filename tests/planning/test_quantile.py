"""Quantiles of max_k τ_k: against brute force on tiny problems, Monte Carlo, and random plans."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from airsplit import Cell, Clock, Fleet, Profile, plan
from airsplit.core.arrays import Ints
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
from planning.test_expected_max import TARGET, law_of

probabilities = st.sampled_from([1e-6, 0.1, 0.5, 0.9, 0.99, 1 - 1e-9])


def least_for(reference: Reference, rows: Ints, p: float) -> float:
    """Return the least quantile of one or two devices at given splits, over all shares.

    One search along the shares finds it, because the sets {Q ≤ τ} are convex.
    """
    if len(rows) == 1:
        return law_of(reference, rows, np.ones(1)).max_quantile_s(p)

    def value(odds: float) -> float:
        return law_of(
            reference, rows, np.array([1 / (1 + math.exp(-odds)), 1 / (1 + math.exp(odds))])
        ).max_quantile_s(p)

    return float(
        minimize_scalar(value, bounds=(-30, 30), method="bounded", options={"xatol": 1e-7}).fun
    )


@examples(20)
@given(cases(most_devices=2, most_rows=3), probabilities)
def test_tiny_problems_agree_with_every_combination_of_splits_and_its_best_shares(
    case: Case, p: float
) -> None:
    found, reference = case.plan("expected-max", quantile=p), Reference(case)
    least = min(least_for(reference, rows, p) for rows in reference.choices)
    assert least * (1 - 1e-6) <= found.objective_s <= least * (1 + TARGET)
    assert found.lower_bound_s <= least * (1 + 1e-9)
    assert found.gap <= TARGET * (1 + 1e-6)
    assert found.objective_s == pytest.approx(found.quantile_s(p), rel=1e-12)


@examples(20)
@given(cases(most_rows=3), probabilities, st.integers(0, 2**32 - 1), st.booleans())
def test_no_plan_is_below_the_bound(case: Case, p: float, seed: int, certify: bool) -> None:
    found, reference = case.plan("expected-max", quantile=p, certify=certify), Reference(case)
    drawn = [
        law_of(reference, *some).max_quantile_s(p)
        for some in random_plans(case, np.random.default_rng(seed), 20)
    ]
    others = [
        case.plan(method).quantile_s(p) for method in ("exact", "paper", "equal", "expected-max")
    ]
    assert 0 < found.lower_bound_s <= min(drawn + others) * (1 + 1e-9)
    assert found.objective_s <= min(others) * (1 + 1e-6 if certify else 1.5)
    assert found.shares.sum() <= 1.0


@pytest.mark.parametrize("profile", [ALEXNET, VGG16], ids=["AlexNet", "VGG16"])
@pytest.mark.parametrize("cell", [Cell(), Cell(noise_dbm_per_hz=-174.0)], ids=["power", "density"])
@pytest.mark.parametrize(("distance_m", "p"), [(200.0, 0.95), (800.0, 0.5)])
def test_the_paper_s_fleets_are_planned_to_a_thousandth(
    profile: Profile, cell: Cell, distance_m: float, p: float
) -> None:
    case = Case(profile, Fleet.sample(20, seed=1, mean_distance_m=distance_m, cell=cell), {})
    found = case.plan("expected-max", quantile=p)
    assert 0 <= found.gap <= TARGET * (1 + 1e-6)
    for method in ("exact", "expected-max"):
        assert found.objective_s <= case.plan(method).quantile_s(p) * (1 + 1e-9)
    # device quantiles p are below, and p^(1/K) for each is above
    below = case.plan("exact", device_quantile=p)
    above = case.plan("exact", device_quantile=p ** (1 / 20))
    assert below.lower_bound_s * (1 - 1e-9) <= found.objective_s <= above.objective_s * (1 + 1e-9)


@pytest.mark.parametrize("p", [0.05, 0.5, 0.95])
def test_a_monte_carlo_keeps_the_promised_probability(p: float) -> None:
    found = plan(ALEXNET, Fleet.sample(10, seed=3), method="expected-max", max_split=8, quantile=p)
    slowest = found.law.draw(np.random.default_rng(0), 200_000).max(axis=1)
    assert float((slowest <= found.objective_s).mean()) == pytest.approx(
        p, abs=5 * math.sqrt(p * (1 - p) / 200_000)
    )


def test_twenty_devices_that_each_keep_95_percent_are_together_in_time_a_third_of_the_time() -> (
    None
):
    # 0.95²⁰ = 36 %
    found = plan(
        ALEXNET, Fleet.sample(20, seed=0), method="exact", max_split=8, device_quantile=0.95
    )
    together = found.law.cdf_of_max(found.objective_s)
    assert together == pytest.approx(0.95**20, abs=0.02)
    assert together >= 0.95**20 - 1e-9


@examples(20)
@given(cases(most_devices=1), probabilities)
def test_one_device_is_the_exact_optimum_of_its_own_quantile(case: Case, p: float) -> None:
    found, exact = case.plan("expected-max", quantile=p), case.plan("exact", device_quantile=p)
    assert found.objective_s == pytest.approx(exact.objective_s, rel=1e-8)
    assert found.gap <= 1e-6


def test_a_higher_probability_takes_longer() -> None:
    fleet = Fleet.sample(8, seed=5)
    found = [
        plan(ALEXNET, fleet, method="expected-max", max_split=8, quantile=p)
        for p in (1e-6, 0.1, 0.5, 0.9, 0.999, 1 - 1e-9)
    ]
    objectives = [f.objective_s for f in found]
    assert objectives == sorted(objectives)
    assert all(f.gap <= TARGET * (1 + 1e-6) for f in found)


@pytest.mark.parametrize("K", [2, 9])
def test_equal_devices_share_equally_and_keep_the_closed_form(K: int) -> None:
    p, profile = 0.9, make_profile([10**8, 10**8], [10**4, 10])
    fleet = Fleet(seconds_per_mac=[1e-9] * K, fluctuation=2e9, full_band_rate_bps=1e8)  # type: ignore[arg-type]
    found = plan(profile, fleet, method="expected-max", quantile=p)
    assert found.objective_s == pytest.approx(
        0.1 + K * 3.2e5 / 1e8 - 0.05 * math.log(1 - p ** (1 / K)), rel=1e-8
    )
    assert found.shares == pytest.approx([1 / K] * K, rel=1e-4)


@pytest.mark.parametrize("noise", [{"noise_dbm": -114.0}, {"noise_dbm_per_hz": -174.0}])
def test_rows_without_work_have_the_same_quantile_for_any_probability(
    noise: dict[str, float],
) -> None:
    fleet, profile = (
        Fleet.sample(4, seed=3, cell=Cell(**noise)),
        make_profile([0, 0, 10**9], [10**5, 10**4, 10]),
    )
    exact = plan(profile, fleet, method="exact", max_split=2)
    for p in (1e-6, 0.5, 1 - 1e-9):
        found = plan(profile, fleet, method="expected-max", max_split=2, quantile=p)
        assert found.objective_s == pytest.approx(exact.objective_s, rel=1e-8)
        assert found.gap <= TARGET


@pytest.mark.parametrize("blocks", [5, 40])
def test_in_whole_blocks_the_bound_still_holds(blocks: int) -> None:
    fleet = Fleet.sample(5, seed=6, cell=Cell(resource_blocks=blocks))
    found = plan(ALEXNET, fleet, method="expected-max", max_split=8, quantile=0.9)
    counts = found.shares * blocks
    assert counts == pytest.approx(np.round(counts), abs=1e-8)
    assert np.round(counts).min() >= 1
    assert math.fsum(found.shares) <= 1.0
    assert (
        found.lower_bound_s <= found.objective_s == pytest.approx(found.quantile_s(0.9), rel=1e-12)
    )


@pytest.mark.parametrize(
    "clock",
    [
        Clock(downlink=True),
        Clock(barrier="round", iterations_per_round=20),
        Clock(server_seconds_per_mac=1e-10),
    ],
)
def test_other_clocks_are_certified_too(clock: Clock) -> None:
    found = plan(
        ALEXNET, Fleet.sample(20, seed=5), method="expected-max", clock=clock, quantile=0.9
    )
    assert 0 <= found.gap <= TARGET * (1 + 1e-6)


def test_three_hundred_devices_are_planned() -> None:
    found = plan(
        ALEXNET, Fleet.sample(300, seed=0), method="expected-max", max_split=8, quantile=0.95
    )
    assert 0 <= found.gap <= 0.05
    assert math.fsum(found.shares) <= 1.0
    assert found.law.cdf_of_max(found.objective_s) == pytest.approx(0.95, abs=1e-6)
