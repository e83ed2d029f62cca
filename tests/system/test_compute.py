"""The shifted exponential against its definition, its own inverse, and Monte Carlo."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airsplit.core.arrays import Floats
from airsplit.core.errors import InvalidValue
from airsplit.system.compute import (
    compute_cdf,
    draw_compute_s,
    fit_compute,
    mean_compute_s,
    quantile_compute_s,
)

macs = st.floats(1e3, 1e12)
paces = st.floats(1e-12, 1e-6)
ratios = st.floats(0.01, 100)


def at(value: float) -> Floats:
    return np.array(value)


def test_the_mean_is_the_best_case_plus_the_fluctuation() -> None:
    # 2e9 MAC at 1e-9 s and 1/ε = 0.5e-9 s more on average
    assert mean_compute_s(2e9, 1e-9, 2e9) == pytest.approx(3.0)


def test_the_median_is_the_best_case_plus_ln_2_fluctuations() -> None:
    assert quantile_compute_s(0.5, at(2e9), at(1e-9), at(2e9)) == pytest.approx(2 + math.log(2))


def test_nothing_is_faster_than_the_best_case() -> None:
    assert compute_cdf(np.array([1.9, 2.0, 3.0]), at(2e9), at(1e-9), at(2e9)).tolist() == [
        0,
        0,
        1 - math.exp(-1),
    ]


def test_no_work_takes_no_time() -> None:
    assert mean_compute_s(0.0, 1e-9, 2e9) == 0
    assert compute_cdf(np.array([-1.0, 0.0, 1.0]), at(0.0), at(1e-9), at(2e9)).tolist() == [0, 1, 1]
    assert draw_compute_s(np.random.default_rng(0), at(0.0), at(1e-9), at(2e9), 3).tolist() == [
        0,
        0,
        0,
    ]


@given(st.floats(0, 0.999_999), macs, paces, ratios)
def test_cdf_and_quantile_are_inverses(p: float, c: float, a: float, ratio: float) -> None:
    eps = ratio / a
    t = quantile_compute_s(p, at(c), at(a), at(eps))
    assert compute_cdf(t, at(c), at(a), at(eps)) == pytest.approx(p, abs=1e-9)


@given(macs, paces, ratios, st.floats(1e-3, 1e3))
def test_time_scales_with_work(c: float, a: float, ratio: float, factor: float) -> None:
    eps = ratio / a
    assert mean_compute_s(factor * c, a, eps) == pytest.approx(factor * mean_compute_s(c, a, eps))
    longer = quantile_compute_s(0.9, at(factor * c), at(a), at(eps))
    assert longer == pytest.approx(factor * quantile_compute_s(0.9, at(c), at(a), at(eps)))


def test_draws_have_the_mean_the_spread_and_the_law_that_the_formulas_say() -> None:
    c, a, eps, n = np.array([1e9, 4e9]), np.array([1e-9, 0.25e-9]), np.array([2e9, 1e9]), 100_000
    t = draw_compute_s(np.random.default_rng(1), c, a, eps, n)
    assert t.shape == (n, 2)
    deviation = c / eps
    assert (np.abs(t.mean(axis=0) - mean_compute_s(c, a, eps)) < 5 * deviation / np.sqrt(n)).all()
    assert t.std(axis=0) == pytest.approx(deviation, rel=0.03)
    assert (t >= a * c).all()
    for p in (0.1, 0.5, 0.95):
        kept = (t <= quantile_compute_s(p, c, a, eps)).mean(axis=0)
        assert (np.abs(kept - p) < 5 * np.sqrt(p * (1 - p) / n)).all()


@pytest.mark.parametrize("ratio", [0.5, 2.0, 20.0])
def test_a_fit_recovers_the_parameters_behind_the_times(ratio: float) -> None:
    a, n = 0.5e-9, 5_000
    eps, rng = ratio / a, np.random.default_rng(int(10 * ratio))
    c = rng.uniform(1e6, 1e9, n)
    fit = fit_compute(c, draw_compute_s(rng, c, at(a), at(eps), 1)[0])
    assert fit.samples == n
    assert fit.seconds_per_mac == pytest.approx(a, rel=10 / (n * ratio))
    assert fit.fluctuation == pytest.approx(eps, rel=5 / math.sqrt(n))
    assert fit.distance < 1.36 / math.sqrt(n)


def test_a_fit_shows_when_the_law_is_wrong() -> None:
    n = 2_000
    seconds = np.random.default_rng(0).uniform(1.0, 2.0, n)
    assert fit_compute(np.ones(n), seconds).distance > 5 * 1.36 / math.sqrt(n)


def test_two_times_are_the_smallest_fit_and_can_be_worked_by_hand() -> None:
    fit = fit_compute([1e9, 1e9], [1.0, 3.0])
    assert (fit.seconds_per_mac, fit.fluctuation, fit.samples) == (1e-9, pytest.approx(1e9), 2)
    # F(1) = 0 against ½ above it; F(3) = 1 - e⁻² against ½ below it
    assert fit.distance == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("macs", "seconds"),
    [
        ([1e9], [1.0, 2.0]),
        ([], []),
        ([[1e9, 1e9]], [[1.0, 2.0]]),
        ([1e9, 1e9], [1.0, 1.0]),
        ([1e9, 0.0], [1.0, 2.0]),
        ([1e9, 1e9], [1.0, -2.0]),
        ([1e9, 1e9], [1.0, math.nan]),
        ([1e9, math.inf], [1.0, 2.0]),
        ([[1e9], [1e9, 2e9]], [1.0, 2.0]),
        ("fast", [1.0, 2.0]),
    ],
)
def test_measurements_that_say_nothing_are_refused(macs: object, seconds: object) -> None:
    with pytest.raises(InvalidValue, match=r"macs|seconds"):
        fit_compute(macs, seconds)  # type: ignore[arg-type]
