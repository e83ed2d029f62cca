"""The exact optimum against exhaustive search, by hand, and by what theory says of it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import gamma

from airsplit import Cell, Clock, Fleet, Plan, Profile, plan
from airsplit.planning.baselines import exhaustive
from planning.problems import (
    ALEXNET,
    VGG16,
    Case,
    Reference,
    cases,
    examples,
    make_profile,
    nothing_averaged,
    powers,
)


def plan_exactly(profile: Profile, fleet: Fleet, *, method: str = "exact", **options: Any) -> Plan:
    """Return a plan, by "exact" unless another method is named."""
    return plan(profile, fleet, method=method, **options)


def measured_fleet(rates_bps: Any, pace: Any = 0.5, fluctuation: Any = 2.0, **more: Any) -> Fleet:
    """Devices with κ = a + 1/ε = 1 s/MAC by default."""
    return Fleet(
        seconds_per_mac=pace, fluctuation=fluctuation, full_band_rate_bps=rates_bps, **more
    )


def profile_with_gradients(layer_macs: list[int], sent: list[int], come_back: list[int]) -> Profile:
    """A profile in which not all that is sent has a gradient."""
    rows = make_profile(layer_macs, sent)
    return Profile(
        rows.names, layer_macs, rows.matmul_macs, sent, rows.parameters, gradient_elements=come_back
    )  # type: ignore[arg-type]


def is_no_later(sooner: float, later: float) -> bool:
    return sooner <= later * (1 + 1e-9)


@examples(200)
@given(cases(most_rows=3))
def test_exact_is_as_good_as_exhaustive_search(case: Case) -> None:
    best, tried = case.plan("exact"), case.plan("exhaustive")
    assert best.objective_s == pytest.approx(tried.objective_s, rel=1e-9)


@pytest.mark.parametrize("noise", [{}, {"noise_dbm_per_hz": -174.0}])
@pytest.mark.parametrize("limits", [4, [4, 2, 3]])
def test_exact_is_as_good_as_exhaustive_search_if_gradients_are_no_fixed_fraction(
    noise: dict[str, float], limits: Any
) -> None:
    profile = profile_with_gradients(
        [10**6] * 5, [9000, 5000, 4000, 1500, 10], [0, 5000, 500, 1500, 10]
    )
    fleet = Fleet.sample(
        3, seed=1, distance_spread=0.7, seconds_per_mac=[1e-9, 1e-6], cell=Cell(**noise)
    )
    options: dict[str, Any] = {
        "clock": Clock(downlink=True, server_seconds_per_mac=1e-10),
        "max_split": limits,
    }
    best, tried = (
        Case(profile, fleet, options).plan("exact"),
        Case(profile, fleet, options).plan("exhaustive"),
    )
    assert best.objective_s == pytest.approx(tried.objective_s, rel=1e-9)
    assert best.splits.tolist() == tried.splits.tolist()
    assert best.gap <= 1e-8


@examples(60)
@given(cases())
def test_exact_attains_its_latency_and_no_plan_attains_less(case: Case) -> None:
    best, reference = case.plan(), Reference(case)
    assert reference.latency_s(best.splits - 1, best.shares) == pytest.approx(
        best.objective_s, rel=1e-9
    )
    assert best.objective_s == best.mean_latency_s
    assert all(
        split - 1 in allowed for split, allowed in zip(best.splits, reference.options, strict=True)
    )
    assert reference.band_needed(best.objective_s * (1 - 1e-7)) > 1
    assert reference.band_needed(best.lower_bound_s * (1 - 1e-9)) > 1


@examples(80)
@given(cases())
def test_the_lower_bound_is_below_the_objective_and_the_gap_is_rounding(case: Case) -> None:
    best = case.plan()
    assert 0 < best.lower_bound_s <= best.objective_s
    assert 0 <= best.gap <= 1e-8
    assert best.shares.sum() <= 1.0


@examples(60)
@given(cases(most_rows=3), st.sampled_from([1e-6, 0.05, 0.5, 0.95, 0.999, 1 - 1e-9]))
def test_a_device_quantile_is_minimized_over_every_combination(case: Case, p: float) -> None:
    best, problem, reference = (
        case.plan(device_quantile=p),
        case.problem(device_quantile=p),
        Reference(case),
    )
    draws = reference.clock.iterations_per_round if reference.clock.barrier == "round" else 1
    risk = float(gamma.ppf(p, draws) if p < 0.5 else gamma.isf(1 - p, draws)) / draws
    rows, shares = exhaustive(problem)
    assert best.objective_s == pytest.approx(
        reference.latency_s(best.splits - 1, best.shares, risk), rel=1e-8
    )
    assert best.objective_s == pytest.approx(reference.latency_s(rows, shares, risk), rel=1e-8)
    assert best.objective_s == pytest.approx(float(best.law.device_quantile_s(p).max()), rel=1e-9)
    assert best.gap <= 1e-8


@examples(60)
@given(st.data(), st.integers(1, 8))
def test_whole_blocks_are_allocated_optimally(data: st.DataObject, blocks: int) -> None:
    case = data.draw(cases(most_devices=min(3, blocks), most_rows=3, blocks=blocks))
    best = case.plan()
    assert best.objective_s == pytest.approx(Reference(case).least_over_blocks(blocks), rel=1e-9)
    assert best.objective_s == pytest.approx(case.plan("exhaustive").objective_s, rel=1e-9)
    counts = best.shares * blocks
    assert counts == pytest.approx(np.round(counts), abs=1e-9)
    assert (np.round(counts) >= 1).all()
    assert best.shares.sum() <= 1.0
    assert best.gap <= 1e-8


@examples(30)
@given(cases(most_rows=3), st.integers(0, 1000))
def test_exact_is_never_slower_than_any_other_method(case: Case, seed: int) -> None:
    best = case.plan()
    splits = np.array(
        [np.random.default_rng(seed).choice(rows) + 1 for rows in Reference(case).options]
    )
    others = [case.plan(method) for method in ("paper", "equal", "exhaustive", "expected-max")]
    others += [case.plan("fixed", split=splits.tolist()), case.plan("random", seed=seed)]
    for other in others:
        assert is_no_later(best.objective_s, other.mean_latency_s), other.method
        assert best.lower_bound_s <= other.mean_latency_s


@pytest.mark.parametrize("profile", [ALEXNET, VGG16], ids=["AlexNet", "VGG16"])
@pytest.mark.parametrize("cell", [Cell(), Cell(noise_dbm_per_hz=-174.0)], ids=["power", "density"])
def test_exact_is_never_slower_on_the_paper_s_fleets(profile: Profile, cell: Cell) -> None:
    for seed, distance in enumerate((50.0, 200.0, 400.0, 800.0)):
        fleet = Fleet.sample(
            20, seed=seed, mean_distance_m=distance, distance_spread=0.5, cell=cell
        )
        for limit in (6, None):
            best = plan_exactly(profile, fleet, max_split=limit)
            assert best.gap <= 1e-8
            for method in ("paper", "equal", "random"):
                assert is_no_later(
                    best.objective_s,
                    plan_exactly(
                        profile, fleet, method=method, max_split=limit, seed=seed
                    ).objective_s,
                )


def scale(profile: Profile, factor: int) -> Profile:
    rows = make_profile(
        (profile.layer_macs * factor).tolist(),
        (profile.activation_elements * factor).tolist(),
        profile.parameters.tolist(),
    )
    return replace(rows, raw_inputs=profile.raw_inputs)


@examples(60)
@given(cases(), st.integers(2, 50))
def test_latency_scales_with_work_and_payload(case: Case, factor: int) -> None:
    assume(case.fleet.memory_bytes is None)
    one, many = case.plan(), Case(scale(case.profile, factor), case.fleet, case.options).plan()
    assert many.objective_s == pytest.approx(factor * one.objective_s, rel=1e-9)


@pytest.mark.parametrize("method", ["exact", "paper", "equal", "expected-max"])
def test_the_batch_scales_latency_and_changes_neither_splits_nor_shares(method: str) -> None:
    fleet = Fleet.sample(8, seed=2)
    one, many = (
        plan_exactly(ALEXNET, fleet, method=method, max_split=8, batch_size=batch)
        for batch in (1, 32)
    )
    assert many.mean_latency_s == pytest.approx(32 * one.mean_latency_s, rel=1e-7)
    assert many.expected_latency_s == pytest.approx(32 * one.expected_latency_s, rel=1e-7)
    assert (many.splits == one.splits).all()
    assert many.shares == pytest.approx(one.shares, rel=1e-5)


def permute(fleet: Fleet, order: Any) -> Fleet:
    columns = (
        "seconds_per_mac",
        "fluctuation",
        "distance_m",
        "fading",
        "transmit_power_dbm",
        "full_band_rate_bps",
        "memory_bytes",
    )
    changes = {c: getattr(fleet, c)[order] for c in columns if getattr(fleet, c) is not None}
    return fleet.replace(**changes)


@examples(60)
@given(cases(), st.randoms(use_true_random=False))
def test_the_order_of_the_devices_does_not_matter(case: Case, shuffle: Any) -> None:
    order = list(range(len(case.fleet)))
    shuffle.shuffle(order)
    options = dict(case.options)
    if isinstance(options.get("max_split"), list):
        options["max_split"] = [options["max_split"][k] for k in order]
    one, other = case.plan(), Case(case.profile, permute(case.fleet, order), options).plan()
    assert other.objective_s == pytest.approx(one.objective_s, rel=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_a_permuted_fleet_gets_the_permuted_plan(seed: int) -> None:
    fleet, order = (
        Fleet.sample(20, seed=seed, mean_distance_m=300),
        np.random.default_rng(seed).permutation(20),
    )
    one, other = plan_exactly(ALEXNET, fleet), plan_exactly(ALEXNET, permute(fleet, order))
    assert (other.splits == one.splits[order]).all()
    assert other.shares == pytest.approx(one.shares[order], rel=1e-9)


@examples(60)
@given(cases(), st.floats(1, 10))
def test_better_radio_and_faster_devices_never_hurt(case: Case, factor: float) -> None:
    fleet, before = case.fleet, case.plan().objective_s
    better = [
        fleet.replace(
            seconds_per_mac=fleet.seconds_per_mac / factor, fluctuation=fleet.fluctuation * factor
        )
    ]
    if fleet.distance_m is None:
        assert fleet.full_band_rate_bps is not None
        better.append(fleet.replace(full_band_rate_bps=fleet.full_band_rate_bps * factor))
    else:
        better.append(fleet.replace(distance_m=fleet.distance_m / factor))
        better.append(
            fleet.replace(cell=fleet.cell.replace(bandwidth_hz=fleet.cell.bandwidth_hz * factor))
        )
        better.append(fleet.replace(fading=fleet.fading * factor))
    for other in better:
        assert is_no_later(Case(case.profile, other, case.options).plan().objective_s, before)


@examples(60)
@given(cases())
def test_more_options_never_hurt(case: Case) -> None:
    before, L = case.plan().objective_s, len(case.profile)
    assert is_no_later(case.plan(max_split=L).objective_s, before)
    assert is_no_later(case.plan(min_split=1).objective_s, before)
    assert is_no_later(
        Case(case.profile, case.fleet.replace(memory_bytes=None), case.options).plan().objective_s,
        before,
    )


@examples(40)
@given(cases())
def test_removing_a_device_never_hurts(case: Case) -> None:
    assume(len(case.fleet) > 1)
    keep = np.arange(len(case.fleet) - 1)
    options = dict(case.options)
    if isinstance(options.get("max_split"), list):
        options["max_split"] = options["max_split"][:-1]
    assert is_no_later(
        Case(case.profile, permute(case.fleet, keep), options).plan().objective_s,
        case.plan().objective_s,
    )


def test_more_blocks_approach_a_continuous_band() -> None:
    fleet = Fleet.sample(6, seed=3)
    at_will = plan_exactly(ALEXNET, fleet, max_split=8).objective_s
    latencies = []
    for blocks in (
        6,
        12,
        24,
        48,
        96,
        6 * 2**12,
    ):  # each a multiple of the one before, so never worse
        cell = fleet.cell.replace(resource_blocks=blocks)
        latencies.append(plan_exactly(ALEXNET, fleet.replace(cell=cell), max_split=8).objective_s)
    assert latencies == sorted(latencies, reverse=True)
    assert at_will <= latencies[-1] * (1 + 1e-12)
    assert latencies[-1] == pytest.approx(at_will, rel=1e-2)


def test_one_device_and_one_layer() -> None:
    with nothing_averaged():
        only = plan_exactly(make_profile([8], [4]), measured_fleet(64.0), max_split=1)
    # κ c + D/r = 8 + 128/64
    assert only.objective_s == pytest.approx(10.0, rel=1e-12)
    assert (only.splits.tolist(), only.split_names) == ([1], ("r1",))
    assert only.shares == pytest.approx([1.0])
    assert only.averaged_parameters == 0


def test_two_devices_by_hand() -> None:
    # at τ = 10: (10 - 8)/128 s a bit at split 1, (10 - 9)/32 at split 2: the deeper cut needs half
    # the band of the first
    profile = make_profile([8, 1, 90], [4, 1, 1])
    both = plan_exactly(profile, measured_fleet([64.0, 64.0]))
    assert both.splits.tolist() == [2, 2]
    assert both.objective_s == pytest.approx(9 + 32 / 32, rel=1e-12)
    assert both.compute_s == pytest.approx([9.0, 9.0])
    assert both.transmit_s == pytest.approx([1.0, 1.0])
    assert both.averaged_parameters == 1


def test_equal_devices_get_equal_shares_and_one_split() -> None:
    for K in (2, 7, 64):
        fleet = Fleet(seconds_per_mac=[0.5e-9] * K, fluctuation=4e9, distance_m=200.0)  # type: ignore[arg-type]
        alike = plan_exactly(ALEXNET, fleet, max_split=8)
        assert alike.shares == pytest.approx([1 / K] * K, rel=1e-9)
        assert len(set(alike.splits.tolist())) == 1
        # one device with a K-th of the band is the same problem
        alone = plan_exactly(
            ALEXNET,
            fleet[0] and measured_fleet(float(fleet.rate_bps(1 / K)[0]), 0.5e-9, 4e9),
            max_split=8,
        )
        assert alike.objective_s == pytest.approx(alone.objective_s, rel=1e-9)
        assert alike.splits[0] == alone.splits[0]


@pytest.mark.parametrize("method", ["exact", "equal", "exhaustive", "expected-max"])
def test_among_equal_rows_the_smaller_split_wins(method: str) -> None:
    profile = make_profile([8, 0, 0, 5], [4, 4, 4, 1])  # three cuts that cost the same
    assert plan_exactly(
        profile, measured_fleet([64.0, 999.0]), method=method, max_split=3
    ).splits.tolist() == [1, 1]


@pytest.mark.parametrize("method", ["exact", "equal", "exhaustive"])
@pytest.mark.parametrize("K", [1, 2])
def test_among_equal_latencies_the_smaller_split_wins(method: str, K: int) -> None:
    # K devices at 32·K bit/s: six elements after no work, or two after four MACs, both take 6 s
    profile = make_profile([0, 4, 9], [6, 2, 1])
    tied = plan_exactly(profile, measured_fleet([32.0 * K] * K), method=method, max_split=2)
    assert tied.splits.tolist() == [1] * K
    assert tied.objective_s == pytest.approx(6.0, rel=1e-12)


@pytest.mark.parametrize("method", ["exact", "equal", "exhaustive"])
@pytest.mark.parametrize("K", [1, 2])
def test_the_smaller_split_wins_ties_if_gradients_are_no_fixed_fraction(
    method: str, K: int
) -> None:
    # four elements up and two down after no work, or two up and none down after four MACs: 6 s
    # again
    sizes = {"activation_elements": np.array([4, 2, 1]), "gradient_elements": np.array([2, 0, 0])}
    profile = Profile(
        ["r1", "r2", "r3"],
        np.array([0, 4, 9]),
        matmul_macs=np.array([0, 4, 13]),
        parameters=np.ones(3, int),
        **sizes,
    )
    tied = plan_exactly(
        profile,
        measured_fleet([32.0 * K] * K),
        method=method,
        max_split=2,
        clock=Clock(downlink=True),
    )
    assert tied.splits.tolist() == [1] * K
    assert tied.objective_s == pytest.approx(6.0, rel=1e-12)


@pytest.mark.parametrize("tenths", range(1, 40, 3))
def test_the_smaller_split_wins_ties_hidden_by_rounding(tenths: int) -> None:
    # κ = tenths / 10 s/MAC: ten MACs more take as long as `tenths` elements more, whatever rounding
    # makes of it
    profile = make_profile([7, 10, 5], [tenths + 3, 3, 1])
    fleet = measured_fleet([32.0], tenths / 20, 20 / tenths)
    for method in ("exact", "equal", "exhaustive"):
        assert plan_exactly(profile, fleet, method=method, max_split=2).splits.tolist() == [1], (
            method
        )


def test_each_device_may_have_its_own_limit() -> None:
    profile = make_profile([1, 1, 1], [1000, 10, 1])
    fleet = measured_fleet([64.0, 64.0])
    assert plan_exactly(profile, fleet, max_split=[1, 2]).splits.tolist() == [1, 2]
    assert plan_exactly(profile, fleet, max_split=["r2", "r1"]).splits.tolist() == [2, 1]


def test_a_split_that_exceeds_a_device_s_memory_is_not_offered() -> None:
    profile = make_profile([1, 1, 1], [1000, 10, 1], [5, 5, 5])
    needed = 4 * (2 * np.array([5, 10]) + np.array([1000, 1010]))
    fleet = measured_fleet([64.0, 64.0], memory_bytes=[needed[1], needed[1] - 1])
    assert plan_exactly(profile, fleet).splits.tolist() == [2, 1]


def test_a_server_slower_than_the_devices_leaves_more_to_them() -> None:
    # κ = 1 s/MAC on the device, 3 on the server: of 11 MACs the device takes 10, though the payload
    # is larger there
    profile = make_profile([1, 9, 1], [1, 2, 9])
    fleet = measured_fleet(64.0)
    quick, slow = (
        plan_exactly(profile, fleet, max_split=2, clock=Clock(server_seconds_per_mac=pace))
        for pace in (0.0, 3.0)
    )
    assert (quick.splits.tolist(), quick.objective_s) == ([1], pytest.approx(1.5))
    assert (slow.splits.tolist(), slow.objective_s) == ([2], pytest.approx(10 + 3 + 1))
    assert slow.server_s == pytest.approx([3.0])


def test_a_server_that_runs_one_back_end_at_a_time_slows_down_with_the_number_of_devices() -> None:
    profile = make_profile([1, 10], [1, 1])
    clock = Clock(server_seconds_per_mac=0.1, server_parallel=1)
    for K in (1, 4):
        assert plan_exactly(
            profile, measured_fleet([64.0] * K), clock=clock
        ).server_s == pytest.approx([K * 1.0] * K)


def test_downlink_and_backward_pass_cost_time() -> None:
    profile, fleet = (
        make_profile([8, 100], [4, 1]),
        measured_fleet([64.0], full_band_downlink_bps=[32.0]),
    )
    clock = Clock(downlink=True, backward_macs_ratio=2.0)
    there_and_back = plan_exactly(profile, fleet, clock=clock)
    assert there_and_back.compute_s == pytest.approx([24.0])
    assert there_and_back.transmit_s == pytest.approx([128 / 64 + 128 / 32])


def test_the_barrier_per_round_changes_no_mean() -> None:
    fleet = Fleet.sample(5, seed=9)
    paper, free = (
        plan_exactly(ALEXNET, fleet, clock=Clock(barrier=b, iterations_per_round=9))
        for b in ("iteration", "round")
    )
    assert paper.mean_latency_s == pytest.approx(free.mean_latency_s, rel=1e-12)
    assert free.expected_latency_s < paper.expected_latency_s


def one_device(profile: Profile, rate_bps: float, limit: int) -> Plan:
    """κ = 1e-9 s/MAC, so that τ/κ is τ in nanoseconds."""
    with nothing_averaged():
        return plan_exactly(profile, measured_fleet(rate_bps, 0.5e-9, 2e9), max_split=limit)


def splits_over_rates(profile: Profile, limit: int) -> list[int]:
    taken = [
        int(one_device(profile, rate, limit).splits[0]) for rate in 10 ** np.linspace(11, 3, 300)
    ]
    return [split for at, split in enumerate(taken) if at == 0 or split != taken[at - 1]]


def change_point(profile: Profile, before: int, behind: int, limit: int) -> float:
    """τ/κ where one split gives way to the next, by halving the rate's logarithm."""
    low, high = 3.0, 11.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        split = int(one_device(profile, 10**middle, limit).splits[0])
        low, high = (middle, high) if split >= behind else (low, middle)
    assert int(one_device(profile, 10**high, limit).splits[0]) == before
    assert int(one_device(profile, 10**low, limit).splits[0]) == behind
    return one_device(profile, 10**high, limit).objective_s / 1e-9


