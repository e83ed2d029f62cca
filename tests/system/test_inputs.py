"""Inputs of a model as text: parsed, printed and checked."""

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airsplit.core.errors import InvalidValue, UnknownName
from airsplit.system.inputs import DTYPES, InputSpec, parse_input_spec


@pytest.mark.parametrize(
    ("text", "shape", "dtype"),
    [
        ("3x224x224", (3, 224, 224), ""),
        ("128:int64", (128,), "int64"),
        ("16x8:bfloat16", (16, 8), "bfloat16"),
        ("1", (1,), ""),
        ("3X8:BOOL", (3, 8), "bool"),
    ],
)
def test_an_input_is_parsed_into_sizes_and_an_optional_type(
    text: str, shape: tuple[int, ...], dtype: str
) -> None:
    assert parse_input_spec(text) == InputSpec(shape, dtype)
    assert str(InputSpec(shape, dtype)) == text.lower()


@given(
    st.builds(
        InputSpec,
        st.lists(st.integers(1, 1000), min_size=1, max_size=5).map(tuple),
        st.sampled_from(("", *DTYPES)),
    )
)
def test_a_printed_spec_parses_to_itself(spec: InputSpec) -> None:
    assert parse_input_spec(str(spec)) == spec


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "3x",
        "x3",
        "3x-2",
        "3x0",
        "3.5",
        "three",
        "3,4",
        "²",
        ":int64",
        "3x 4",
        " 3",
        "1e3",
        "9" * 5000,
        None,
        3,
        [3],
    ],
)
def test_invalid_sizes_are_rejected_with_two_examples(text: Any) -> None:
    with pytest.raises(
        InvalidValue,
        match=r"^--input must be the sizes of one sample, .*write e\.g\. 3x224x224 or 128:int64",
    ):
        parse_input_spec(text, "--input")


@pytest.mark.parametrize(
    ("dtype", "nearest"), [("int46", "int64"), ("flot32", "float32"), ("uint16", "int16")]
)
def test_an_unknown_type_offers_the_nearest_one(dtype: str, nearest: str) -> None:
    with pytest.raises(
        UnknownName,
        match=rf"^model\.inputs\[1\] type '{dtype}' is not known; did you mean '{nearest}'",
    ):
        parse_input_spec(f"8:{dtype}", "model.inputs[1]")


def test_a_colon_needs_a_type() -> None:
    with pytest.raises(UnknownName, match="--input type '' is not known"):
        parse_input_spec("8:", "--input")


@pytest.mark.parametrize("shape", [(), (0,), (3, -1), (3, 2.0), "3x4", None])
def test_a_spec_is_checked_when_it_is_created(shape: Any) -> None:
    with pytest.raises(InvalidValue, match=r"^input\.shape"):
        InputSpec(shape)
    with pytest.raises(UnknownName, match=r"^input\.dtype 'text'"):
        InputSpec((3,), "text")


@pytest.mark.parametrize("text", ["9" * 19, "9" * 98, "100000x100000x100000x100000"])
def test_more_elements_than_torch_can_count_are_rejected(text: str) -> None:
    with pytest.raises(
        InvalidValue, match=r"^--input must have at most 10+ elements a sample, got \("
    ):
        parse_input_spec(text, "--input")


def test_parsing_an_input_loads_no_torch() -> None:
    code = (
        "import sys, airsplit.system.inputs as i; i.parse_input_spec('3x4:int8'); "
        "print('torch' in sys.modules)"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        == "False\n"
    )
