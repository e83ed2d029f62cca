"""From tapes recorded for two batch sizes to one for any: every number that grows with the batch becomes a BatchInt."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from airsplit.errors import InvalidValue
from airsplit.models.recording import place_text
from airsplit.models.tape import FIRST_BATCH, BatchInt, Call, Nested, Slot, Tape


def for_any_batch(first: Tape, second: Tape) -> Tape:
    """One tape from those of batches of FIRST_BATCH and FIRST_BATCH + 1."""
    for a, b in zip(first.calls, second.calls, strict=False):
        if (a.row, a.where) != (b.row, b.where) or a.outputs != b.outputs:
            raise _differs(a)
    if len(first.calls) != len(second.calls):
        raise _differs(max(first.calls, second.calls, key=len)[min(len(first.calls), len(second.calls))])
    calls = [_call(a, b) for a, b in zip(first.calls, second.calls, strict=True)]
    slots = [replace(a, shapes=a.shapes + b.shapes) for a, b in zip(first.slots, second.slots, strict=True)]
    return replace(first, calls=calls, slots=slots)


def _call(first: Call, second: Call) -> Call:
    def merged(a: Any, b: Any) -> Any:
        if isinstance(a, Nested) and isinstance(b, Nested) and (a.kind, a.keys, len(a.items)) == (b.kind, b.keys, len(b.items)):
            return Nested(a.kind, tuple(map(merged, a.items, b.items)), a.keys)
        if isinstance(a, int) and isinstance(b, int) and a != b:
            return BatchInt(b - a, a - FIRST_BATCH * (b - a))
        if type(a) is not type(b) or (isinstance(a, Slot | float | str | bool) and a != b):
            raise _differs(first)
        return a

    args = tuple(map(merged, first.args, second.args))
    if first.kwargs.keys() != second.kwargs.keys() or len(first.args) != len(second.args):
        raise _differs(first)
    return replace(first, args=args, kwargs={key: merged(first.kwargs[key], second.kwargs[key]) for key in first.kwargs})


def _differs(call: Call) -> InvalidValue:
    return InvalidValue(
        f"model does other things for a batch of {FIRST_BATCH} than for one of {FIRST_BATCH + 1}, at {place_text(call.where)}; "
        "write it for a whole batch at once, without a loop over its samples"
    )