def chord_zero(profile: Profile, before: int, behind: int) -> float:
    """Return c where the line through two points (c, D) meets D = 0.

    There the device needs equally much band with both splits.
    """
    c, D = profile.macs.astype(float), profile.activation_elements
    return float(
        c[before - 1]
        + D[before - 1] * (c[behind - 1] - c[before - 1]) / (D[before - 1] - D[behind - 1])
    )


def test_alexnet_goes_from_split_4_straight_to_20_or_to_8() -> None:
    assert splits_over_rates(ALEXNET, 20) == [1, 4, 20]
    assert splits_over_rates(ALEXNET, 8) == [1, 4, 8]
    assert change_point(ALEXNET, 4, 20, 20) == pytest.approx(chord_zero(ALEXNET, 4, 20), rel=1e-9)
    assert change_point(ALEXNET, 4, 8, 8) == pytest.approx(chord_zero(ALEXNET, 4, 8), rel=1e-9)


def test_alexnet_changes_at_the_known_points_once_light_operations_are_left_out() -> None:
    # 1.150e9 and 1.279e9 are for convolutions and matrix products alone
    layers = np.diff(ALEXNET.matmul_macs, prepend=0)
    bare = make_profile(layers.tolist(), ALEXNET.activation_elements.tolist())
    assert change_point(bare, 4, 20, 20) == pytest.approx(1.150e9, rel=5e-4)
    assert change_point(bare, 4, 8, 8) == pytest.approx(1.279e9, rel=5e-4)


