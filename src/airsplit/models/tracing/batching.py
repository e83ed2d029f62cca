"""From graphs recorded for two batch sizes to one for any: every number that grows with the batch becomes a BatchInt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from airsplit.core.errors import InvalidValue, show
from airsplit.models.tracing.graph import (
    FIRST_BATCH,
    BatchInt,
    Call,
    Graph,
    ModelTensor,
    Nested,
    Slot,
)
from airsplit.models.tracing.source_location import format_location

LARGE_BATCH = 129
"""Odd, and larger than most: for models that do something else with half a batch, or in portions."""


def for_any_batch(record: Callable[[int], Graph]) -> Graph:
    """One graph from those of two batch sizes, with the work of one sample; a third must bear it out."""
    graph = _merged(record(FIRST_BATCH), record(FIRST_BATCH + 1))
    _require_same(graph, record(LARGE_BATCH))
    return graph


def _merged(first: Graph, second: Graph) -> Graph:
    _require_same_calls(first, second, FIRST_BATCH + 1)
    _require_same_output(first, second)
    calls = [_call(a, b) for a, b in zip(first.calls, second.calls, strict=True)]
    slots = [
        replace(a, shapes=a.shapes + b.shapes)
        for a, b in zip(first.specs, second.specs, strict=True)
    ]
    work = [more.beyond(less) for less, more in zip(first.work, second.work, strict=True)]
    return replace(first, calls=calls, specs=slots, work=work)


def _require_same_calls(first: Graph, second: Graph, batch: int) -> None:
    """Raise where the graph of another batch size is not of the same calls."""
    for a, b in zip(first.calls, second.calls, strict=False):
        if (a.row, a.where, a.outputs, a.writes, a.grad) != (
            b.row,
            b.where,
            b.outputs,
            b.writes,
            b.grad,
        ):
            raise _differs(a, batch)
    shorter, longer = sorted((first.calls, second.calls), key=len)
    if len(shorter) < len(longer):
        raise _differs(longer[len(shorter)], batch)


def _require_same_output(first: Graph, second: Graph) -> None:
    for a, b in zip(tree_leaves(first.output), tree_leaves(second.output), strict=False):
        if not isinstance(a, Tensor) and not _same(a, b):
            found = (
                f"{show(a)} for a batch of {FIRST_BATCH} and {show(b)} for one of {FIRST_BATCH + 1}"
            )
            raise InvalidValue(
                f"model returns a number that depends on the batch size, {found}; return tensors, and take their shape"
            )


def _call(first: Call, second: Call) -> Call:
    def merged(a: Any, b: Any) -> Any:
        if (
            isinstance(a, Nested)
            and isinstance(b, Nested)
            and (a.kind, a.keys, len(a.items)) == (b.kind, b.keys, len(b.items))
        ):
            return Nested(a.kind, tuple(map(merged, a.items, b.items)), a.keys)
        if type(a) is int and type(b) is int and a != b:
            return BatchInt(b - a, a - FIRST_BATCH * (b - a))
        if type(a) is type(b) and _same(a, b):
            return a
        if type(a) is type(b) and isinstance(a, bool | float | complex | np.ndarray | Tensor):
            raise _unclear(
                first,
                f"{show(a)} for a batch of {FIRST_BATCH} and {show(b)} for one of {FIRST_BATCH + 1}",
            )
        raise _differs(first)

    if first.kwargs.keys() != second.kwargs.keys() or len(first.args) != len(second.args):
        raise _differs(first)
    kwargs = {key: merged(value, second.kwargs[key]) for key, value in first.kwargs.items()}
    return replace(first, args=tuple(map(merged, first.args, second.args)), kwargs=kwargs)


def _require_same(graph: Graph, third: Graph) -> None:
    """Raise where a number is not what the first two batches promised."""
    _require_same_calls(graph, third, LARGE_BATCH)
    for a, b in zip(graph.calls, third.calls, strict=True):
        promised, found = list(a.parts), list(b.parts)
        if len(promised) != len(found):
            raise _differs(a, LARGE_BATCH)
        for value, other in zip(promised, found, strict=True):
            wanted = value.at(LARGE_BATCH) if isinstance(value, BatchInt) else value
            if not _same(wanted, other):
                raise _unclear(a, f"{show(other)} for a batch of {LARGE_BATCH}, not {show(wanted)}")
    for slot, (meta, other) in enumerate(zip(graph.specs, third.specs, strict=True)):
        if meta.shape_at(LARGE_BATCH) != other.shapes[0]:
            raise _differs(next(call for call in graph.calls if slot in call.outputs), LARGE_BATCH)


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray | Tensor) or isinstance(b, np.ndarray | Tensor):
        return a is b or (
            type(a) is type(b) and np.array_equal(np.asarray(a.tolist()), np.asarray(b.tolist()))
        )
    return a is b or bool(a == b) or (a != a and b != b) or not isinstance(a, _PLAIN)


_PLAIN = (
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    Slot,
    ModelTensor,
    Nested,
    BatchInt,
    torch.dtype,
    torch.device,
    type(None),
)
"""What can be compared; other objects are taken for equal."""


def _differs(call: Call, batch: int = FIRST_BATCH + 1) -> InvalidValue:
    return InvalidValue(
        f"model does other things for a batch of {FIRST_BATCH} than for one of {batch}, at {format_location(call.where)}; "
        "write it for a whole batch at once, without a loop over its samples"
    )


def _unclear(call: Call, found: str) -> InvalidValue:
    return InvalidValue(
        f"model uses a number that depends on the batch size at {format_location(call.where)}, {found}; "
        "only whole numbers that grow with the batch by equal steps can be followed, so divide a tensor by x.shape[0] itself"
    )
