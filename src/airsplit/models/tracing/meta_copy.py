"""Copy a model to the meta device, where tensors have shapes but no storage."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_leaves

from airsplit.core.errors import InvalidValue
from airsplit.models.tracing.module_stack import is_layer
from airsplit.models.tracing.source_location import first_line
from airsplit.models.tracing.tensors import named_tensors

# What every module has: its registries and hooks, whose tensors are not constants.
_MODULE_ATTRIBUTES = frozenset(vars(nn.Module()))


def copy_to_meta(module: nn.Module) -> nn.Module:
    """Return a copy whose tensors have no storage; what is shared in the module is shared in it.

    No parameter of the copy requires a gradient, so that autograd builds no graph.
    """
    require_copyable(module)

    # deepcopy takes what it finds in its memo for copied already, so no weight is ever duplicated.
    memo: dict[int, Any] = {}
    for tensor in dict(named_tensors(module)).values():
        empty = torch.empty_like(tensor, device="meta", requires_grad=False)
        if isinstance(tensor, nn.Parameter):
            empty = nn.Parameter(empty, requires_grad=False)
        memo[id(tensor)] = empty
    # Generators, and tensors in containers, are neither trained nor saved with the model: the copy
    # may share them.
    for submodule in module.modules():
        for name, value in vars(submodule).items():
            if isinstance(value, torch.Generator):
                memo[id(value)] = value
            elif type(value) in (list, tuple, dict) and name not in _MODULE_ATTRIBUTES:
                constants = (leaf for leaf in tree_leaves(value) if type(leaf) is Tensor)
                memo.update((id(constant), constant) for constant in constants)
    try:
        copied = copy.deepcopy(module, memo)
    except Exception as error:
        raise InvalidValue(
            f"model must allow copy.deepcopy to be profiled, got {first_line(error)}"
        ) from error

    for submodule in copied.modules():
        # Without a momentum it averages over all batches so far, and reads their number.
        if isinstance(submodule, _BatchNorm) and is_layer(submodule) and submodule.momentum is None:
            submodule.momentum = 0.1
    return copied


def require_copyable(module: nn.Module) -> None:
    """Raise if a model has no shapes yet, or cannot be copied without its weights.

    >>> require_copyable(nn.LazyLinear(3))
    Traceback (most recent call last):
    airsplit.core.errors.InvalidValue: model has lazy layers whose shapes are not known yet; \
run it once on a sample first
    """
    if any(is_lazy(tensor) for tensor in (*module.parameters(), *module.buffers())):
        raise InvalidValue(
            "model has lazy layers whose shapes are not known yet; run it once on a sample first"
        )
    for path, submodule in module.named_modules():
        has_parameters = next(submodule.parameters(), None) is not None
        if isinstance(submodule, torch.jit.ScriptModule) and has_parameters:
            subject = f"its part {path} is" if path else "it is"
            raise InvalidValue(
                f"model must be Python to be cut, but {subject} TorchScript with parameters; "
                "give the module it was made from"
            )
