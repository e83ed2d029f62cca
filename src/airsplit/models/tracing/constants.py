"""Values of tensors that are not made of data: a model may look at its masks, tables and settings while it is recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from airsplit.models.tracing.graph import (
    Call,
    ModelTensor,
    Slot,
    TensorSpec,
    get_attribute,
    run_calls,
)

LOWEST_AND_HIGHEST_LOT = (torch.zeros, torch.ones)
"""What torch.rand draws at the least, and never reaches: a comparison that comes out the same for both always does."""


class NotConstant(Exception):
    """A value depends on the data, on parameters, on lots or on state that changes."""


def answer(
    func: Callable[..., Any],
    args: Sequence[Any],
    calls: Sequence[Call],
    metas: Sequence[TensorSpec],
    model: nn.Module,
    inputs: int,
) -> Any:
    """What a function such as bool() says of tensors, given as their places on the graph; raises NotConstant where it cannot be said."""

    def known(value: Any, lot: Callable[..., Tensor]) -> Any:
        return (
            _value(value, calls, metas, model, inputs, lot)
            if isinstance(value, Slot | ModelTensor)
            else value
        )

    with torch.device("cpu"), torch.no_grad():
        lowest, highest = (
            func(*(known(value, lot) for value in args)) for lot in LOWEST_AND_HIGHEST_LOT
        )
    if not np.array_equal(lowest, highest, equal_nan=True):
        raise NotConstant("it draws lots")
    return lowest


def _value(
    wanted: Slot | ModelTensor,
    calls: Sequence[Call],
    metas: Sequence[TensorSpec],
    model: nn.Module,
    inputs: int,
    lot: Callable[..., Tensor],
) -> Tensor:
    needed = _makers(wanted, calls, metas)
    reads = {wanted}.union(*(call.reads for call in needed))
    parameters = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    drawn = any(call.is_random and call.target is not torch.rand for call in needed)
    data = any(
        each.name in parameters if isinstance(each, ModelTensor) else each.number < inputs
        for each in reads
    )
    changing = any(call.is_layer or call.written_state for call in needed)
    if drawn or data or changing:
        raise NotConstant
    known: dict[int, Tensor] = {}
    played = [replace(call, target=lot) if call.target is torch.rand else call for call in needed]
    run_calls(model, played, [()] * len(played), known, 0, torch.device("cpu"))
    return known[wanted.number] if isinstance(wanted, Slot) else get_attribute(model, wanted.name)


def _makers(
    wanted: Slot | ModelTensor, calls: Sequence[Call], metas: Sequence[TensorSpec]
) -> list[Call]:
    """The calls that a value is made by, in order: those that return it, and those that write into its memory."""
    needed, references = list[Call](), {wanted}
    for call in reversed(calls):
        shares = _memory(references, metas) & _memory(call.writes, metas)
        if (
            shares
            or call.writes & references
            or any(Slot(output) in references for output in call.outputs)
        ):
            needed.append(call)
            references |= call.reads
    return needed[::-1]


def _memory(references: Iterable[Slot | ModelTensor], metas: Sequence[TensorSpec]) -> set[int]:
    return {metas[each.number].storage for each in references if isinstance(each, Slot)}
