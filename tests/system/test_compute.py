"""Mean compute times worked by hand, and fits to times drawn from a known law."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airsplit.core.errors import InvalidValue
from airsplit.system.compute import fit_compute, mean_compute_s

macs = st.floats(1e3, 1e12)
paces = st.floats(1e-12, 1e-6)
ratios = st.floats(0.01, 100)


def test_the_mean_is_the_best_case_plus_the_fluctuation() -> None:
    # 2e9 MAC at 1e-9 s and 1/ε = 0.5e-9 s more on average
    assert mean_compute_s(2e9, 1e-9, 2e9) == pytest.approx(3.0)


def test_no_work_takes_no_time() -> None:
    assert mean_compute_s(0.0, 1e-9, 2e9) == 0


@given(macs, paces, ratios, st.floats(1e-3, 1e3))
def test_time_scales_with_work(c: float, a: float, ratio: float, factor: float) -> None:
    eps = ratio / a
    assert mean_compute_s(factor * c, a, eps) == pytest.approx(factor * mean_compute_s(c, a, eps))


@pytest.mark.parametrize("ratio", [0.5, 2.0, 20.0])
def test_a_fit_recovers_the_parameters_behind_the_times(ratio: float) -> None:
    a = 0.5e-9
    eps = ratio / a
    n = 5_000
    rng = np.random.default_rng(int(10 * ratio))
    c = rng.uniform(1e6, 1e9, n)
    fit = fit_compute(c, a * c + c / eps * rng.exponential(size=n))
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
def test_measurements_without_a_fluctuation_are_rejected(macs: object, seconds: object) -> None:
    with pytest.raises(InvalidValue, match=r"macs|seconds"):
        fit_compute(macs, seconds)  # type: ignore[arg-type]
