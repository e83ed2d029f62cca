"""A user's own data: what a factory returns, checked against the inputs of the model.

The rules, for tensors and numpy arrays:

- Inputs of a floating type are floats of any width. They are converted to the model's type and must
  be finite in it. Whole numbers are rejected: only their owner knows how to scale them.
- Inputs of whole numbers are whole numbers that fit into the model's type.
- Inputs of type bool are bools.
- Labels are whole numbers, converted to int64, or floats, converted to the model's floating type.
  If a label is one whole number, it is a class, numbered from 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from airsplit.core.errors import InvalidValue, show
from airsplit.core.plugins import import_factory
from airsplit.system.inputs import InputSpec, format_shape

# Inputs of the model, and labels; each with one row per sample.
Pair = tuple[tuple[Tensor, ...], Tensor]

PAIR = "a pair (inputs, labels)"


def load_user_data(
    reference: str, specs: Sequence[InputSpec], given: bool = False
) -> tuple[list[Pair], Pair]:
    """Call a data set factory and check what it returns.

    Args:
        reference: "package.module:factory".
        specs: Inputs of the model.
        given: Whether the factory returns (devices, test), with a pair for each device, instead
            of (train, test).

    Returns:
        The pairs to train on, and the pair to test on. They may share memory with the factory's.
    """
    field = f"training.dataset {reference!r}"
    returned = import_factory(reference, "training.dataset", "data")()
    if given:
        rule = f"(devices, test), a list with {PAIR} for each device, and one more"
        devices, test = _unpack_two(field, returned, rule)
        if not isinstance(devices, list | tuple) or len(devices) == 0:
            raise InvalidValue(
                f"{field} devices must be a list with {PAIR} for each device, got {show(devices)}"
            )
        parts = {f"{field} devices[{number}]": pair for number, pair in enumerate(devices)}
    else:
        train, test = _unpack_two(field, returned, f"(train, test), each {PAIR}")
        parts = {f"{field} train": train}

    checked = {name: _check_pair(name, pair, specs) for name, pair in parts.items()}
    checked_test = _check_pair(f"{field} test", test, specs)
    first_name = next(iter(checked))
    _, first_labels = checked[first_name]
    for name, (_, labels) in (*checked.items(), (f"{field} test", checked_test)):
        _require_like(name, labels, first_name, first_labels)
    return list(checked.values()), checked_test


def _unpack_two(field: str, value: Any, rule: str) -> tuple[Any, Any]:
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise InvalidValue(f"{field} must be {rule}, got {_describe(value)}")
    return value[0], value[1]


def _check_pair(field: str, value: Any, specs: Sequence[InputSpec]) -> Pair:
    """Return inputs and labels, checked, with the same number of samples."""
    inputs, labels = _unpack_two(field, value, PAIR)
    arrays = list(inputs) if isinstance(inputs, list | tuple) else [inputs]
    if len(arrays) != len(specs):
        raise InvalidValue(
            f"{field} must have as many inputs as the model, {len(specs)} "
            f"({', '.join(map(str, specs))}), got {len(arrays)}"
        )

    names = [f"{field} inputs"]
    if len(specs) > 1:
        names = [f"{field} inputs[{number}]" for number in range(len(specs))]
    tensors = []
    for name, array, spec in zip(names, arrays, specs, strict=True):
        tensor = _to_tensor(name, array)
        if tuple(tensor.shape[1:]) != spec.shape:
            raise InvalidValue(
                f"{name} must have the shape samples x {format_shape(spec.shape)}, as the model "
                f"expects, got {format_shape(tuple(tensor.shape))}; reshape it"
            )
        tensors.append(_convert(name, tensor, get_dtype(spec)))

    checked_labels = check_labels(f"{field} labels", labels, specs)
    for name, tensor in zip(names, tensors, strict=True):
        if len(tensor) != len(checked_labels):
            raise InvalidValue(
                f"{name} must have a row for each of the {len(checked_labels)} labels, "
                f"got {len(tensor)}"
            )
    return tuple(tensors), checked_labels


def check_labels(field: str, value: Any, specs: Sequence[InputSpec]) -> Tensor:
    """Return labels as int64 classes, or as floats of the model's type."""
    tensor = _to_tensor(field, value)
    if tensor.is_complex():
        raise InvalidValue(
            f"{field} must be whole numbers or floats, got {_name(tensor.dtype)}; convert them"
        )
    if tensor.is_floating_point():
        # Labels of a regression are compared with outputs, which have the type of the weights.
        dtypes = (get_dtype(spec) for spec in specs)
        floating = (dtype for dtype in dtypes if dtype.is_floating_point)
        return _convert(field, tensor, next(floating, torch.get_default_dtype()))

    if tensor.dtype == torch.bool:
        tensor = tensor.to(torch.int64)
    else:
        tensor = _convert(field, tensor, torch.int64)
    if tensor.ndim == 1 and int(tensor.min()) < 0:
        raise InvalidValue(
            f"{field} must be classes, numbered from 0, got {int(tensor.min())}; renumber them"
        )
    return tensor


