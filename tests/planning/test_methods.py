"""Every method: a Plan with all attributes, feasible shares, an objective above its bound."""

from __future__ import annotations

import json
import math
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airsplit import METHODS, Cell, Clock, Fleet, Plan, plan
from planning.problems import (
    ALEXNET,
    Case,
    Reference,
    cases,
    examples,
    make_profile,
    nothing_averaged,
)

CLOCKS = {
    "paper": Clock(),
    "downlink": Clock(downlink=True),
    "backward": Clock(backward_macs_ratio=2.0),
    "server": Clock(server_seconds_per_mac=1e-10, server_parallel=2),
    "slow server": Clock(server_seconds_per_mac=1e-7),
    "round": Clock(barrier="round", iterations_per_round=7),
    "everything": Clock(
        barrier="round",
        iterations_per_round=3,
        downlink=True,
        backward_macs_ratio=1.0,
        server_seconds_per_mac=1e-11,
        server_parallel=1,
    ),
}
CELLS = {
    "power": Cell(),
    "density": Cell(noise_dbm_per_hz=-174.0),
    "blocks": Cell(resource_blocks=6),
    "density in blocks": Cell(noise_dbm_per_hz=-174.0, resource_blocks=6),
}


def options_of(method: str) -> dict[str, Any]:
    return {"split": 4} if method == "fixed" else {}


def check(found: Plan, case: Case) -> None:
    """The invariants of every plan."""
    K, reference = len(case.fleet), Reference(case)
    assert (
        found.splits.shape
        == found.shares.shape
        == found.compute_s.shape
        == found.transmit_s.shape
        == (K,)
    )
    assert (found.shares >= 0).all()
    assert (
        max(
            float(found.shares.sum()),
            math.fsum(found.shares),
            sum(found.shares.tolist()),
            sum(found.shares.tolist()[::-1]),
        )
        <= 1.0
    )
    assert all(
        split - 1 in allowed for split, allowed in zip(found.splits, reference.options, strict=True)
    )
    assert math.isfinite(found.objective_s)
    assert math.isfinite(found.expected_latency_s)
    assert 0 < found.lower_bound_s <= found.objective_s
    assert found.gap == found.objective_s / found.lower_bound_s - 1 >= 0
    assert found.mean_latency_s <= found.expected_latency_s * (1 + 1e-9)
    assert found.mean_latency_s == pytest.approx(
        reference.latency_s(found.splits - 1, found.shares), rel=1e-9
    )
    wanted = found.expected_latency_s if found.method == "expected-max" else found.mean_latency_s
    assert found.objective_s == pytest.approx(wanted, rel=1e-12)
    if case.fleet.cell.resource_blocks:
        counts = found.shares * case.fleet.cell.resource_blocks
        assert counts == pytest.approx(np.round(counts), abs=1e-9)
        assert np.round(counts).min() >= 1


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("clock", CLOCKS.values(), ids=CLOCKS)
@pytest.mark.parametrize("cell", CELLS.values(), ids=CELLS)
def test_every_method_works_under_every_clock_and_noise(
    method: str, clock: Clock, cell: Cell
) -> None:
    case = Case(
        ALEXNET,
        Fleet.sample(3, seed=1, distance_spread=0.5, cell=cell),
        {"clock": clock, "max_split": 4, "batch_size": 4},
    )
    check(case.plan(method, **options_of(method)), case)


@examples(60)
@given(
    cases(most_rows=3),
    st.sampled_from(["equal", "random", "paper", "expected-max", "exact", "exhaustive"]),
    st.booleans(),
)
def test_every_method_returns_a_valid_plan_on_any_problem(
    case: Case, method: str, certify: bool
) -> None:
    check(case.plan(method, certify=certify), case)


