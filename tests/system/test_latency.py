"""The law of the maximum against closed forms, scipy, finite differences and Monte Carlo."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import digamma
from scipy.stats import gamma

from airsplit.core.arrays import Floats
from airsplit.core.errors import InvalidValue
from airsplit.system.latency import Fluctuation, LatencyLaw

repeatable = settings(max_examples=60, derandomize=True)
powers = st.floats(-4.5, 4.5).map(lambda exponent: 10.0**exponent)


def law(shift_s: list[float] | Floats, scale_s: list[float] | Floats, draws: int = 1) -> LatencyLaw:
    return LatencyLaw(
        np.array(shift_s, dtype=float), np.array(scale_s, dtype=float), Fluctuation(draws)
    )


def harmonic(K: int) -> float:
    return float(digamma(K + 1)) + np.euler_gamma


def by_inclusion_exclusion(shift_s: list[float], scale_s: list[float]) -> float:
    """Return t₀ + Σ_S (-1)^(|S|+1) exp(-Σ s/β) / Σ 1/β over non-empty sets S, with s = t₀ - x."""
    start = max(shift_s)
    total = start
    for size in range(1, len(shift_s) + 1):
        for some in itertools.combinations(range(len(shift_s)), size):
            rate = sum(1 / scale_s[k] for k in some)
            total -= (
                (-1) ** size
                * math.exp(-sum((start - shift_s[k]) / scale_s[k] for k in some))
                / rate
            )
    return total


def by_quad(shift_s: list[float], scale_s: list[float], draws: int) -> float:
    """Return E[max] of Gamma fluctuations by adaptive quadrature of 1 - Π F."""
    start = max(shift_s)
    end = max(
        x + b * float(gamma.isf(1e-16, draws)) / draws
        for x, b in zip(shift_s, scale_s, strict=True)
    )
    knots = sorted(t for x, b in zip(shift_s, scale_s, strict=True) if start < (t := x + b) < end)

    def late(t: float) -> float:
        return 1 - math.prod(
            float(gamma.cdf((t - x) / b * draws, draws))
            for x, b in zip(shift_s, scale_s, strict=True)
        )

    value, _ = quad(late, start, end, points=knots or None, limit=500, epsabs=0, epsrel=1e-11)
    return start + float(value)


@pytest.mark.parametrize("K", [1, 2, 3, 7, 20, 100, 1_000, 10_000, 100_000, 1_000_000])
def test_equal_devices_wait_for_the_harmonic_number_of_fluctuations(K: int) -> None:
    at = LatencyLaw(np.full(K, 2.0), np.full(K, 0.37))
    assert at.expected_max_s - 2.0 == pytest.approx(0.37 * harmonic(K), rel=1e-6)


@pytest.mark.parametrize("K", [1, 2, 20, 100, 1_000, 10_000])
def test_the_quadrature_keeps_nine_digits_up_to_ten_thousand_devices(K: int) -> None:
    # the price bound keeps one part in 10⁹ in hand for the quadrature
    assert LatencyLaw(np.zeros(K), np.ones(K)).expected_max_s == pytest.approx(
        harmonic(K), rel=1e-9
    )


@repeatable
@given(powers, powers, st.floats(0, 4.5).map(lambda e: 10.0**e - 1), st.booleans())
def test_two_devices_agree_with_the_closed_form_whatever_their_scales(
    b1: float, b2: float, ahead: float, swapped: bool
) -> None:
    # x₁ = x₂ + d: E[max] = x₁ + β₁ + e^(-d/β₂) β₂²/(β₁ + β₂)
    d = ahead * b2
    expected = d + b1 + math.exp(-ahead) * b2 * b2 / (b1 + b2)
    shifts, scales = ([0.0, d], [b2, b1]) if swapped else ([d, 0.0], [b1, b2])
    assert law(shifts, scales).expected_max_s == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("ratio", [1e-9, 1e-6, 1e-3, 1.0, 1e3, 1e6, 1e9])
@pytest.mark.parametrize("ahead", [0.0, 1e-9, 1.0, 1e9])
def test_shifts_and_scales_may_differ_by_a_factor_of_a_billion(ratio: float, ahead: float) -> None:
    expected = ahead + 1.0 + math.exp(-ahead / ratio) * ratio * ratio / (1 + ratio)
    assert law([ahead, 0.0], [1.0, ratio]).expected_max_s == pytest.approx(expected, rel=1e-9)


@repeatable
@given(st.lists(st.tuples(st.floats(0, 5), st.floats(0.05, 5)), min_size=1, max_size=6))
def test_a_few_devices_agree_with_inclusion_and_exclusion(
    devices: list[tuple[float, float]],
) -> None:
    shifts, scales = [x for x, _ in devices], [b for _, b in devices]
    assert law(shifts, scales).expected_max_s == pytest.approx(
        by_inclusion_exclusion(shifts, scales), rel=1e-9
    )


@pytest.mark.parametrize("draws", [2, 3, 10, 47])
@pytest.mark.parametrize(
    ("shifts", "scales"),
    [
        ([0.0], [1.0]),
        ([0.0, 0.0], [1.0, 1.0]),
        ([1.0, 0.2, 0.9], [0.3, 1.0, 0.01]),
        ([0.0, 5.0, 5.5, 1.0], [4.0, 0.5, 0.2, 1.0]),
    ],
)
def test_sums_of_draws_agree_with_adaptive_quadrature(
    draws: int, shifts: list[float], scales: list[float]
) -> None:
    assert law(shifts, scales, draws).expected_max_s == pytest.approx(
        by_quad(shifts, scales, draws), rel=1e-9
    )


@pytest.mark.parametrize(
    ("draws", "K"),
    [(2, 1_000), (5, 1_000), (20, 20), (20, 1_000), (100, 20), (100, 1_000), (1_000, 300)],
)
def test_sums_of_draws_stay_accurate_for_many_equal_devices(draws: int, K: int) -> None:
    start, end = (
        float(gamma.ppf(1e-3 / K, draws)) / draws,
        float(gamma.isf(1e-17 / K, draws)) / draws,
    )
    middle = float(gamma.isf(1 / K, draws)) / draws

    def late(t: float) -> float:
        return (
            -math.expm1(K * math.log1p(-float(gamma.sf(draws * t, draws))))
            if gamma.sf(draws * t, draws) < 1
            else 1.0
        )

    rest, _ = quad(late, start, end, points=[middle], limit=500, epsabs=0, epsrel=1e-12)
    # below `start` all K are done with a probability that no digit shows, K ≥ 20
    assert law([0.0] * K, [1.0] * K, draws).expected_max_s == pytest.approx(start + rest, rel=1e-8)


def test_one_device_alone_takes_its_mean_however_many_draws() -> None:
    for draws in (1, 2, 47, 1_000):
        assert law([3.0], [2.0], draws).expected_max_s == pytest.approx(5.0, rel=1e-10)


def test_more_draws_bring_the_maximum_nearer_to_the_mean() -> None:
    # 20 equal devices, a = 2/ε: an iteration costs 1.87 mean times alone,
    # and 1.10 within a round of 47.
    mean = 3.0
    alone, together = law([2.0] * 20, [1.0] * 20), law([2.0] * 20, [1.0] * 20, 47)
    assert (
        alone.expected_max_s / mean
        == pytest.approx((2 + harmonic(20)) / 3, rel=1e-9)
        == pytest.approx(1.87, abs=0.005)
    )
    assert together.expected_max_s / mean == pytest.approx(1.10, abs=0.005)


def test_a_steady_device_is_a_floor_under_the_others() -> None:
    # E[max(c, x + βX)] = c + β e^(-(c-x)/β)
    at = law([2.0, 1.0], [0.0, 0.5])
    assert at.expected_max_s == pytest.approx(2 + 0.5 * math.exp(-2), rel=1e-9)
    who = at.last_device()
    assert who.last == pytest.approx([1 - math.exp(-2), math.exp(-2)], rel=1e-9)


def test_only_steady_devices_end_with_the_slowest() -> None:
    at = law([1.0, 3.0, 2.0], [0.0, 0.0, 0.0])
    assert at.expected_max_s == 3.0
    assert at.last_device().last.tolist() == [0.0, 1.0, 0.0]
    assert at.max_quantile_s(0.1) == at.max_quantile_s(0.999) == 3.0


def test_a_steady_device_has_finished_at_its_time_and_not_before() -> None:
    at = law([1.0, 0.5], [0.0, 0.0])
    assert (at.cdf_of_max(0.999), at.cdf_of_max(1.0), at.cdf_of_max(2.0)) == (0.0, 1.0, 1.0)
    mixed = law([1.0, 0.5], [0.0, 1.0])
    assert mixed.cdf_of_max(1.0) == pytest.approx(1 - math.exp(-0.5))


def test_a_fluctuating_device_that_always_finishes_first_does_not_matter() -> None:
    at = law([100.0, 0.0], [0.0, 1.0])
    assert at.expected_max_s == 100.0
    assert at.last_device().last == pytest.approx([1.0, 0.0], abs=1e-12)


small_laws = st.builds(
    lambda devices, draws: law([x for x, _ in devices], [b for _, b in devices], draws),
    st.lists(st.tuples(st.floats(0, 3), st.floats(0.1, 3)), min_size=1, max_size=5),
    st.sampled_from([1, 1, 2, 10]),
)


@repeatable
@given(small_laws)
def test_the_gradient_is_that_of_finite_differences(at: LatencyLaw) -> None:
    who = at.last_device()
    step = 1e-4
    for k in range(len(at)):
        bump = np.eye(len(at))[k] * step

        def value(dx: Floats, db: Floats) -> float:
            return LatencyLaw(at.shift_s + dx, at.scale_s + db, at.fluctuation).expected_max_s

        in_shift = (value(bump, 0 * bump) - value(-bump, 0 * bump)) / (2 * step)
        in_scale = (value(0 * bump, bump) - value(0 * bump, -bump)) / (2 * step)
        assert who.last[k] == pytest.approx(in_shift, abs=2e-6)
        assert who.excess[k] == pytest.approx(in_scale, abs=2e-6)


@repeatable
@given(small_laws)
def test_the_hazards_give_the_hessian_of_finite_differences(at: LatencyLaw) -> None:
    hazards = at.last_device(hessian=True).hazards
    M = hazards @ hazards.T
    hessian = np.diag(M.sum(axis=1)) - M
    step = 1e-4
    for k in range(len(at)):
        bump = np.eye(len(at))[k] * step
        above = LatencyLaw(at.shift_s + bump, at.scale_s, at.fluctuation).last_device().last
        below = LatencyLaw(at.shift_s - bump, at.scale_s, at.fluctuation).last_device().last
        # Moving the device that starts last moves the kink of the others' laws: for one draw,
        # finite differences have a first-order error there.
        tight = (
            at.fluctuation.draws > 1
            or (np.abs(at.shift_s - at.start_s)[np.arange(len(at)) != k] > step).all()
        )
        assert hessian[k] == pytest.approx(
            (above - below) / (2 * step), abs=1e-5 if tight else 1e-3 / at.scale_s.min() ** 2
        )


@repeatable
@given(small_laws)
def test_eulers_identity_holds_because_the_maximum_is_homogeneous(
    at: LatencyLaw,
) -> None:
    who = at.last_device()
    assert who.last @ at.shift_s + who.excess @ at.scale_s == pytest.approx(
        at.expected_max_s, rel=1e-9
    )
    assert who.expected_max_s == pytest.approx(at.expected_max_s, rel=1e-12)


@repeatable
@given(small_laws)
def test_probabilities_of_being_last_sum_to_one(at: LatencyLaw) -> None:
    who = at.last_device()
    assert (who.last >= 0).all()
    assert (who.excess >= 0).all()
    assert who.last.sum() == pytest.approx(1.0, abs=1e-12)


def test_equal_devices_are_last_equally_often() -> None:
    who = law([1.0] * 8, [2.0] * 8).last_device()
    assert who.last == pytest.approx([1 / 8] * 8, rel=1e-9)
    assert who.excess == pytest.approx([harmonic(8) / 8] * 8, rel=1e-9)


def test_working_in_blocks_of_devices_does_not_change_the_result() -> None:
    K = 5_000  # some twenty blocks
    rng = np.random.default_rng(3)
    x, b = rng.uniform(0, 2, K), rng.uniform(0.1, 1, K)
    at = LatencyLaw(x, b)
    order = rng.permutation(K)
    other = LatencyLaw(x[order], b[order])
    assert at.expected_max_s == pytest.approx(other.expected_max_s, rel=1e-12)
    assert at.last_device().last[order] == pytest.approx(
        other.last_device().last, rel=1e-9, abs=1e-15
    )


@pytest.mark.parametrize("p", [1e-6, 0.01, 0.5, 0.9, 0.999, 1 - 1e-9])
@pytest.mark.parametrize("K", [1, 2, 50])
def test_the_quantile_of_the_maximum_of_equal_devices_has_a_closed_form(p: float, K: int) -> None:
    # F^K = p: z = -ln(1 - p^(1/K))
    expected = 1.5 - 0.25 * math.log(-math.expm1(math.log(p) / K))
    assert law([1.5] * K, [0.25] * K).max_quantile_s(p) == pytest.approx(expected, rel=1e-9)


@repeatable
@given(small_laws, st.floats(1e-6, 1 - 1e-6))
def test_the_quantile_of_the_maximum_inverts_its_distribution(at: LatencyLaw, p: float) -> None:
    t = at.max_quantile_s(p)
    assert at.cdf_of_max(t) == pytest.approx(p, rel=1e-6)
    assert at.cdf_of_max(at.start_s + (t - at.start_s) * (1 - 1e-3)) < p


@repeatable
@given(small_laws)
def test_the_quantile_rises_with_the_probability(at: LatencyLaw) -> None:
    times = [at.max_quantile_s(p) for p in (0.01, 0.1, 0.5, 0.9, 0.99)]
    assert times == sorted(times)
    assert times[0] >= at.start_s


def test_the_distribution_of_the_maximum_is_that_of_draws() -> None:
    at = law([0.0, 0.5, 1.0], [1.0, 0.5, 0.1], 3)
    slowest = at.draw(np.random.default_rng(0), 200_000).max(axis=1)
    for p in (0.1, 0.5, 0.95):
        frequency = float((slowest <= at.max_quantile_s(p)).mean())
        assert frequency == pytest.approx(p, abs=5 * math.sqrt(p * (1 - p) / 200_000))


def test_the_distribution_of_the_maximum_is_zero_up_to_the_last_best_case() -> None:
    at = law([0.0, 1.0], [1.0, 1.0])
    assert at.cdf_of_max(0.999) == 0.0
    assert at.cdf_of_max(1.0) == 0.0
    assert at.cdf_of_max(1e6) == pytest.approx(1.0)


@pytest.mark.parametrize("p", [1e-9, 0.05, 0.5, 0.95, 1 - 1e-12])
def test_a_device_quantile_is_the_best_case_plus_a_multiple_of_the_fluctuation(p: float) -> None:
    assert law([1.0, 2.0], [3.0, 0.0]).device_quantile_s(p) == pytest.approx(
        [1 - 3 * math.log1p(-p), 2.0], rel=1e-9
    )
    for draws in (2, 30):
        expected = float(gamma.ppf(p, draws)) / draws
        assert law([0.0], [1.0], draws).device_quantile_s(p) == pytest.approx([expected], rel=1e-9)


@pytest.mark.parametrize("p", [0.0, 1.0, -0.1, 1.5, math.nan, math.inf])
def test_a_probability_outside_zero_and_one_is_rejected(p: float) -> None:
    with pytest.raises(InvalidValue, match=r"^p must be a finite number > 0 and < 1"):
        law([0.0], [1.0]).max_quantile_s(p)


@pytest.mark.parametrize("draws", [1, 5])
def test_draws_have_the_means_and_the_maximum_of_the_law(draws: int) -> None:
    at = law([0.0, 1.0, 2.0], [1.0, 0.5, 0.0], draws)
    times = at.draw(np.random.default_rng(1), 200_000)
    assert times.shape == (200_000, 3)
    errors = times.std(axis=0) / math.sqrt(200_000)
    assert (np.abs(times.mean(axis=0) - at.mean_s) <= 5 * errors).all()
    slowest = times.max(axis=1)
    assert slowest.mean() == pytest.approx(
        at.expected_max_s, abs=5 * float(slowest.std()) / math.sqrt(200_000)
    )


@pytest.mark.parametrize("draws", [1, 2, 9])
def test_density_and_slope_are_the_derivatives_of_the_distribution(draws: int) -> None:
    X, z, step = Fluctuation(draws), np.linspace(0.05, 4, 40), 1e-5
    assert X.density(z) == pytest.approx((X.cdf(z + step) - X.cdf(z - step)) / (2 * step), abs=1e-8)
    log_density = [np.log(X.density(z + s)) for s in (step, -step)]
    assert X.log_slope(z) == pytest.approx(
        (log_density[0] - log_density[1]) / (2 * step), rel=1e-6, abs=1e-6
    )
