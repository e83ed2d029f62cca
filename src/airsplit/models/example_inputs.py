"""Example inputs of a model: tensors without storage, made from a shape or an input spec.

torch is imported only when tensors are made.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airsplit.core.errors import InvalidValue, show
from airsplit.system.inputs import InputSpec, parse_input_spec, require_shape

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn


def make_example_inputs(
    module: object, input_shape: Sequence[int] | None, inputs: Any
) -> tuple[Tensor, ...]:
    """Return the inputs to trace a module with, each with a batch axis.

    Args:
        module: A torch.nn.Module. Its `input_spec` is used if neither shape nor inputs are given.
        input_shape: Shape of one sample, without the batch axis.
        inputs: A tensor or a tuple of tensors, instead of a shape.
    """
    from torch import Tensor, nn

    shape = None if input_shape is None else require_shape("input_shape", input_shape)
    if isinstance(module, str):
        raise InvalidValue(
            f"model must be a torch.nn.Module here, got the name {show(module)}; build it first, "
            "a built-in one with airsplit.models.zoo.registry.build_registered_model"
        )
    if not isinstance(module, nn.Module):
        raise InvalidValue(
            f"model must be the name of a built-in model or a torch.nn.Module, got {show(module)}"
        )

    declared = get_declared_inputs(module)
    if shape is None and inputs is None and declared is not None:
        return make_meta_inputs(declared, module)
    if (shape is None) == (inputs is None):
        given = "neither" if inputs is None else "both"
        raise InvalidValue(
            f"a module needs input_shape or inputs, got {given}; write e.g. input_shape=(3, 32, 32)"
        )

    if shape is not None:
        # A shape has no type of its own: a model of token ids still takes whole numbers.
        dtype = declared[0].dtype if declared is not None and len(declared) == 1 else ""
        return make_meta_inputs((InputSpec(shape, dtype),), module)

    tensors = (inputs,) if isinstance(inputs, Tensor) else inputs
    if (
        not isinstance(tensors, tuple | list)
        or not tensors
        or not all(isinstance(tensor, Tensor) for tensor in tensors)
    ):
        raise InvalidValue(
            f"inputs must be a tensor or a tuple of tensors with a batch axis, got {show(inputs)}"
        )
    return tuple(tensors)


def make_meta_inputs(specs: Sequence[InputSpec], module: nn.Module) -> tuple[Tensor, ...]:
    """Return a batch of one sample on the meta device, in the order of forward's arguments.

    >>> from torch import nn
    >>> image, ids = InputSpec((3, 8)), InputSpec((5,), "int64")
    >>> [(tuple(x.shape), x.dtype) for x in make_meta_inputs([image, ids], nn.Linear(8, 2))]
    [((1, 3, 8), torch.float32), ((1, 5), torch.int64)]
    """
    import torch

    default = _weight_dtype(module)
    tensors = []
    for spec in specs:
        dtype = getattr(torch, spec.dtype) if spec.dtype else default
        tensors.append(torch.empty((1, *spec.shape), dtype=dtype, device="meta"))
    return tuple(tensors)


def describe_inputs(inputs: Sequence[Tensor], module: nn.Module) -> tuple[str, ...]:
    """Return tensors as `--input` would spell them: the reverse of make_meta_inputs.

    Empty if `--input` cannot spell one of them, such as one number per sample.

    >>> import torch
    >>> inputs = [torch.empty(1, 3, 8), torch.empty(1, 5, dtype=torch.int64)]
    >>> describe_inputs(inputs, torch.nn.Linear(8, 2))
    ('3x8', '5:int64')
    """
    default = _weight_dtype(module)
    texts = []
    for tensor in inputs:
        dtype = "" if tensor.dtype == default else str(tensor.dtype).removeprefix("torch.")
        try:
            texts.append(str(InputSpec(tuple(tensor.shape[1:]), dtype)))
        except InvalidValue:
            return ()
    return tuple(texts)


def get_input_names(module: nn.Module, count: int) -> list[str]:
    """Return the argument names of forward, and numbered names for inputs that have none.

    >>> from torch import nn
    >>> get_input_names(nn.Bilinear(2, 3, 4), 2)
    ['input1', 'input2']
    >>> get_input_names(nn.DataParallel(nn.Linear(2, 3)), 2)
    ['input_1', 'input_2']
    """
    try:
        parameters = list(inspect.signature(module.forward).parameters.values())
    except (TypeError, ValueError):
        # A TorchScript module has no signature.
        parameters = []
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [parameter.name for parameter in parameters if parameter.kind in positional][:count]
    return names + [f"input_{number}" for number in range(len(names) + 1, count + 1)]


def get_declared_inputs(module: object) -> tuple[InputSpec, ...] | None:
    """Return the inputs that a module declares in its attribute `input_spec`, or None.

    Built-in models have that attribute. A user's model may have it too: an InputSpec, a text such
    as "128:int64", or a list of them.

    >>> from airsplit.models.zoo.registry import build_registered_model
    >>> get_declared_inputs(build_registered_model("alexnet32", channels=1, width=0.1))
    (InputSpec(shape=(1, 32, 32), dtype=''),)
    """
    declared = getattr(module, "input_spec", None)
    if declared is None:
        return None

    specs = declared if isinstance(declared, list | tuple) else (declared,)
    if not specs or not all(isinstance(spec, InputSpec | str) for spec in specs):
        raise InvalidValue(
            "the model's attribute input_spec must be an InputSpec, a text such as "
            f'"3x224x224" or "128:int64", or a list of them, got {show(declared)}'
        )
    return tuple(
        parse_input_spec(spec, "the model's input_spec") if isinstance(spec, str) else spec
        for spec in specs
    )


def _weight_dtype(module: nn.Module) -> torch.dtype:
    import torch

    # A model in half precision takes half precision; the first floating parameter decides.
    dtypes = (p.dtype for p in module.parameters() if p.is_floating_point())
    return next(dtypes, torch.get_default_dtype())
