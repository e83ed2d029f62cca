"""The paper's rule for L̂ and its expression by hand, and the counterexample to its theorem."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airsplit import InvalidValue, paper_convergence_expression, split_limit

REPEATABLE = settings(max_examples=100, derandomize=True)

ARGUMENTS: dict[str, Any] = {
    "iterations": 100,
    "split": 3,
    "layers": 8,
    "devices": 4,
    "iterations_per_round": 5,
    "smoothness": 2.0,
    "strong_convexity": 0.5,
    "gradient_squared": 3.0,
    "gradient_variance": 0.7,
    "heterogeneity": 0.1,
    "initial_distance_squared": 9.0,
}


@pytest.mark.parametrize(
    ("limit", "phi_squared", "devices", "layers", "expected"),
    [
        (8.0, 1.0, 20, 20, 8),  # ℓ · 0.95 ≤ 8: ℓ = 8.42…
        (7.6, 1.0, 20, 20, 8),  # exactly at the limit: 8 · 0.95 = 7.6
        (7.59, 1.0, 20, 20, 7),
        (3.0, 2.0, 2, 20, 3),  # ℓ · ½ · 2 ≤ 3
        (1e300, 1e-300, 2, 20, 20),  # a quotient beyond all floats
        (0.3, 0.1, 2, 20, 6),  # 6 · 0.05 = 0.3, which rounding makes 0.30000000000000004
        (1e9, 1.0, 20, 20, 20),  # never more than the layers there are
        (1e-9, 1.0, 1, 36, 36),  # one device has nobody to differ from
    ],
)
def test_the_rule_equals_the_count_by_hand(
    limit: float, phi_squared: float, devices: int, layers: int, expected: int
) -> None:
    assert (
        split_limit(limit=limit, phi_squared=phi_squared, devices=devices, layers=layers)
        == expected
    )


@REPEATABLE
@given(st.integers(1, 60), st.floats(0.01, 100), st.integers(2, 1000), st.integers(1, 40))
def test_the_rule_is_the_largest_split_that_the_limit_allows(
    deepest: int, phi_squared: float, devices: int, layers: int
) -> None:
    growth = (1 - 1 / devices) * phi_squared
    # Between the limits that just allow `deepest` and the next split.
    margin = 0.25 if deepest < 4 else 0.5 / deepest
    limit = deepest * growth * (1 + margin)
    split = split_limit(limit=limit, phi_squared=phi_squared, devices=devices, layers=layers)
    assert split * growth <= limit * (1 + 1e-9)
    assert split == layers or (split + 1) * growth > limit
    assert isinstance(split, int)


def test_a_limit_that_allows_no_split_is_rejected() -> None:
    with pytest.raises(
        InvalidValue, match=r"^limit must be at least .* = 0\.95 to allow the first split, got 0\.9"
    ):
        split_limit(limit=0.9, phi_squared=1.0, devices=20, layers=20)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf, "much", None])
@pytest.mark.parametrize("field", ["limit", "phi_squared"])
def test_the_rule_requires_positive_numbers(field: str, bad: object) -> None:
    good: dict[str, Any] = {"limit": 8.0, "phi_squared": 1.0, "devices": 20, "layers": 20}
    with pytest.raises(InvalidValue, match=f"^{field} must be "):
        split_limit(**(good | {field: bad}))


@pytest.mark.parametrize("bad", [0, -1, 1.5, None, True])
@pytest.mark.parametrize("field", ["devices", "layers"])
def test_the_rule_requires_whole_numbers_of_devices_and_layers(field: str, bad: object) -> None:
    good: dict[str, Any] = {"limit": 8.0, "phi_squared": 1.0, "devices": 20, "layers": 20}
    with pytest.raises(InvalidValue, match=f"^{field} must be a whole number >= 1"):
        split_limit(**(good | {field: bad}))


def test_the_expression_equals_the_sum_by_hand() -> None:
    # α = 4, γ = 32; P = 2·16·8·3 + 6·2·0.1 + 3·3 + 5·3/4 + 3·0.7 + 5·0.7/4
    #                  = 768 + 1.2 + 9 + 3.75 + 2.1 + 0.875
    P = 784.925
    assert paper_convergence_expression(**ARGUMENTS) == pytest.approx(
        4 / 132 * (2 * P / 0.5 + 0.5 * 33 / 2 * 9)
    )


def test_many_iterations_per_round_increase_gamma() -> None:
    # γ = max(8α, E)
    changes = {"iterations_per_round": 100, "gradient_squared": 0.0, "gradient_variance": 0.0}
    value = paper_convergence_expression(**(ARGUMENTS | changes))
    assert value == pytest.approx(4 / 200 * (2 * 1.2 / 0.5 + 0.5 * 101 / 2 * 9))


@REPEATABLE
@given(st.integers(0, 8), st.integers(1, 100))
def test_the_deeper_the_split_the_larger_the_expression(split: int, devices: int) -> None:
    arguments = ARGUMENTS | {"devices": devices}
    value = paper_convergence_expression(**(arguments | {"split": split}))
    assert value > 0
    if split < 8:
        deeper = paper_convergence_expression(**(arguments | {"split": split + 1}))
        assert deeper > value if devices > 1 else deeper == pytest.approx(value)


def test_the_expression_goes_to_zero() -> None:
    values = [
        paper_convergence_expression(**(ARGUMENTS | {"iterations": T}))
        for T in (0, 10, 10**3, 10**6, 10**12)
    ]
    assert values == sorted(values, reverse=True)
    assert values[-1] < 1e-6


def test_two_devices_with_only_personal_layers_contradict_the_theorem() -> None:
    # F₁ = (w-1)²/2, F₂ = (w+1)²/2, one scalar layer that stays personal: ℓ = L = 1.
    w = np.array([0.0, 0.0])
    optima = np.array([1.0, -1.0])
    steps = 20_000
    for t in range(steps):
        # Full gradients with the theorem's falling learning rate.
        w -= 2 / (t + 8) * (w - optima)

    # (F₁ + F₂)/2 = (w² + 1)/2 has its minimum at w = 0.
    minimum = 0.5
    loss = np.mean([np.mean((personal - optima) ** 2 / 2) for personal in w])
    assert w == pytest.approx(optima, abs=1e-3)
    assert loss - minimum == pytest.approx(0.5, abs=1e-3)

    # The gradients stay below Z² = 4 on the way, and F* - mean F_k* = ½; still the right-hand side
    # goes to zero.
    right = [
        paper_convergence_expression(
            iterations=T,
            split=1,
            layers=1,
            devices=2,
            iterations_per_round=1,
            smoothness=1.0,
            strong_convexity=1.0,
            gradient_squared=4.0,
            gradient_variance=0.0,
            heterogeneity=0.5,
            initial_distance_squared=1.0,
        )
        for T in (0, steps, 10**9)
    ]
    assert right[0] > 0.5 > 100 * right[1] > right[2]
    assert right[2] < 1e-7


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"iterations": -1}, "^iterations must be a whole number >= 0, got -1"),
        ({"iterations": 1.5}, "^iterations must be a whole number >= 0, got 1.5"),
        ({"split": 9}, "^split must be a whole number from 0 to 8, got 9"),
        ({"split": -1}, "^split must be a whole number from 0 to 8, got -1"),
        ({"layers": 0}, "^layers must be a whole number >= 1, got 0"),
        ({"devices": 0}, "^devices must be a whole number >= 1, got 0"),
        ({"iterations_per_round": 0}, "^iterations_per_round must be a whole number >= 1, got 0"),
        ({"smoothness": 0.0}, "^smoothness must be a finite number > 0, got 0.0"),
        ({"strong_convexity": math.nan}, "^strong_convexity must be a finite number > 0, got nan"),
        ({"strong_convexity": 3.0}, "^strong_convexity must be at most smoothness, got 3 > 2"),
        ({"gradient_squared": -1.0}, "^gradient_squared must be a finite number >= 0, got -1.0"),
        (
            {"gradient_variance": math.inf},
            "^gradient_variance must be a finite number >= 0, got inf",
        ),
        ({"heterogeneity": -0.1}, "^heterogeneity must be a finite number >= 0, got -0.1"),
        ({"initial_distance_squared": "far"}, "^initial_distance_squared must be a number"),
    ],
)
def test_the_expression_rejects_invalid_values(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        paper_convergence_expression(**(ARGUMENTS | change))
