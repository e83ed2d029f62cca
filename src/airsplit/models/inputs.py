"""The inputs of a model as tensors without storage.  torch is imported only where they are made."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING

from airsplit.core.errors import InvalidValue, show
from airsplit.system.inputs import InputSpec, parse_input_spec

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn


def samples(specs: Sequence[InputSpec], module: nn.Module) -> tuple[Tensor, ...]:
    """A batch of one sample, on the meta device, in the order of the arguments of forward.

    >>> from torch import nn
    >>> [(tuple(x.shape), x.dtype) for x in samples([InputSpec((3, 8)), InputSpec((5,), "int64")], nn.Linear(8, 2))]
    [((1, 3, 8), torch.float32), ((1, 5), torch.int64)]
    """
    import torch

    own = _floating_type(module)
    return tuple(
        torch.empty(
            (1, *spec.shape), dtype=getattr(torch, spec.dtype) if spec.dtype else own, device="meta"
        )
        for spec in specs
    )


def specs(inputs: Sequence[Tensor], module: nn.Module) -> tuple[str, ...]:
    """What one sample is, the other way round; none where `--input` has no words for it, as for a single number.

    >>> import torch
    >>> specs([torch.empty(1, 3, 8), torch.empty(1, 5, dtype=torch.int64)], torch.nn.Linear(8, 2))
    ('3x8', '5:int64')
    """
    own = _floating_type(module)
    types = (
        "" if tensor.dtype == own else str(tensor.dtype).removeprefix("torch.") for tensor in inputs
    )
    try:
        return tuple(
            str(InputSpec(tuple(tensor.shape[1:]), dtype))
            for tensor, dtype in zip(inputs, types, strict=True)
        )
    except InvalidValue:
        return ()


def input_names(module: nn.Module, count: int) -> list[str]:
    """Return the names of a model's inputs: those of forward's arguments, and numbers where forward does not name them.

    >>> from torch import nn
    >>> input_names(nn.Bilinear(2, 3, 4), 2), input_names(nn.DataParallel(nn.Linear(2, 3)), 2)
    (['input1', 'input2'], ['input_1', 'input_2'])
    """
    try:
        parameters = list(inspect.signature(module.forward).parameters.values())
    except (TypeError, ValueError):  # as of a module of TorchScript
        parameters = []
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [parameter.name for parameter in parameters if parameter.kind in positional][:count]
    return names + [f"input_{number}" for number in range(len(names) + 1, count + 1)]


def recorded_inputs(module: object) -> tuple[InputSpec, ...] | None:
    """The inputs that a module says it takes, in its attribute `parse_input_spec`; None where it has none.

    Built-in models have one.  Others may: an InputSpec, a text such as "128:int64", or several of them in a list.

    >>> from airsplit.models.zoo.registry import build
    >>> recorded_inputs(build("alexnet32", channels=1, width=0.1))
    (InputSpec(shape=(1, 32, 32), dtype=''),)
    """
    recorded = getattr(module, "input_spec", None)
    if recorded is None:
        return None
    several = recorded if isinstance(recorded, list | tuple) else (recorded,)
    if not several or not all(isinstance(each, InputSpec | str) for each in several):
        rule = 'an InputSpec, a text such as "3x224x224" or "128:int64", or a list of them'
        raise InvalidValue(f"the model's attribute input_spec must be {rule}, got {show(recorded)}")
    return tuple(
        each if isinstance(each, InputSpec) else parse_input_spec(each, "the model's input_spec")
        for each in several
    )


def _floating_type(module: nn.Module) -> torch.dtype:
    import torch

    types = (p.dtype for p in module.parameters() if p.is_floating_point())
    return next(types, torch.get_default_dtype())