def test_vgg16_goes_deeper_in_four_steps() -> None:
    assert splits_over_rates(VGG16, 36) == [1, 5, 10, 17, 36]


def test_a_split_depends_on_the_ratio_of_latency_and_pace_alone() -> None:
    # whatever the channel of the device: below the change point the cut is at 4 (or 1), above at 20
    change = chord_zero(ALEXNET, 4, 20)
    for seed in range(10):
        fleet = Fleet.sample(20, seed=seed, mean_distance_m=100 + 40 * seed, distance_spread=0.9)
        with nothing_averaged():
            best = plan_exactly(ALEXNET, fleet, max_split=20)
        patience = best.objective_s / (fleet.seconds_per_mac + 1 / fleet.fluctuation)
        assert (best.splits[patience > change * 1.000001] == 20).all()
        assert (best.splits[patience < change / 1.000001] <= 4).all()


def test_without_a_limit_a_parameter_is_left_to_average() -> None:
    far = Fleet.sample(20, seed=0, mean_distance_m=800)
    assert plan_exactly(ALEXNET, far).splits.max() <= 19
    assert plan_exactly(ALEXNET, far).averaged_parameters > 0


@pytest.mark.parametrize("cell", [Cell(), Cell(noise_dbm_per_hz=-174.0)], ids=["power", "density"])
def test_a_device_with_hardly_any_rate_gets_the_band(cell: Cell) -> None:
    fleet = Fleet(
        seconds_per_mac=1e-9,
        fluctuation=2e9,
        distance_m=[100.0, 100.0, 2e6 if cell.noise_dbm else 2e5],
        cell=cell,
    )  # type: ignore[arg-type]
    best = plan_exactly(ALEXNET, fleet, max_split=8)
    alone = plan_exactly(ALEXNET, permute(fleet, [2]), max_split=8)
    assert fleet.rate_bps(1.0)[2] < 1.0
    assert best.gap <= 1e-8
    assert best.shares[2] > 0.999
    assert best.objective_s == pytest.approx(alone.objective_s, rel=1e-3)
    assert is_no_later(alone.objective_s, best.objective_s)


