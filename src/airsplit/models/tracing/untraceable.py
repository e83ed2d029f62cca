"""Errors for models that cannot be traced."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from airsplit.core.errors import InvalidValue
from airsplit.models.tracing.source_location import describe_current_location, first_line

# Messages of torch where a kernel needs values that the meta device does not have.
DATA_DEPENDENT = (
    "item() cannot be called on meta",
    "data-independent",
    "data-dependent",
    "data dependent",
)


class DataDependent(InvalidValue):
    """The model's control flow or shapes depend on the values of its data."""


class DrawsRandomNumbers(InvalidValue):
    """Random numbers of Python or numpy were drawn, by the model or by another thread."""


def describe_data_dependence(detail: str = "") -> DataDependent:
    """Return an error for the line of the model that is running."""
    if detail:
        detail = f": {detail}"
    return DataDependent(
        f"model depends on the values of its data at {describe_current_location()}{detail}, "
        "but the work of each split must be known before there are any; "
        "use torch.where instead of a branch and fixed sizes, "
        "or take the decision out of forward"
    )


def describe_failed_call(
    error: Exception, subject: str, inputs: Sequence[Tensor], *, training: bool
) -> InvalidValue:
    """Return an error for a call that fails on the meta device.

    Args:
        error: What the call raised.
        subject: The layer, or the function and its place.
        inputs: The model's inputs.
        training: Whether the model is in training mode.
    """
    message = first_line(error)
    # Torch has no exception type for this.
    is_kernel_error = isinstance(error, RuntimeError | NotImplementedError)
    if is_kernel_error and any(sign in message for sign in DATA_DEPENDENT):
        return describe_data_dependence()
    mode = "training" if training else "evaluation"
    return InvalidValue(
        f"{format_inputs(inputs)} must suit the model, "
        f"but in {mode} mode {subject} fails: {message}; "
        "give another shape, such as --input 3x32x32, or in Python a sample as inputs="
    )


def format_inputs(inputs: Sequence[Tensor]) -> str:
    """Return shape and type of a model's inputs, without the batch axis.

    >>> import torch
    >>> format_inputs([torch.zeros(2, 3, 8, 8)])
    'input_shape (3, 8, 8) of torch.float32'
    """
    return "input_shape " + " and ".join(
        f"{tuple(tensor.shape[1:])} of {tensor.dtype}" for tensor in inputs
    )