@pytest.mark.parametrize("method", METHODS)
def test_a_plan_has_every_attribute_of_the_contract(method: str) -> None:
    found = plan(
        ALEXNET,
        Fleet.sample(3, seed=0),
        method=method,
        max_split=6,
        batch_size=8,
        **options_of(method),
    )
    assert isinstance(found, Plan)
    assert len(found) == 3
    assert found.splits.dtype.kind == "i"
    assert found.splits.min() >= 1
    assert found.split_names == tuple(ALEXNET.names[split - 1] for split in found.splits)
    for column in (found.shares, found.compute_s, found.transmit_s):
        assert column.dtype == np.float64
        assert not column.flags.writeable
    for number in (
        found.mean_latency_s,
        found.expected_latency_s,
        found.objective_s,
        found.lower_bound_s,
        found.gap,
    ):
        assert type(number) is float
    assert type(found.averaged_parameters) is int
    assert found.averaged_parameters == ALEXNET.parameters[found.splits.max() :].sum()
    assert found.method == method
    assert isinstance(found.status, str)
    assert found.status
    assert type(found.iterations) is int
    assert isinstance(found.history, tuple)
    assert found.batch_size == 8
    assert found.profile_fingerprint == ALEXNET.fingerprint
    assert found.compute_s + found.transmit_s + found.server_s == pytest.approx(found.latency_s)


@pytest.mark.parametrize("method", METHODS)
def test_a_plan_becomes_json_under_the_names_of_its_attributes(method: str) -> None:
    found = plan(ALEXNET, Fleet.sample(3, seed=0), method=method, max_split=6, **options_of(method))
    data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    # fmt: off
    promised = {
        "splits", "split_names", "shares", "compute_s", "transmit_s", "mean_latency_s",
        "expected_latency_s", "objective_s", "lower_bound_s", "gap", "averaged_parameters",
        "method", "status", "iterations", "history",
    }
    # fmt: on
    assert promised <= data.keys()
    for name in promised:
        value = getattr(found, name)
        assert data[name] == (list(value) if isinstance(value, tuple | np.ndarray) else value)


def test_means_agree_with_the_paper_s_formulas() -> None:
    # E[τ^cp] = m c (a + 1/ε); τ^cm = m D 32 / (b W log2(1 + SNR))
    fleet = Fleet.sample(4, seed=2)
    found = plan(ALEXNET, fleet, method="fixed", split="pool1", batch_size=16)
    c, D = ALEXNET.macs[3] * 16, ALEXNET.activation_elements[3] * 16 * 32
    assert found.compute_s == pytest.approx(c * (fleet.seconds_per_mac + 1 / fleet.fluctuation))
    assert found.transmit_s == pytest.approx(D / fleet.rate_bps(found.shares))
    assert found.mean_latency_s == pytest.approx((found.compute_s + found.transmit_s).max())


def test_optimal_objectives_are_ordered_by_jensen_s_inequality() -> None:
    fleet = Fleet.sample(20, seed=0)
    exact, expected = (
        plan(ALEXNET, fleet, method=m, max_split=8) for m in ("exact", "expected-max")
    )
    assert exact.objective_s <= expected.mean_latency_s * (1 + 1e-9)
    assert expected.objective_s <= exact.expected_latency_s * (1 + 1e-9)
    assert exact.objective_s < expected.objective_s


def test_the_quantile_of_a_plan_is_the_quantile_of_its_law() -> None:
    found = plan(ALEXNET, Fleet.sample(5, seed=0), max_split=8)
    assert found.law.cdf_of_max(found.quantile_s(0.9)) == pytest.approx(0.9, rel=1e-9)
    assert found.quantile_s(0.5) < found.quantile_s(0.95)


@pytest.mark.parametrize("method", METHODS)
def test_planning_is_deterministic(method: str) -> None:
    one, two = (
        plan(
            ALEXNET, Fleet.sample(3, seed=0), method=method, max_split=6, **options_of(method)
        ).to_dict()
        for _ in range(2)
    )
    assert one == two


