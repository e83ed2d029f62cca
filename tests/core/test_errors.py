"""Checks of input values: valid ones pass, and errors name field, rule and value on one line."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airsplit.core.errors import (
    AirsplitError,
    FileProblem,
    Infeasible,
    InvalidValue,
    UnknownName,
    require_choice,
    require_integer,
    require_number,
    require_numbers,
    show,
    unknown_name,
)

NOT_NUMBERS = [
    None,
    "3",
    "abc",
    True,
    [True],
    1j,
    [1.0, None],
    object(),
    {"a": 1},
    [[1.0], [1.0, 2.0]],
]


def test_every_error_is_an_airsplit_error_and_bad_values_are_value_errors() -> None:
    for kind in (InvalidValue, UnknownName, FileProblem, Infeasible):
        assert issubclass(kind, AirsplitError)
    assert issubclass(InvalidValue, ValueError)
    assert issubclass(UnknownName, InvalidValue)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_finite_number_passes_unchanged(value: float) -> None:
    assert require_number("x", value) == value


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(-10, 10))
def test_a_number_passes_exactly_when_it_is_in_range(value: float, limit: float) -> None:
    is_in_range = {
        "above": value > limit,
        "low": value >= limit,
        "high": value <= limit,
        "below": value < limit,
    }
    for rule in is_in_range:
        if is_in_range[rule]:
            assert require_number("x", value, **{rule: limit}) == value
        else:
            with pytest.raises(InvalidValue, match="x must be a finite number"):
                require_number("x", value, **{rule: limit})


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_nan_and_infinities_are_rejected(value: float) -> None:
    with pytest.raises(InvalidValue, match=r"field must be a finite number > 0, got -?(nan|inf)"):
        require_number("field", value, above=0)


@pytest.mark.parametrize("value", NOT_NUMBERS)
def test_other_types_than_numbers_are_rejected(value: object) -> None:
    with pytest.raises(InvalidValue, match="field must be"):
        require_number("field", value)
    with pytest.raises(InvalidValue, match="field must be a number or an array of numbers"):
        require_numbers("field", value)


def test_a_list_is_not_one_number() -> None:
    with pytest.raises(InvalidValue, match=r"field must be one number, got \[1.0, 2.0\]"):
        require_number("field", [1.0, 2.0])


def test_the_first_bad_entry_is_named() -> None:
    with pytest.raises(
        InvalidValue, match=r"^a\[2\] must be a finite number >= 0 and <= 1, got 1.5$"
    ):
        require_numbers("a", [0.0, 1.0, 1.5, 2.5], low=0, high=1)
    with pytest.raises(InvalidValue, match=r"^a\[1\]\[0\] must be a finite number, got nan$"):
        require_numbers("a", [[0.0, 1.0], [math.nan, 1.0]])


def test_the_hint_ends_the_message() -> None:
    with pytest.raises(InvalidValue, match=r"got 0; try one$"):
        require_integer("n", 0, low=1, hint="; try one")
    with pytest.raises(InvalidValue, match=r"got 0\.0; try one$"):
        require_number("x", 0.0, above=0, hint="; try one")


def test_checked_arrays_are_read_only_copies() -> None:
    original = np.array([1.0, 2.0])
    checked = require_numbers("a", original)
    original[0] = 9.0
    assert checked.tolist() == [1.0, 2.0]
    with pytest.raises(ValueError, match="read-only"):
        checked[0] = 9.0


@pytest.mark.parametrize("value", [True, np.True_, 3.0, "3", None, [3], math.nan])
def test_only_whole_numbers_are_integers(value: object) -> None:
    with pytest.raises(InvalidValue, match="n must be a whole number >= 1"):
        require_integer("n", value, low=1)


def test_integers_outside_their_range_are_rejected() -> None:
    assert require_integer("n", np.int64(3), low=1, high=3) == 3
    for value in (0, 4):
        with pytest.raises(
            InvalidValue, match=f"n must be a whole number from 1 to 3, got {value}"
        ):
            require_integer("n", value, low=1, high=3)


def test_an_unknown_name_suggests_the_nearest() -> None:
    error = unknown_name("model", "alexnett", ["alexnet", "vgg16"])
    assert (
        str(error) == "model 'alexnett' is not known; did you mean 'alexnet'? Known: alexnet, vgg16"
    )


def test_an_unknown_name_without_a_similar_one_lists_all() -> None:
    assert (
        str(unknown_name("model", "zzz", ["vgg16", "alexnet"]))
        == "model 'zzz' is not known. Known: alexnet, vgg16"
    )


@pytest.mark.parametrize("value", ["weekly", None, 3, ["round"]])
def test_a_choice_is_one_of_the_known_strings(value: object) -> None:
    with pytest.raises(UnknownName, match="Known: iteration, round"):
        require_choice("clock.barrier", value, ("iteration", "round"))


@pytest.mark.parametrize("value", ["a\nb", "x" * 500, np.arange(10_000), np.float64(1.5)])
def test_values_are_shown_short_and_on_one_line(value: object) -> None:
    text = show(value)
    assert "\n" not in text
    assert len(text) <= 60


def test_numpy_scalars_are_shown_as_plain_numbers() -> None:
    assert show(np.float64(1.5)) == "1.5"