def test_a_million_devices_are_planned_like_twenty() -> None:
    K = 1_000_000
    best = plan_exactly(ALEXNET, Fleet.sample(K, seed=0), max_split=8)
    assert best.gap <= 1e-8
    assert math.fsum(best.shares) <= 1.0
    assert float(best.shares.sum()) == pytest.approx(1.0, abs=1e-8)
    assert float(best.latency_s.max() / best.latency_s.min()) == pytest.approx(1.0, rel=1e-6)
    few = permute(Fleet.sample(K, seed=0), slice(0, 200))
    assert plan_exactly(ALEXNET, few, max_split=8).objective_s < best.objective_s


@pytest.mark.parametrize("rate_bps", [1e-15, 1e-6, 1.0, 1e6, 1e15])
@pytest.mark.parametrize("pace", [1e-15, 1e-6, 1e3, 1e15])
def test_the_optimum_is_found_in_any_units(rate_bps: float, pace: float) -> None:
    case = Case(
        make_profile([3, 5, 7], [9, 4, 1]),
        measured_fleet([rate_bps, 3 * rate_bps], [pace, 2 * pace], [1 / pace, 2 / pace]),
        {},
    )
    best = case.plan()
    assert best.objective_s == pytest.approx(case.plan("exhaustive").objective_s, rel=1e-9)
    assert best.gap <= 1e-8
    assert Reference(case).latency_s(best.splits - 1, best.shares) == pytest.approx(
        best.objective_s, rel=1e-12
    )