def _to_tensor(field: str, value: Any) -> Tensor:
    """Return a tensor on the CPU with one row per sample; the value itself is not changed."""
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "fiub":
            raise InvalidValue(
                f"{field} must be an array of numbers, got {value.dtype}; convert it"
            )
        # torch has no type for long doubles.
        is_wide = value.dtype.kind == "f" and value.dtype.itemsize > 8
        dtype = np.dtype(np.float64) if is_wide else value.dtype.newbyteorder("=")
        # torch warns of read-only arrays, and fails on negative strides and foreign byte orders.
        value = torch.from_numpy(np.require(value, dtype=dtype, requirements=["C", "W"]))
    if (
        not isinstance(value, Tensor)
        or value.layout != torch.strided
        or value.is_meta
        or value.is_quantized
    ):
        raise InvalidValue(
            f"{field} must be a tensor or numpy array with values in it, got {_describe(value)}"
        )
    if value.ndim == 0 or len(value) == 0:
        raise InvalidValue(
            f"{field} must have a row for each sample, and at least one, "
            f"got shape {tuple(value.shape)}"
        )
    return value.detach().cpu()


def _convert(field: str, tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the same values in another type of the same kind; raise if it cannot hold them."""
    if _get_kind(tensor.dtype) != _get_kind(dtype):
        raise InvalidValue(
            f"{field} must be {_get_kind(dtype)}, as the model expects ({_name(dtype)}), "
            f"got {_name(tensor.dtype)}; convert them"
        )
    # A cast never raises: what does not fit becomes infinite, or wraps around.
    converted = tensor.to(dtype)
    if dtype.is_floating_point:
        is_held = torch.isfinite(converted)
        rule = "a finite number"
    else:
        # The sign too: a large unsigned number survives the round trip through a negative one.
        if tensor.dtype.is_signed:
            is_negative = tensor < 0
        else:
            is_negative = torch.zeros_like(tensor, dtype=torch.bool)
        is_held = (converted.to(tensor.dtype) == tensor) & ((converted < 0) == is_negative)
        rule = "a number"
    if not bool(is_held.all()):
        index = tuple(torch.argwhere(~is_held)[0].tolist())
        place = field + "".join(f"[{i}]" for i in index)
        raise InvalidValue(
            f"{place} must be {rule} that {_name(dtype)} can hold, got {show(tensor[index].item())}"
        )
    return converted


def _require_like(name: str, labels: Tensor, first_name: str, first: Tensor) -> None:
    """Raise if labels differ in type or shape from those of the first part."""
    if labels.dtype == first.dtype and labels.shape[1:] == first.shape[1:]:
        return
    expected, actual = (
        f"{_name(tensor.dtype)} of shape {tuple(tensor.shape[1:])} per sample"
        for tensor in (first, labels)
    )
    raise InvalidValue(
        f"{name} labels must have the type and shape of those of {first_name}, {expected}, "
        f"got {actual}"
    )


def get_dtype(spec: InputSpec) -> torch.dtype:
    """Return the type of an input; torch's default if the spec names none."""
    return getattr(torch, spec.dtype) if spec.dtype else torch.get_default_dtype()


def _get_kind(dtype: torch.dtype) -> str:
    if dtype.is_floating_point:
        return "floats"
    if dtype.is_complex:
        return "complex"
    if dtype == torch.bool:
        return "bools"
    return "whole numbers"


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _describe(value: object) -> str:
    """Return what a value is, without its numbers.

    >>> _describe(torch.zeros(2, 3)), _describe([1, 2, 3]), _describe(None)
    ('Tensor of shape (2, 3)', 'list of 3', 'None')
    """
    if isinstance(value, Tensor | np.ndarray):
        return f"{type(value).__name__} of shape {tuple(value.shape)}"
    if isinstance(value, list | tuple | dict):
        return f"{type(value).__name__} of {len(value)}"
    return show(value)
