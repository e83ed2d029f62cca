"""Data of the user's own: what a factory returns, checked for a model that takes certain inputs.

Rules, for tensors and numpy arrays alike:

    inputs of floating type   floats of any width, which become the model's type and must be finite in it;
                              whole numbers are refused, since only their owner knows by how much to scale them
    inputs of whole numbers   whole numbers that fit into the model's type
    inputs of bool            bools
    labels                    whole numbers, which become int64, or floats, which become the model's floating type;
                              where a label is one whole number it is a class, from 0
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

Pair = tuple[tuple[Tensor, ...], Tensor]

WHAT = "training.dataset"
ONE = "a pair (inputs, labels)"


def own_data(
    reference: str, specs: Sequence[InputSpec], given: bool = False
) -> tuple[list[Pair], Pair]:
    """The pairs to train on, one for each device where they are given, and the pair to test on.

    Tensors may share memory with those of the factory.
    """
    field = f"{WHAT} {reference!r}"
    rule = (
        f"(devices, test), a list with {ONE} for each device, and one more"
        if given
        else f"(train, test), each {ONE}"
    )
    train, test = _two(field, import_factory(reference, WHAT, "data")(), rule)
    if given and (not isinstance(train, list | tuple) or len(train) == 0):
        raise InvalidValue(
            f"{field} devices must be a list with {ONE} for each device, got {show(train)}"
        )
    named = (
        {f"{field} devices[{at}]": pair for at, pair in enumerate(train)}
        if given
        else {f"{field} train": train}
    )
    parts = [_pair(name, pair, specs) for name, pair in named.items()]
    checked = _pair(f"{field} test", test, specs)
    for name, part in zip((*named, f"{field} test"), (*parts, checked), strict=True):
        _require_alike(name, part[1], next(iter(named)), parts[0][1])
    return parts, checked


def _two(field: str, value: Any, rule: str) -> tuple[Any, Any]:
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise InvalidValue(f"{field} must be {rule}, got {_shown(value)}")
    return value[0], value[1]


def _pair(field: str, value: Any, specs: Sequence[InputSpec]) -> Pair:
    """Checked inputs and labels, of one length."""
    inputs, labels = _two(field, value, ONE)
    several = list(inputs) if isinstance(inputs, list | tuple) else [inputs]
    if len(several) != len(specs):
        takes = ", ".join(map(str, specs))
        raise InvalidValue(
            f"{field} must have {len(specs)} inputs as the model has ({takes}), got {len(several)}"
        )
    names = [
        f"{field} inputs[{at}]" if len(specs) > 1 else f"{field} inputs" for at in range(len(specs))
    ]
    tensors = tuple(
        _input(name, each, spec) for name, each, spec in zip(names, several, specs, strict=True)
    )
    checked = _labels(f"{field} labels", labels, specs)
    for name, tensor in zip(names, tensors, strict=True):
        if len(tensor) != len(checked):
            raise InvalidValue(
                f"{name} must have a row for each of the {len(checked)} labels, got {len(tensor)}"
            )
    return tensors, checked


def _input(field: str, value: Any, spec: InputSpec) -> Tensor:
    tensor = _tensor(field, value)
    if tuple(tensor.shape[1:]) != spec.shape:
        wanted = f"samples x {format_shape(spec.shape)} as the model takes"
        raise InvalidValue(
            f"{field} must be of shape {wanted}, got {format_shape(tuple(tensor.shape))}; reshape it"
        )
    return _as_type(field, tensor, _type(spec))


def _labels(field: str, value: Any, specs: Sequence[InputSpec]) -> Tensor:
    tensor = _tensor(field, value)
    if tensor.is_floating_point():
        floating = [_type(spec) for spec in specs if _type(spec).is_floating_point]
        return _as_type(field, tensor, floating[0] if floating else torch.get_default_dtype())
    if tensor.is_complex():
        raise InvalidValue(
            f"{field} must be whole numbers or floats, got {_name(tensor.dtype)}; convert them"
        )
    tensor = (
        tensor.to(torch.int64)
        if tensor.dtype == torch.bool
        else _as_type(field, tensor, torch.int64)
    )
    if tensor.ndim == 1 and int(tensor.min()) < 0:
        raise InvalidValue(
            f"{field} must be classes, numbered from 0, got {int(tensor.min())}; number them anew"
        )
    return tensor


def _tensor(field: str, value: Any) -> Tensor:
    """A tensor on the CPU, with one row a sample; the value itself stays as it is."""
    if isinstance(value, np.ndarray):
        value = _from_numpy(field, value)
    if (
        not isinstance(value, Tensor)
        or value.layout != torch.strided
        or value.is_meta
        or value.is_quantized
    ):
        raise InvalidValue(
            f"{field} must be a tensor or numpy array with values in it, got {_shown(value)}"
        )
    if value.ndim == 0 or len(value) == 0:
        raise InvalidValue(
            f"{field} must have a row for each sample, and one at least, got shape {tuple(value.shape)}"
        )
    return value.detach().cpu()


def _from_numpy(field: str, array: np.ndarray[Any, Any]) -> Tensor:
    """Copied where torch could not share it without a word of complaint: read-only, backwards, of another byte order."""
    if array.dtype.kind not in "fiub":
        raise InvalidValue(f"{field} must be an array of numbers, got {array.dtype}; convert it")
    native = (
        np.dtype(np.float64)
        if array.dtype.kind == "f" and array.dtype.itemsize > 8
        else array.dtype.newbyteorder("=")
    )
    return torch.from_numpy(np.require(array, dtype=native, requirements=["C", "W"]))


def _as_type(field: str, tensor: Tensor, wanted: torch.dtype) -> Tensor:
    """The same values in another type of the same kind, if it can hold them."""
    if _kind(tensor.dtype) != _kind(wanted):
        raise InvalidValue(
            f"{field} must be {_kind(wanted)} as the model takes ({_name(wanted)}), got {_name(tensor.dtype)}; convert them"
        )
    converted = tensor.to(wanted)
    if wanted.is_floating_point:
        held = torch.isfinite(converted)
    else:  # there, back, and of the same sign: a large unsigned number comes back from a negative one
        held = (converted.to(tensor.dtype) == tensor) & ((converted < 0) == _negative(tensor))
    if not bool(held.all()):
        at = tuple(torch.argwhere(~held)[0].tolist())
        where = field + "".join(f"[{each}]" for each in at)
        rule = "a finite number" if wanted.is_floating_point else "a number"
        raise InvalidValue(
            f"{where} must be {rule} that {_name(wanted)} can hold, got {show(tensor[at].item())}"
        )
    return converted


def _negative(tensor: Tensor) -> Tensor:
    return tensor < 0 if tensor.dtype.is_signed else torch.zeros_like(tensor, dtype=torch.bool)


def _require_alike(field: str, labels: Tensor, first: str, others: Tensor) -> None:
    if labels.dtype != others.dtype or labels.shape[1:] != others.shape[1:]:
        found, wanted = (
            f"{_name(each.dtype)} of shape {tuple(each.shape[1:])} a sample"
            for each in (labels, others)
        )
        raise InvalidValue(f"{field} labels must be as those of {first}, {wanted}, got {found}")


def _type(spec: InputSpec) -> torch.dtype:
    return getattr(torch, spec.dtype) if spec.dtype else torch.get_default_dtype()


def _kind(dtype: torch.dtype) -> str:
    return (
        "floats"
        if dtype.is_floating_point
        else "complex"
        if dtype.is_complex
        else "bools"
        if dtype == torch.bool
        else "whole numbers"
    )


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _shown(value: object) -> str:
    """What a thing is, without its numbers.

    >>> _shown(torch.zeros(2, 3)), _shown([1, 2, 3]), _shown(None)
    ('Tensor of shape (2, 3)', 'list of 3', 'None')
    """
    if isinstance(value, Tensor | np.ndarray):
        return f"{type(value).__name__} of shape {tuple(value.shape)}"
    return (
        f"{type(value).__name__} of {len(value)}"
        if isinstance(value, list | tuple | dict)
        else show(value)
    )
