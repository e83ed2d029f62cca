"""Inputs: written and read as text, made into tensors without storage, recorded on a model."""

import subprocess
import sys
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from airsplit.core.errors import InvalidValue, UnknownName
from airsplit.models.inputs import recorded_inputs, samples
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
def test_an_input_is_its_sizes_and_perhaps_a_type(
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
def test_what_is_printed_is_read_again(spec: InputSpec) -> None:
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
def test_what_has_no_sizes_is_refused_with_two_examples(text: Any) -> None:
    with pytest.raises(
        InvalidValue,
        match=r"^--input must be the sizes of one sample, .*write e\.g\. 3x224x224 or 128:int64",
    ):
        parse_input_spec(text, "--input")


@pytest.mark.parametrize(
    ("dtype", "nearest"), [("int46", "int64"), ("flot32", "float32"), ("uint16", "int16")]
)
def test_a_type_that_is_not_known_offers_the_nearest(dtype: str, nearest: str) -> None:
    with pytest.raises(
        UnknownName,
        match=rf"^model\.inputs\[1\] type '{dtype}' is not known; did you mean '{nearest}'",
    ):
        parse_input_spec(f"8:{dtype}", "model.inputs[1]")


def test_a_colon_needs_a_type() -> None:
    with pytest.raises(UnknownName, match="--input type '' is not known"):
        parse_input_spec("8:", "--input")


@pytest.mark.parametrize("shape", [(), (0,), (3, -1), (3, 2.0), "3x4", None])
def test_a_spec_is_checked_when_it_is_made(shape: Any) -> None:
    with pytest.raises(InvalidValue, match=r"^input\.shape"):
        InputSpec(shape)
    with pytest.raises(UnknownName, match=r"^input\.dtype 'text'"):
        InputSpec((3,), "text")


@pytest.mark.parametrize("text", ["9" * 19, "9" * 98, "100000x100000x100000x100000"])
def test_more_elements_than_torch_can_count_are_refused(text: str) -> None:
    with pytest.raises(
        InvalidValue, match=r"^--input must have at most 10+ elements a sample, got \("
    ):
        parse_input_spec(text, "--input")


# ---- as tensors ----


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_type_is_one_of_torch(dtype: str) -> None:
    (tensor,) = samples([InputSpec((2, 3), dtype)], nn.ReLU())
    assert (tensor.shape, tensor.dtype, tensor.device.type) == (
        (1, 2, 3),
        getattr(torch, dtype),
        "meta",
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_without_a_type_an_input_has_that_of_the_weights(dtype: torch.dtype) -> None:
    floats, ids = samples([InputSpec((4,)), InputSpec((5,), "int64")], nn.Linear(4, 2).to(dtype))
    assert (floats.dtype, ids.dtype) == (dtype, torch.int64)


def test_without_weights_it_has_torchs_own() -> None:
    assert samples([InputSpec((4,))], nn.ReLU())[0].dtype == torch.get_default_dtype()


# ---- on the model ----


@pytest.mark.parametrize(
    ("attribute", "specs"),
    [
        (InputSpec((3,)), [InputSpec((3,))]),
        ("8:int64", [InputSpec((8,), "int64")]),
        (["3x4", InputSpec((8,), "bool")], [InputSpec((3, 4)), InputSpec((8,), "bool")]),
        (("3x4",), [InputSpec((3, 4))]),
    ],
)
def test_a_model_may_say_what_it_takes(attribute: Any, specs: list[InputSpec]) -> None:
    module = nn.ReLU()
    vars(module)["input_spec"] = attribute
    assert recorded_inputs(module) == tuple(specs)
    assert recorded_inputs(nn.ReLU()) is None


@pytest.mark.parametrize("attribute", [(), [], 3, [3], {"shape": 3}, "3x", ["8:int46"]])
def test_what_a_model_says_must_make_sense(attribute: Any) -> None:
    module = nn.ReLU()
    vars(module)["input_spec"] = attribute
    with pytest.raises(InvalidValue, match=r"the model's (attribute )?input_spec"):
        recorded_inputs(module)


def test_reading_an_input_loads_no_torch() -> None:
    code = "import sys, airsplit.models.inputs as i; i.input_spec('3x4:int8'); print('torch' in sys.modules)"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        == "False\n"
    )
