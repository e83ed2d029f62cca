"""From a model to its Profile: what every layer computes, keeps and sends, counted on the meta device.

Nothing is allocated and nothing runs: torch only infers shapes.  Matrix products and convolutions come from torch's own
counter (one multiply-add is one MAC); light operations are those of `light_operations`.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from airsplit.errors import InvalidValue, show
from airsplit.models.light import light_operations, stores_nothing
from airsplit.profiles import Profile
from airsplit.units import Ints


@dataclass(frozen=True)
class Row:
    """One layer: its own work, and the running sums of the rows up to it."""

    name: str
    layer_macs: int
    matmul_macs: int
    activation_elements: int
    parameters: int
    stored_elements: int


def count(module: nn.Module, inputs: Tensor | tuple[Tensor, ...]) -> Profile:
    """The profile of an nn.Sequential, for inputs with a batch axis of any size; all columns are per sample.

    A nested Sequential counts as its layers, with dotted names.  The module is neither run nor moved nor changed.

    >>> model = nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> profile = count(model, torch.zeros(32, 8))
    >>> profile.layer_macs.tolist(), profile.activation_elements.tolist(), profile.parameters.tolist()
    ([32, 4, 8], [4, 4, 2], [36, 0, 10])
    """
    label = type(module).__name__
    if not _is_chain(module):
        raise InvalidValue(f"model must be an nn.Sequential, got {label}; put its layers into one, in their order")
    sample = _one_sample(inputs)
    layers = list(_leaves(_on_meta(module)))
    if not layers:
        raise InvalidValue(f"model must have at least one layer, got an empty {label}")
    rows = list(_rows(layers, sample))
    legal = _legal_cuts([layer for _, layer in layers])
    return _profile(list(_merged(rows, legal)), label)


def _is_chain(module: nn.Module) -> bool:
    """Whether it is an nn.Sequential that runs its layers one after the other, as a subclass may not."""
    return isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward


def _leaves(module: nn.Module, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    # not named_children(): that leaves out a layer's second appearance
    for name, child in module._modules.items():
        if child is None:
            continue
        if _is_chain(child):
            yield from _leaves(child, f"{prefix}{name}.")
        else:
            yield prefix + name, child


def _one_sample(inputs: Tensor | tuple[Tensor, ...]) -> Tensor:
    tensors = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    if len(tensors) != 1:
        raise InvalidValue(f"inputs must be one tensor for an nn.Sequential, got {len(tensors)}; join them into one")
    if not isinstance(tensors[0], Tensor) or tensors[0].dim() == 0:
        raise InvalidValue(f"inputs must be a tensor with a batch axis, got {show(tensors[0])}; add one with [None]")
    return torch.empty((1, *tensors[0].shape[1:]), dtype=tensors[0].dtype, device="meta")


def _on_meta(module: nn.Module) -> nn.Module:
    """A copy in evaluation mode whose tensors have shapes but no storage; what was shared stays shared."""
    if any(is_lazy(tensor) for tensor in (*module.parameters(), *module.buffers())):
        raise InvalidValue("model has lazy layers whose shapes are not known yet; run it once on a sample first")
    # deepcopy takes what it finds in its memo for copied already, so that no weight is ever duplicated
    memo: dict[int, Any] = {id(tensor): _shape_only(tensor) for tensor in _tensors(module)}
    try:
        twin = copy.deepcopy(module, memo).eval()
    except Exception as error:
        raise InvalidValue(f"model must allow copy.deepcopy to be counted, got {_first_line(error)}") from error
    for norm in twin.modules():
        if isinstance(norm, _BatchNorm) and norm.running_mean is None:  # statistics of one sample alone do not exist
            norm.running_mean = norm.running_var = torch.empty(norm.num_features, device="meta")
    return twin


def _tensors(module: nn.Module) -> Iterator[Tensor]:
    for part in module.modules():
        yield from part.parameters(recurse=False)
        yield from part.buffers(recurse=False)
        yield from (value for value in vars(part).values() if isinstance(value, Tensor))


def _shape_only(tensor: Tensor) -> Tensor:
    empty = torch.empty_like(tensor, device="meta", requires_grad=False)
    return nn.Parameter(empty, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else empty


def _rows(layers: list[tuple[str, nn.Module]], sample: Tensor) -> Iterator[Row]:
    flowing: Any = sample
    stored, matmul, seen = sample.numel(), 0, set[int]()
    for name, layer in layers:
        given = flowing
        products, flowing = _run(name, layer, given, sample)
        sent = sum(tensor.numel() for tensor in _flat(flowing))
        matmul += products
        stored += 0 if stores_nothing(layer) else sent
        new = {id(p): p.numel() for p in layer.parameters() if id(p) not in seen}
        seen |= new.keys()
        light = light_operations(layer, _flat(given), _flat(flowing))
        yield Row(name, products + light, matmul, sent, sum(new.values()), stored)


def _run(name: str, layer: nn.Module, given: Any, sample: Tensor) -> tuple[int, Any]:
    """Matrix multiply-adds of one layer, and what comes out of it."""
    try:
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            result = layer(given)
    except Exception as error:
        raise InvalidValue(
            f"input_shape {tuple(sample.shape[1:])} of {sample.dtype} must suit the model, but layer {name!r} "
            f"({type(layer).__name__}) says: {_first_line(error)}; give another shape, or a sample as inputs="
        ) from error
    if not _flat(result):
        raise InvalidValue(f"layer {name!r} ({type(layer).__name__}) must return a tensor, got {show(result)}")
    return int(counter.get_total_flops()) // 2, result


def _flat(value: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _legal_cuts(layers: list[nn.Module]) -> list[bool]:
    """Whether the model may be cut after each layer: not where a parameter before the cut is needed again behind it."""
    last_use = {id(p): at for at, layer in enumerate(layers) for p in layer.parameters()}
    legal, needed_until = [], 0
    for at, layer in enumerate(layers):
        needed_until = max([needed_until, *(last_use[id(p)] for p in layer.parameters())])
        legal.append(needed_until <= at)
    return legal


def _merged(rows: list[Row], legal: list[bool]) -> Iterator[Row]:
    """One row per legal cut, which takes over the work and the parameters of those before it that have none."""
    macs = parameters = 0
    for row, cut in zip(rows, legal, strict=True):
        macs, parameters = macs + row.layer_macs, parameters + row.parameters
        if cut:
            yield Row(row.name, macs, row.matmul_macs, row.activation_elements, parameters, row.stored_elements)
            macs = parameters = 0


def _profile(rows: list[Row], model: str) -> Profile:
    def column(name: str) -> Ints:
        return np.array([getattr(row, name) for row in rows], dtype=np.int64)

    return Profile(
        names=[row.name for row in rows],
        layer_macs=column("layer_macs"),
        matmul_macs=column("matmul_macs"),
        activation_elements=column("activation_elements"),
        parameters=column("parameters"),
        stored_elements=column("stored_elements"),
        model=model,
    )
