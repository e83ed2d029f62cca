"""Evaluate tensors that do not depend on the data.

While it is traced, a model may still read the values of its masks, tables and settings: they are
computed from the calls that made them, on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from airsplit.models.tracing.graph import Call, ModelTensor, Reference, Slot, TensorSpec
from airsplit.models.tracing.interpreter import get_tensor, run_calls

# The smallest value that torch.rand draws, and a bound that it never reaches. A comparison with
# the same result for both has it for all draws: `torch.rand([]) < 0.0` is constant.
RAND_BOUNDS = (torch.zeros, torch.ones)


class NotConstant(Exception):
    """A value depends on data, parameters, random numbers or state that changes."""


def evaluate_constant(
    func: Callable[..., Any],
    args: Sequence[Any],
    calls: Sequence[Call],
    specs: Sequence[TensorSpec],
    model: nn.Module,
    input_count: int,
) -> Any:
    """Return the result of a function such as bool() on tensors that are constant.

    Args:
        args: Its arguments, with tensors as slots or model tensors.
        calls: All calls so far.
        input_count: The first slots hold data.

    Raises:
        NotConstant: The result cannot be known before there is data.
    """
    results = []
    with torch.device("cpu"), torch.no_grad():
        for bound in RAND_BOUNDS:
            values = list(args)
            for place, arg in enumerate(args):
                if isinstance(arg, Reference):
                    values[place] = _evaluate_tensor(arg, calls, specs, model, input_count, bound)
            results.append(func(*values))

    lowest, highest = results
    if not np.array_equal(lowest, highest, equal_nan=True):
        raise NotConstant("it draws random numbers")
    return lowest


def _evaluate_tensor(
    reference: Reference,
    calls: Sequence[Call],
    specs: Sequence[TensorSpec],
    model: nn.Module,
    input_count: int,
    rand: Callable[..., Tensor],
) -> Tensor:
    """Return a constant tensor, with `rand` in place of torch.rand."""
    needed = list_producers(reference, calls, specs)
    reads = {reference}.union(*(call.reads for call in needed))
    variable: set[Reference] = {Slot(number) for number in range(input_count)}
    for name, _ in model.named_parameters(remove_duplicate=False):
        variable.add(ModelTensor(name))
    draws = any(call.is_random and call.target is not torch.rand for call in needed)
    # A layer may have state, and running it here would change that of the user's model.
    changes_state = any(call.is_layer or call.written_state for call in needed)
    if not reads.isdisjoint(variable) or draws or changes_state:
        raise NotConstant

    tensors: dict[int, Tensor] = {}
    calls_to_run = [
        replace(call, target=rand) if call.target is torch.rand else call for call in needed
    ]
    # These calls are few and run once: no slot is freed.
    dead_slots: list[tuple[int, ...]] = [()] * len(needed)
    run_calls(model, calls_to_run, dead_slots, tensors, 0, torch.device("cpu"))
    return get_tensor(reference, model, tensors)


def list_producers(
    reference: Reference, calls: Sequence[Call], specs: Sequence[TensorSpec]
) -> list[Call]:
    """Return the calls that a tensor depends on, in order.

    Besides the call that returns it, and those which that needs, these are all that write into its
    memory, perhaps through a view.
    """
    needed: list[Call] = []
    references = {reference}
    for call in reversed(calls):
        shared = _storages(references, specs) & _storages(call.writes, specs)
        returns = any(Slot(output) in references for output in call.outputs)
        if shared or returns or call.writes & references:
            needed.append(call)
            references |= call.reads
    return needed[::-1]


def _storages(references: Iterable[Reference], specs: Sequence[TensorSpec]) -> set[int]:
    return {specs[ref.number].storage for ref in references if isinstance(ref, Slot)}
