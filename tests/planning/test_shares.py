"""Algorithm 1 against a convex solver, by hand, and by what every optimum must satisfy."""

from __future__ import annotations

import math

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airsplit import Cell, Fleet
from airsplit.core.arrays import Floats
from airsplit.planning.shares import Allocation, allocate_shares, within_budget
from airsplit.system.radio import Direction, Link
from planning.problems import ALEXNET, Case, cases, columns, examples, powers


def by_cvxpy(
    link: Link, up_bits: Floats, down_bits: Floats, busy_s: Floats, unit_s: float
) -> float:
    """Return the least max_k (busy + air time) by an interior-point method.

    Times are in units of `unit_s`, so that the solver sees numbers near one.
    """
    K = len(busy_s)
    share, ends = cp.Variable(K), cp.Variable()
    spare, constraints = ends - busy_s / unit_s, [cp.sum(share) <= 1]
    for direction, bits in ((link.up, up_bits), (link.down, down_bits)):
        if direction is None:
            continue
        air = cp.Variable(K)
        rate = share if direction.snr is None else -cp.rel_entr(share, share + direction.snr)
        constraints.append(
            cp.multiply(bits / (direction.scale_bps * unit_s), cp.inv_pos(air)) <= rate
        )
        spare = spare - air
    problem = cp.Problem(cp.Minimize(ends), [*constraints, spare >= 0])
    problem.solve(solver=cp.CLARABEL)
    assert problem.status == cp.OPTIMAL
    return float(ends.value) * unit_s


def direction(density: bool, snr: list[float]) -> Direction:
    return (Direction.noise_density if density else Direction.fixed_snr)(20e6, np.array(snr))


def finish_s(link: Link, up: Floats, down: Floats, busy: Floats, shares: Floats) -> Floats:
    return busy + link.seconds(up, down, shares)


@st.composite
def jobs(
    draw: st.DrawFn, most_devices: int = 6, density: bool | None = None
) -> tuple[Link, Floats, Floats, Floats]:
    """Links, payloads and busy times."""
    K = draw(st.integers(1, most_devices))
    noise_grows = draw(st.booleans()) if density is None else density
    snr, back = draw(columns(powers(-1, 5), K)), draw(st.none() | columns(powers(-1, 5), K))
    link = Link(direction(noise_grows, snr), None if back is None else direction(noise_grows, back))
    bits = np.array(draw(columns(powers(5, 8), K)))
    return link, bits, bits * (back is not None), np.array(draw(columns(st.floats(0, 2), K)))


@pytest.mark.parametrize("density", [False, True])
@pytest.mark.parametrize("downlink", [False, True])
@pytest.mark.parametrize("K", [1, 2, 5, 12])
def test_the_finish_agrees_with_a_convex_solver(density: bool, downlink: bool, K: int) -> None:
    rng = np.random.default_rng(K)
    for _ in range(
        2
    ):  # air times near the busy times: an interior-point method wants numbers of one size
        up, down = (direction(density, (10 ** rng.uniform(-1, 4, K)).tolist()) for _ in range(2))
        bits = rng.uniform(0.1, 1, K) * up.rate_bps(np.ones(K))
        job = Link(up, down if downlink else None), bits, bits * downlink, rng.uniform(0, 2, K)
        done = allocate_shares(*job)
        assert done.finish_s == pytest.approx(by_cvxpy(*job, unit_s=done.finish_s), rel=1e-6)


@examples(150)
@given(jobs())
def test_all_devices_finish_together_and_use_the_whole_band(
    job: tuple[Link, Floats, Floats, Floats],
) -> None:
    done = allocate_shares(*job)
    assert finish_s(*job, done.shares) == pytest.approx(done.finish_s, rel=1e-9)
    assert done.shares.sum() == pytest.approx(1.0, abs=1e-12)
    assert (done.shares > 0).all()


def in_every_order(shares: Floats) -> list[float]:
    values = shares.tolist()
    shuffled = np.random.default_rng(0).permutation(shares)
    return [
        sum(values),
        sum(reversed(values)),
        sum(sorted(values)),
        math.fsum(values),
        float(np.sum(shares)),
        float(shuffled.sum()),
    ]


@examples(150)
@given(jobs(most_devices=9))
def test_the_budget_is_never_exceeded_not_even_by_a_rounding_error(
    job: tuple[Link, Floats, Floats, Floats],
) -> None:
    assert max(in_every_order(allocate_shares(*job).shares)) <= 1.0


@pytest.mark.parametrize("K", [1, 2, 3, 7, 10, 99, 1_000, 12_345])
def test_shares_of_any_number_of_devices_fit_in_any_order_of_summation(K: int) -> None:
    for shares in (
        np.ones(K),
        np.random.default_rng(K).exponential(size=K),
        10.0 ** np.linspace(-15, 0, K),
    ):
        fitted = within_budget(shares)
        assert max(in_every_order(fitted)) <= 1.0
        assert math.fsum(fitted.tolist()) == pytest.approx(1.0, abs=1e-9)
        assert fitted == pytest.approx(shares / shares.sum(), rel=1e-9)


@examples(150)
@given(jobs(density=False))
def test_a_fixed_snr_takes_few_steps_of_newton(job: tuple[Link, Floats, Floats, Floats]) -> None:
    assert allocate_shares(*job).iterations <= 20


@pytest.mark.parametrize("cell", [Cell(), Cell(noise_dbm_per_hz=-174.0)])
def test_the_paper_s_fleets_take_few_steps(cell: Cell) -> None:
    taken = []
    for seed in range(30):
        problem = Case(ALEXNET, Fleet.sample(20, seed=seed, cell=cell), {"max_split": 8}).problem()
        options = problem.options
        rows = np.full(20, 3)
        done = allocate_shares(
            problem.link, options.up_bits[rows], options.down_bits[rows], problem.busy_s(rows, 1.0)
        )
        taken.append(done.iterations)
    assert np.median(taken) <= 6
    assert max(taken) <= 12


