"""profile: the table of splits of any model.  torch is imported only where a model must be looked at."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airsplit.core.errors import InvalidValue, show
from airsplit.system.inputs import InputSpec, require_shape
from airsplit.system.profile import Profile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor, nn

    from airsplit.models.splits import IllegalSplit


def profile(
    model: str | nn.Module,
    input_shape: Sequence[int] | None = None,
    *,
    inputs: Tensor | tuple[Tensor, ...] | None = None,
) -> Profile:
    """What a model costs at each split.

    model        a built-in name, or a torch.nn.Module, which is neither run nor changed
    input_shape  the shape of one sample, without the batch axis; not needed for a built-in model
    inputs       instead, for a module: a tensor, or a tuple of tensors, with a batch axis; any dtype, meta allowed

    >>> alexnet = profile("alexnet")
    >>> len(alexnet), alexnet.names[3], int(alexnet.activation_elements[3]), int(alexnet.matmul_macs[-1])
    (20, 'pool1', 69984, 1135256096)
    """
    if not isinstance(model, str):
        return explain(model, input_shape, inputs=inputs)[0]
    if inputs is not None:
        raise InvalidValue(
            f"inputs belong to a module, got them with the name {model!r}; give input_shape instead"
        )
    from airsplit.models.loading import get_profile

    return get_profile(
        model,
        None if input_shape is None else (InputSpec(require_shape("input_shape", input_shape)),),
    )


def explain(
    model: nn.Module,
    input_shape: Sequence[int] | None = None,
    *,
    inputs: Tensor | tuple[Tensor, ...] | None = None,
) -> tuple[Profile, list[IllegalSplit]]:
    """A module's profile, and the places where it cannot be cut, each with the reason."""
    samples = make_example_inputs(model, input_shape, inputs)
    from airsplit.models.inputs import specs
    from airsplit.models.splits import find_splits

    found = find_splits(model, samples)
    return replace(found.profile(), inputs=specs(samples, model)), found.illegal_splits


def make_example_inputs(
    module: object, input_shape: Sequence[int] | None, inputs: Any
) -> tuple[Tensor, ...]:
    """The inputs to look at a module with, each with a batch axis."""
    from torch import Tensor, nn

    from airsplit.models.inputs import recorded_inputs, samples

    shape = None if input_shape is None else require_shape("input_shape", input_shape)
    if not isinstance(module, nn.Module):
        if isinstance(module, str):
            way = "build it first, a built-in one with airsplit.models.zoo.registry.build_registered_model"
            raise InvalidValue(
                f"model must be a torch.nn.Module here, got the name {show(module)}; {way}"
            )
        raise InvalidValue(
            f"model must be the name of a built-in model or a torch.nn.Module, got {show(module)}"
        )
    recorded = recorded_inputs(module)
    if shape is None and inputs is None and recorded is not None:
        return samples(recorded, module)
    if (shape is None) == (inputs is None):
        got = "neither" if inputs is None else "both"
        raise InvalidValue(
            f"a module needs input_shape or inputs, got {got}; write e.g. input_shape=(3, 32, 32)"
        )
    if shape is not None:
        dtype = recorded[0].dtype if recorded is not None and len(recorded) == 1 else ""
        return samples((InputSpec(shape, dtype),), module)
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
