"""Copies of a model on the meta device: shapes without storage, so that any model can be looked at."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_leaves

from airsplit.core.errors import InvalidValue
from airsplit.models.tracing.source_location import first_line
from airsplit.models.tracing.tracer import is_layer
from airsplit.models.tracing.values import held_tensors


def copy_to_meta(module: nn.Module) -> nn.Module:
    """A copy whose tensors have shapes but no storage; what was shared stays shared.

    No parameter requires a gradient, so that autograd builds no graph; the module itself is left alone.
    """
    if any(is_lazy(tensor) for tensor in (*module.parameters(), *module.buffers())):
        raise InvalidValue(
            "model has lazy layers whose shapes are not known yet; run it once on a sample first"
        )
    for path, part in module.named_modules():
        if isinstance(part, torch.jit.ScriptModule) and any(True for _ in part.parameters()):
            what = f"its part {path} is" if path else "it is"
            raise InvalidValue(
                f"model must be Python to be cut, but {what} TorchScript with parameters; give the module it was made from"
            )
    # deepcopy takes what it finds in its memo for copied already, so that no weight is ever duplicated
    memo: dict[int, Any] = {
        id(tensor): _shape_only(tensor) for tensor in dict(held_tensors(module)).values()
    }
    memo |= {id(constant): constant for constant in _constants(module)}
    try:
        twin = copy.deepcopy(module, memo)
    except Exception as error:
        raise InvalidValue(
            f"model must allow copy.deepcopy to be looked at, got {first_line(error)}"
        ) from error
    for part in twin.modules():
        if (
            isinstance(part, _BatchNorm) and is_layer(part) and part.momentum is None
        ):  # it would look at how many batches it has seen
            part.momentum = 0.1
    return twin


@contextmanager
def left_alone(module: nn.Module) -> Iterator[nn.Module]:
    """Whatever a forward pass leaves behind in the modules is taken away again, also in lists and dictionaries that they hold."""
    parts = [part for part in module.modules() if not isinstance(part, torch.jit.ScriptModule)]
    before = [(part, dict(vars(part))) for part in parts]
    held = [
        value
        for part in parts
        for value in vars(part).values()
        if type(value) in (dict, list, set, OrderedDict)
    ]
    contents = [type(value)(value) if value else () for value in held]  # most are empty
    try:
        yield module
    finally:
        for value, content in zip(held, contents, strict=True):
            if value or content:
                value.clear()
                (value.extend if isinstance(value, list) else value.update)(content)
        for part, attributes in before:
            vars(part).clear()
            vars(part).update(attributes)


_OWN = frozenset(vars(nn.Module()))
"""What every module has."""


def _constants(module: nn.Module) -> Iterator[Tensor | torch.Generator]:
    """Generators, and tensors in lists and dictionaries: not the model's to train or to save, so they are taken as they are."""
    for part in module.modules():
        yield from (value for value in vars(part).values() if isinstance(value, torch.Generator))
        containers = (
            value
            for name, value in vars(part).items()
            if type(value) in (list, tuple, dict) and name not in _OWN
        )
        yield from (
            leaf for value in containers for leaf in tree_leaves(value) if type(leaf) is Tensor
        )


def _shape_only(tensor: Tensor) -> Tensor:
    empty = torch.empty_like(tensor, device="meta", requires_grad=False)
    return nn.Parameter(empty, requires_grad=False) if isinstance(tensor, nn.Parameter) else empty
