"""Example inputs: tensors without storage, made from a spec or from what a model declares."""

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import nn

from airsplit.core.errors import InvalidValue
from airsplit.models.example_inputs import get_declared_inputs, make_meta_inputs
from airsplit.system.inputs import DTYPES, InputSpec


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_exists_in_torch(dtype: str) -> None:
    (tensor,) = make_meta_inputs([InputSpec((2, 3), dtype)], nn.ReLU())
    assert (tensor.shape, tensor.dtype, tensor.device.type) == (
        (1, 2, 3),
        getattr(torch, dtype),
        "meta",
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_an_input_without_a_type_has_that_of_the_weights(dtype: torch.dtype) -> None:
    floats, ids = make_meta_inputs(
        [InputSpec((4,)), InputSpec((5,), "int64")], nn.Linear(4, 2).to(dtype)
    )
    assert (floats.dtype, ids.dtype) == (dtype, torch.int64)


def test_without_weights_an_input_has_torchs_default_type() -> None:
    assert make_meta_inputs([InputSpec((4,))], nn.ReLU())[0].dtype == torch.get_default_dtype()


@pytest.mark.parametrize(
    ("attribute", "specs"),
    [
        (InputSpec((3,)), [InputSpec((3,))]),
        ("8:int64", [InputSpec((8,), "int64")]),
        (["3x4", InputSpec((8,), "bool")], [InputSpec((3, 4)), InputSpec((8,), "bool")]),
        (("3x4",), [InputSpec((3, 4))]),
    ],
)
def test_a_model_may_declare_its_inputs(attribute: Any, specs: list[InputSpec]) -> None:
    module = nn.ReLU()
    vars(module)["input_spec"] = attribute
    assert get_declared_inputs(module) == tuple(specs)
    assert get_declared_inputs(nn.ReLU()) is None


@pytest.mark.parametrize("attribute", [(), [], 3, [3], {"shape": 3}, "3x", ["8:int46"]])
def test_an_invalid_declaration_is_rejected(attribute: Any) -> None:
    module = nn.ReLU()
    vars(module)["input_spec"] = attribute
    with pytest.raises(InvalidValue, match=r"the model's (attribute )?input_spec"):
        get_declared_inputs(module)


def test_importing_the_module_loads_no_torch() -> None:
    code = "import sys, airsplit.models.example_inputs; print('torch' in sys.modules)"
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert process.stdout == "False\n"