def test_a_trace_is_planned_at_its_start_and_measured_rates_are_used_as_given() -> None:
    fleet = Fleet.sample(3, seed=4)
    rates = fleet.rate_bps(1.0)
    measured = Fleet(
        seconds_per_mac=fleet.seconds_per_mac,
        fluctuation=fleet.fluctuation,
        full_band_rate_bps=rates,
    )
    assert plan(ALEXNET, measured).objective_s == pytest.approx(
        plan(ALEXNET, fleet).objective_s, rel=1e-12
    )


def test_without_a_limit_alexnet_stops_at_19() -> None:
    far = Fleet.sample(3, seed=0, mean_distance_m=3000.0)
    assert plan(ALEXNET, far).splits.max() <= 19
    assert (
        plan(ALEXNET, far, method="fixed", split=19).averaged_parameters
        == ALEXNET.parameters[19]
        > 0
    )
    assert Case(ALEXNET, far).problem().max_splits.tolist() == [19] * 3


def test_only_keeping_every_parameter_on_the_devices_warns() -> None:
    far = Fleet.sample(3, seed=0, mean_distance_m=3000.0)
    for limit in (20, "fc8", [3, 20, 3]):
        with pytest.warns(UserWarning, match="nothing is averaged") as caught:
            plan(ALEXNET, far, max_split=limit)
        assert caught[0].filename == __file__  # the caller's line, not the library's
    with nothing_averaged():
        assert plan(ALEXNET, far, max_split=20).averaged_parameters == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for quiet in (None, 19, "relu7", [1, 19, 8]):
            plan(ALEXNET, far, max_split=quiet)


def test_the_default_limit_leaves_out_rows_behind_the_last_parameter() -> None:
    fleet = Fleet(seconds_per_mac=1e-3, fluctuation=1e9, full_band_rate_bps=1.0)  # type: ignore[arg-type]
    profile = make_profile(
        [1, 1, 1, 1], [90, 80, 70, 1], [5, 5, 5, 0]
    )  # the last row, a softmax, has no parameters
    assert plan(profile, fleet).splits.tolist() == [2]
    bare = make_profile([1, 1], [90, 80], [0, 0])  # nothing to average at all: the first split
    assert plan(bare, fleet).splits.tolist() == [1]


def test_a_limit_is_a_number_a_name_or_a_list_for_the_devices() -> None:
    fleet = Fleet.sample(3, seed=0, mean_distance_m=3000.0)
    by_number, by_name = (plan(ALEXNET, fleet, max_split=limit) for limit in (8, "pool2"))
    assert by_number.splits.tolist() == by_name.splits.tolist()
    each = plan(ALEXNET, fleet, max_split=[4, "pool2", np.int64(15)])
    assert (each.splits <= [4, 8, 15]).all()
    assert (
        plan(ALEXNET, fleet, max_split=np.array([4, 8, 15])).splits.tolist() == each.splits.tolist()
    )


@pytest.mark.parametrize("method", [m for m in METHODS if m != "fixed"])
def test_the_shallowest_and_the_deepest_split_may_be_equal(method: str) -> None:
    found = plan(ALEXNET, Fleet.sample(3, seed=0), method=method, min_split=5, max_split=5)
    assert found.splits.tolist() == [5, 5, 5]
    assert found.lower_bound_s <= found.objective_s


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("K", [1, 3])
def test_a_profile_of_one_row_has_one_plan(method: str, K: int) -> None:
    fleet = Fleet(seconds_per_mac=[1e-9] * K, fluctuation=1e9, full_band_rate_bps=1e6)  # type: ignore[arg-type]
    found = plan(
        make_profile([10**6], [100]),
        fleet,
        method=method,
        **({"split": 1} if method == "fixed" else {}),
    )
    assert found.splits.tolist() == [1] * K
    assert found.averaged_parameters == 0
    check(found, Case(make_profile([10**6], [100]), fleet))