def test_a_good_guess_of_the_finish_changes_nothing_but_the_effort() -> None:
    rng = np.random.default_rng(4)
    link, bits, busy = (
        Link(Direction(rng.uniform(1e6, 1e8, 12))),
        rng.uniform(1e5, 1e7, 12),
        rng.uniform(0, 1, 12),
    )
    done = allocate_shares(link, bits, 0 * bits, busy)
    for factor in (0.1, 0.9, 1.0, 1.1, 3.0):
        again = allocate_shares(link, bits, 0 * bits, busy, done.finish_s * factor)
        assert again.finish_s == pytest.approx(done.finish_s, rel=1e-12)
        assert again.shares == pytest.approx(done.shares, rel=1e-9)


@pytest.mark.parametrize("density", [False, True])
def test_one_device_gets_the_whole_band(density: bool) -> None:
    link, bits = (
        Link(direction(density, [3.0])),
        np.array([4e7]),
    )  # 20 MHz · log2(1 + 3) = 40 Mbit/s
    done = allocate_shares(link, bits, np.zeros(1), np.array([0.5]))
    assert done.finish_s == pytest.approx(1.5, rel=1e-12)
    assert done.shares == pytest.approx([1.0], rel=1e-12)
    assert done.shares[0] <= 1.0


def test_two_devices_by_hand() -> None:
    # D/r = (1, 2) s over the whole band, busy (0, 1) s: 1/τ + 2/(τ - 1) = 1, τ² - 4τ + 1 = 0
    done = allocate_shares(
        Link(Direction(np.array([1e6, 1e6]))),
        np.array([1e6, 2e6]),
        np.zeros(2),
        np.array([0.0, 1.0]),
    )
    tau = 2 + math.sqrt(3)
    assert done.finish_s == pytest.approx(tau, rel=1e-12)
    assert done.shares == pytest.approx([1 / tau, 2 / (tau - 1)], rel=1e-9)


def test_with_a_noise_density_a_small_share_keeps_more_than_its_part_of_the_rate() -> None:
    # the same two devices: with a density the rate at half the band is more than half, so both
    # finish sooner
    bits, none, busy = np.array([4e7, 4e7]), np.zeros(2), np.zeros(2)
    fixed = allocate_shares(Link(direction(False, [3.0, 3.0])), bits, none, busy)
    dense = allocate_shares(Link(direction(True, [3.0, 3.0])), bits, none, busy)
    assert fixed.finish_s == pytest.approx(2.0, rel=1e-9)
    assert dense.finish_s == pytest.approx(4e7 / (10e6 * math.log2(7)), rel=1e-9)


def worst(link: Link, bits: Floats, busy: Floats, done: Allocation) -> float:
    return float(finish_s(link, bits, 0 * bits, busy, done.shares).max())


@pytest.mark.parametrize("factor", [1e3, 1e6, 1e9, 1e12])
def test_a_device_with_hardly_any_air_time_costs_the_others_nothing(
    factor: float,
) -> None:
    # the first device is busy for `factor` seconds and on the air for a microsecond; one ulp of τ
    # is then much of the band
    link, bits, busy = (
        Link(Direction(np.array([1e6, 1e6, 1e6]))),
        np.array([1.0, 1e3, 1e6]),
        np.array([factor, 0.0, 0.0]),
    )
    done = allocate_shares(link, bits, 0 * bits, busy)
    assert worst(link, bits, busy, done) == pytest.approx(done.finish_s, rel=1e-12)
    assert done.finish_s == pytest.approx(factor, rel=1e-5)


@pytest.mark.parametrize("snr", [5e-14, 1e-12, 1e-8, 1e-4, 1.0, 1e8])
def test_a_device_limited_by_power_does_not_slow_the_others(snr: float) -> None:
    # at a very low SNR the first device's rate hardly depends on its share: almost nothing is left
    # to win with the last of the band
    link, bits, busy = (
        Link(direction(True, [snr, 1e3, 10.0])),
        np.array([1e6, 1e6, 1e6]),
        np.array([0.1, 0.2, 0.3]),
    )
    done = allocate_shares(link, bits, 0 * bits, busy)
    assert worst(link, bits, busy, done) == pytest.approx(done.finish_s, rel=1e-12)
    nobody_else = float((busy + link.seconds(bits, 0 * bits, np.ones(3))).max())
    assert done.finish_s >= nobody_else * (1 - 1e-12)


@pytest.mark.parametrize("busy_s", [1e3, 1e9])
def test_air_time_below_the_rounding_of_the_busy_time_is_still_shared(
    busy_s: float,
) -> None:
    link, bits = Link(direction(True, [1e6, 1e5])), np.array([1.0, 3.0])
    done = allocate_shares(link, bits, 0 * bits, np.array([busy_s, busy_s]))
    assert done.finish_s == pytest.approx(busy_s, rel=1e-9)
    assert np.isfinite(done.shares).all()
    assert (done.shares > 0).all()
    assert max(in_every_order(done.shares)) <= 1.0


@examples(40)
@given(cases())
def test_a_problem_offers_the_best_shares_for_splits_that_count_from_one(case: Case) -> None:
    splits = case.plan("exact").splits
    found = case.problem().best_shares(splits)
    expected = case.plan("fixed", split=splits.tolist())
    assert found.tolist() == expected.shares.tolist()
    assert expected.objective_s == pytest.approx(case.plan("exact").objective_s, rel=1e-9)
