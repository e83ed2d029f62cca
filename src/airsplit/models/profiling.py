"""profile: the table of splits of any model.  torch is imported only where a model must be counted."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airsplit.errors import InvalidValue, require_choice, show
from airsplit.models.registry import MODELS, build, default_input_shape, profile_name
from airsplit.models.shapes import Shape, require_shape
from airsplit.profiles import Profile, shipped_names, shipped_profile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor, nn


def profile(
    model: str | nn.Module,
    input_shape: Sequence[int] | None = None,
    *,
    inputs: Tensor | tuple[Tensor, ...] | None = None,
) -> Profile:
    """What a model costs at each split.

    model        a built-in name, or a torch.nn.Module, which is neither run nor changed
    input_shape  the shape of one sample, without the batch axis; not needed for a built-in name
    inputs       instead, for a module: a tensor, or a tuple of tensors, with a batch axis; any dtype, meta allowed

    >>> alexnet = profile("alexnet")
    >>> len(alexnet), alexnet.names[3], int(alexnet.activation_elements[3]), int(alexnet.matmul_macs[-1])
    (20, 'pool1', 69984, 1135256096)
    """
    shape = None if input_shape is None else require_shape("input_shape", input_shape)
    if isinstance(model, str):
        if inputs is not None:
            raise InvalidValue(f"inputs belong to a module, got them with the name {model!r}; give input_shape instead")
        return _of_name(require_choice("model", model, MODELS), shape)
    return _of_module(model, shape, inputs)


def _of_name(name: str, input_shape: Shape | None) -> Profile:
    shape = default_input_shape(name) if input_shape is None else input_shape
    shipped = profile_name(name, shape)
    return shipped_profile(shipped) if shipped in shipped_names() else counted(name, shape)


def counted(name: str, input_shape: Shape) -> Profile:
    """The profile of a built-in model, counted afresh."""
    import torch

    from airsplit.models.counting import count

    with torch.device("meta"):
        module = build(name, input_shape)
        return replace(count(module, torch.empty(1, *input_shape)), model=name)


def _of_module(module: object, input_shape: Shape | None, inputs: Any) -> Profile:
    from torch import Tensor, nn

    from airsplit.models.counting import count

    if not isinstance(module, nn.Module):
        raise InvalidValue(f"model must be the name of a built-in model or a torch.nn.Module, got {show(module)}")
    if (input_shape is None) == (inputs is None):
        got = "neither" if inputs is None else "both"
        raise InvalidValue(f"a module needs input_shape or inputs, got {got}; write e.g. input_shape=(3, 32, 32)")
    if input_shape is not None:
        return count(module, _sample(module, input_shape))
    if not isinstance(inputs, Tensor) and not _all_tensors(inputs):
        raise InvalidValue(f"inputs must be a tensor or a tuple of tensors with a batch axis, got {show(inputs)}")
    return count(module, inputs)


def _all_tensors(inputs: object) -> bool:
    from torch import Tensor

    return isinstance(inputs, tuple | list) and len(inputs) > 0 and all(isinstance(tensor, Tensor) for tensor in inputs)


def _sample(module: nn.Module, input_shape: Shape) -> Tensor:
    """A sample of the module's own floating-point type."""
    import torch

    types = (p.dtype for p in module.parameters() if p.is_floating_point())
    return torch.empty((1, *input_shape), dtype=next(types, torch.get_default_dtype()), device="meta")