def test_equal_gives_each_device_the_same_share_and_its_best_split() -> None:
    fleet = Fleet.sample(5, seed=3)
    found = plan(ALEXNET, fleet, method="equal", max_split=8)
    assert found.shares == pytest.approx([0.2] * 5, rel=1e-12)
    c, D = ALEXNET.macs[:8].astype(float), ALEXNET.activation_elements[:8] * 32.0
    kappa = fleet.seconds_per_mac + 1 / fleet.fluctuation
    latency = kappa[:, None] * c + D / fleet.rate_bps(0.2)[:, None]
    assert found.splits.tolist() == (latency.argmin(axis=1) + 1).tolist()
    assert found.objective_s == pytest.approx(latency.min(axis=1).max(), rel=1e-9)


def test_equal_gives_each_device_the_same_number_of_blocks() -> None:
    found = plan(
        ALEXNET, Fleet.sample(5, seed=3, cell=Cell(resource_blocks=13)), method="equal", max_split=8
    )
    assert found.shares == pytest.approx([2 / 13] * 5, rel=1e-12)


def test_fixed_takes_a_number_a_name_or_a_list_and_finds_the_best_shares() -> None:
    fleet = Fleet.sample(3, seed=3)
    four = [
        plan(ALEXNET, fleet, method="fixed", split=split)
        for split in (4, "pool1", [4, 4, 4], [4, "pool1", 4], np.array([4, 4, 4]))
    ]
    for found in four:
        assert found.splits.tolist() == [4, 4, 4]
        assert found.shares == pytest.approx(four[0].shares)
        assert found.latency_s == pytest.approx(
            [found.objective_s] * 3, rel=1e-9
        )  # everybody finishes together
    assert plan(ALEXNET, fleet, method="fixed", split=[1, 8, 15]).splits.tolist() == [1, 8, 15]


def test_fixed_at_the_last_row_needs_a_limit_that_allows_it() -> None:
    fleet = Fleet.sample(2, seed=3)
    with nothing_averaged():
        assert plan(ALEXNET, fleet, method="fixed", split=20, max_split=20).splits.tolist() == [
            20,
            20,
        ]


def test_random_splits_depend_on_the_seed_alone() -> None:
    fleet = Fleet.sample(12, seed=3)
    one, same, other = (plan(ALEXNET, fleet, method="random", seed=seed) for seed in (0, 0, 1))
    assert one.splits.tolist() == same.splits.tolist()
    assert one.splits.tolist() != other.splits.tolist()
    assert (
        plan(ALEXNET, Fleet.sample(12, seed=9), method="random", seed=0).splits.tolist()
        == one.splits.tolist()
    )


def test_random_splits_are_drawn_uniformly_from_the_allowed_ones() -> None:
    K = 20_000
    fleet = Fleet(seconds_per_mac=[1e-9] * K, fluctuation=1e9, full_band_rate_bps=1e9)  # type: ignore[arg-type]
    found = plan(ALEXNET, fleet, method="random", min_split=3, max_split=7)
    counts = np.bincount(found.splits, minlength=9)
    assert counts[:3].sum() + counts[8:].sum() == 0
    assert (np.abs(counts[3:8] - K / 5) <= 5 * math.sqrt(K * 0.2 * 0.8)).all()


def test_every_method_is_registered_once_and_has_a_docstring() -> None:
    assert set(METHODS) == {
        "paper",
        "exact",
        "expected-max",
        "equal",
        "fixed",
        "random",
        "exhaustive",
    }
    assert all(method.__doc__ for method in METHODS.values())


def test_the_repr_of_a_plan_is_one_line_for_any_number_of_devices() -> None:
    large = plan(ALEXNET, Fleet.sample(1000, seed=0), max_split=8)
    splits = f"splits {min(large.splits)} to {max(large.splits)}"
    assert repr(large).startswith(f"Plan('expected-max', 1000 devices, {splits}, mean_latency_s=")
    assert len(repr(large)) < 140