@pytest.mark.parametrize("density", [False, True])
@pytest.mark.parametrize("ratio", [1e6, 1e12])
def test_two_devices_with_vastly_different_rates_finish_together(
    density: bool, ratio: float
) -> None:
    if density:
        cell = Cell(noise_dbm_per_hz=-174.0)
        fleet = Fleet(
            seconds_per_mac=1e-9,
            fluctuation=2e9,
            distance_m=[100.0, 100.0],
            fading=[1.0, 1 / ratio],
            cell=cell,
        )  # type: ignore[arg-type]
    else:
        fleet = measured_fleet([1e9, 1e9 / ratio], 1e-9, 2e9)
    best = plan_exactly(ALEXNET, fleet, max_split=8)
    assert best.gap <= 1e-8
    # with a density the far device is short of power, not of band: a rounding error of τ is then
    # much of the other's air time
    assert best.latency_s == pytest.approx([best.objective_s] * 2, rel=1e-3 if density else 1e-8)


@examples(60)
@given(powers(-9, 0), powers(-6, 6), st.booleans())
def test_compute_and_air_time_may_differ_by_any_factor(
    tiny: float, pace: float, downlink: bool
) -> None:
    # one device computes for ages and sends a bit, the other is all air
    profile = make_profile([1, 10**6], [10**6, 1])
    fleet = measured_fleet([1 / tiny, 1e3], [pace, 1e-9], [1 / pace, 1e9])
    case = Case(profile, fleet, {"max_split": 2, "clock": Clock(downlink=downlink)})
    best = case.plan()
    assert best.gap <= 1e-8
    assert best.objective_s == pytest.approx(case.plan("exhaustive").objective_s, rel=1e-9)
