"""Merge graphs that were traced at several batch sizes into one for any batch size."""

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
    Nested,
    Reference,
)
from airsplit.models.tracing.source_location import format_location

# Odd and large: some models treat halves of a batch differently, or split large batches.
LARGE_BATCH = 129

# Types that can be compared between batches; other objects are assumed to be equal.
_COMPARABLE = (
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    Reference,
    Nested,
    BatchInt,
    torch.dtype,
    torch.device,
    type(None),
)


def merge_batch_sizes(trace_batch: Callable[[int], Graph]) -> Graph:
    """Return a graph for any batch size, with the costs of one sample.

    Two batch sizes give a graph in which every integer is an affine function of the batch size. A
    third, much larger one confirms it.

    Args:
        trace_batch: Traces the model with a batch of this size.
    """
    first = trace_batch(FIRST_BATCH)
    second = trace_batch(FIRST_BATCH + 1)
    _require_same_calls(first, second, FIRST_BATCH + 1)
    for a, b in zip(tree_leaves(first.output), tree_leaves(second.output), strict=False):
        if not isinstance(a, Tensor) and not _is_same(a, b):
            raise InvalidValue(
                f"model returns a number that depends on the batch size, {_both(a, b)}; "
                "return tensors, and take their shape"
            )

    specs = [
        replace(a, shapes=a.shapes + b.shapes)
        for a, b in zip(first.specs, second.specs, strict=True)
    ]
    calls = [merge_calls(a, b) for a, b in zip(first.calls, second.calls, strict=True)]
    costs = [b.per_sample(a) for a, b in zip(first.costs, second.costs, strict=True)]
    merged = replace(first, calls=calls, specs=specs, costs=costs)

    require_affine(merged, trace_batch(LARGE_BATCH))
    return merged


def _require_same_calls(first: Graph, second: Graph, batch: int) -> None:
    # The first difference is what a user can find; a different number of calls comes last.
    for a, b in zip(first.calls, second.calls, strict=False):
        if _batch_invariants(a) != _batch_invariants(b):
            raise _different_calls(a, batch)
    shorter, longer = sorted((first.calls, second.calls), key=len)
    if len(shorter) < len(longer):
        raise _different_calls(longer[len(shorter)], batch)


def _batch_invariants(call: Call) -> tuple[Any, ...]:
    """Return what, besides the arguments, must be equal for all batch sizes."""
    return call.name, call.location, call.outputs, call.writes, call.grad_enabled


def merge_calls(first: Call, second: Call) -> Call:
    """Return a call for any batch size, from the same call with batches of 2 and 3."""
    if first.kwargs.keys() != second.kwargs.keys() or len(first.args) != len(second.args):
        raise _different_calls(first)

    def merge(a: Any, b: Any) -> Any:
        if (
            isinstance(a, Nested)
            and isinstance(b, Nested)
            and (a.kind, a.keys, len(a.items)) == (b.kind, b.keys, len(b.items))
        ):
            return Nested(a.kind, tuple(map(merge, a.items, b.items)), a.keys)
        if type(a) is not type(b):
            raise _different_calls(first)
        if type(a) is int and a != b:
            # The line through (2, a) and (3, b).
            return BatchInt(b - a, a - FIRST_BATCH * (b - a))
        if _is_same(a, b):
            return a
        # Only whole numbers get a placeholder: a float that changes, such as 1 / B, is not affine.
        if isinstance(a, bool | float | complex | np.ndarray | Tensor):
            raise _not_affine(first, _both(a, b))
        raise _different_calls(first)

    args = tuple(map(merge, first.args, second.args))
    kwargs = {key: merge(value, second.kwargs[key]) for key, value in first.kwargs.items()}
    return replace(first, args=args, kwargs=kwargs)


def require_affine(merged: Graph, third: Graph) -> None:
    """Raise if the large batch is not as the first two predict."""
    _require_same_calls(merged, third, LARGE_BATCH)
    for merged_call, call in zip(merged.calls, third.calls, strict=True):
        predictions = list(merged_call.leaves)
        values = list(call.leaves)
        if len(predictions) != len(values):
            raise _different_calls(merged_call, LARGE_BATCH)
        for prediction, value in zip(predictions, values, strict=True):
            if isinstance(prediction, BatchInt):
                prediction = prediction.at(LARGE_BATCH)
            if not _is_same(prediction, value):
                difference = f"{show(value)} for a batch of {LARGE_BATCH}, not {show(prediction)}"
                raise _not_affine(merged_call, difference)

    for slot, (spec, large_spec) in enumerate(zip(merged.specs, third.specs, strict=True)):
        if spec.shape_at(LARGE_BATCH) != large_spec.shapes[0]:
            call = next(call for call in merged.calls if slot in call.outputs)
            raise _different_calls(call, LARGE_BATCH)


def _is_same(a: Any, b: Any) -> bool:
    if a is b:
        return True
    if isinstance(a, np.ndarray | Tensor) or isinstance(b, np.ndarray | Tensor):
        return type(a) is type(b) and np.array_equal(np.asarray(a.tolist()), np.asarray(b.tolist()))
    if bool(a == b):
        return True
    # Only nan differs from itself.
    both_nan = a != a and b != b
    return both_nan or not isinstance(a, _COMPARABLE)


def _both(first: Any, second: Any) -> str:
    return (
        f"{show(first)} for a batch of {FIRST_BATCH} "
        f"and {show(second)} for one of {FIRST_BATCH + 1}"
    )


def _different_calls(call: Call, batch: int = FIRST_BATCH + 1) -> InvalidValue:
    return InvalidValue(
        f"model behaves differently for a batch of {FIRST_BATCH} than for one of {batch}, "
        f"at {format_location(call.location)}; "
        "write it for a whole batch at once, without a loop over its samples"
    )


def _not_affine(call: Call, difference: str) -> InvalidValue:
    return InvalidValue(
        "model uses a number that depends on the batch size at "
        f"{format_location(call.location)}, {difference}; "
        "only whole numbers that grow with the batch by equal steps can be traced, "
        "so divide a tensor by x.shape[0] itself"
    )
