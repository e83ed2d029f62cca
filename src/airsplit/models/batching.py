"""From tapes recorded for two batch sizes to one for any: every number that grows with the batch becomes a BatchInt."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from airsplit.errors import InvalidValue, show
from airsplit.models.recording import place_text
from airsplit.models.tape import FIRST_BATCH, BatchInt, Call, Nested, Slot, Tape

THIRD_BATCH = 5


def for_any_batch(record: Callable[[int], Tape]) -> Tape:
    """One tape from those of two batch sizes, with the work of one sample; of a third where two do not tell how a number grows."""
    tape = _merged(record(FIRST_BATCH), record(FIRST_BATCH + 1))
    if any(number.plus for call in tape.calls for number in _numbers((*call.args, *call.kwargs.values()))):
        _require_same(tape, record(THIRD_BATCH))
    return tape


def _merged(first: Tape, second: Tape) -> Tape:
    _require_same_calls(first, second)
    calls = [_call(a, b) for a, b in zip(first.calls, second.calls, strict=True)]
    slots = [replace(a, shapes=a.shapes + b.shapes) for a, b in zip(first.slots, second.slots, strict=True)]
    work = [more.beyond(less) for less, more in zip(first.work, second.work, strict=True)]
    return replace(first, calls=calls, slots=slots, work=work)


def _require_same_calls(first: Tape, second: Tape) -> None:
    for a, b in zip(first.calls, second.calls, strict=False):
        if (a.row, a.where, a.outputs) != (b.row, b.where, b.outputs):
            raise _differs(a)
    shorter, longer = sorted((first.calls, second.calls), key=len)
    if len(shorter) < len(longer):
        raise _differs(longer[len(shorter)])


def _call(first: Call, second: Call) -> Call:
    def merged(a: Any, b: Any) -> Any:
        if isinstance(a, Nested) and isinstance(b, Nested) and (a.kind, a.keys, len(a.items)) == (b.kind, b.keys, len(b.items)):
            return Nested(a.kind, tuple(map(merged, a.items, b.items)), a.keys)
        if type(a) is int and type(b) is int and a != b:
            return BatchInt(b - a, a - FIRST_BATCH * (b - a))
        if isinstance(a, bool | float | complex) and a != b:
            raise _unclear(first, f"{show(a)} for a batch of {FIRST_BATCH} and {show(b)} for one of {FIRST_BATCH + 1}")
        if type(a) is not type(b) or (isinstance(a, Slot | str) and a != b):
            raise _differs(first)
        return a

    if first.kwargs.keys() != second.kwargs.keys() or len(first.args) != len(second.args):
        raise _differs(first)
    kwargs = {key: merged(value, second.kwargs[key]) for key, value in first.kwargs.items()}
    return replace(first, args=tuple(map(merged, first.args, second.args)), kwargs=kwargs)


def _require_same(tape: Tape, third: Tape) -> None:
    """Raise where a number does not grow in proportion to the batch, but for a constant."""
    _require_same_calls(tape, third)
    for a, b in zip(tape.calls, third.calls, strict=True):
        given = zip(_flat((*a.args, *a.kwargs.values())), _flat((*b.args, *b.kwargs.values())), strict=True)
        for number, value in given:
            if isinstance(number, BatchInt) and number.at(THIRD_BATCH) != value:
                raise _unclear(a, f"{value} for a batch of {THIRD_BATCH}, not {number.at(THIRD_BATCH)}")


def _numbers(values: tuple[Any, ...]) -> Iterator[BatchInt]:
    return (value for value in _flat(values) if isinstance(value, BatchInt))


def _flat(values: tuple[Any, ...]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, Nested):
            yield from _flat(value.items)
        else:
            yield value


def _differs(call: Call) -> InvalidValue:
    return InvalidValue(
        f"model does other things for a batch of {FIRST_BATCH} than for one of {FIRST_BATCH + 1}, at {place_text(call.where)}; "
        "write it for a whole batch at once, without a loop over its samples"
    )


def _unclear(call: Call, found: str) -> InvalidValue:
    return InvalidValue(
        f"model uses a number that depends on the batch size at {place_text(call.where)}, {found}; "
        "only whole numbers that grow with the batch by equal steps can be followed, so divide a tensor by x.shape[0] itself"
    )
