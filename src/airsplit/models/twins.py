"""Copies of a model on the meta device: shapes without storage, so that any model can be looked at."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from airsplit.errors import InvalidValue
from airsplit.models.recording import first_line


def on_meta(module: nn.Module) -> nn.Module:
    """A copy whose tensors have shapes but no storage; what was shared stays shared.

    No parameter requires a gradient, so that autograd builds no graph; the module itself is left alone.
    """
    if any(is_lazy(tensor) for tensor in (*module.parameters(), *module.buffers())):
        raise InvalidValue("model has lazy layers whose shapes are not known yet; run it once on a sample first")
    # deepcopy takes what it finds in its memo for copied already, so that no weight is ever duplicated
    memo: dict[int, Any] = {id(tensor): _shape_only(tensor) for tensor in _tensors(module)}
    try:
        return copy.deepcopy(module, memo)
    except Exception as error:
        raise InvalidValue(f"model must allow copy.deepcopy to be looked at, got {first_line(error)}") from error


@contextmanager
def left_alone(module: nn.Module) -> Iterator[nn.Module]:
    """Whatever a forward pass leaves behind in the modules is taken away again."""
    before = [(part, dict(vars(part)), [dict(held) for held in _registries(part)]) for part in module.modules()]
    try:
        yield module
    finally:
        for part, attributes, registries in before:
            for held, kept in zip(_registries(part), registries, strict=True):
                held.clear()
                held.update(kept)
            vars(part).clear()
            vars(part).update(attributes)


def _registries(part: nn.Module) -> tuple[dict[str, Any], ...]:
    return part._parameters, part._buffers, part._modules


def _tensors(module: nn.Module) -> Iterator[Tensor]:
    for part in module.modules():
        held = (*part._parameters.values(), *part._buffers.values(), *vars(part).values())
        yield from (value for value in held if isinstance(value, Tensor))


def _shape_only(tensor: Tensor) -> Tensor:
    empty = torch.empty_like(tensor, device="meta", requires_grad=False)
    return nn.Parameter(empty, requires_grad=False) if isinstance(tensor, nn.Parameter) else empty
