"""Run the calls of a traced graph on real tensors."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from airsplit.core.plugins import note_place
from airsplit.models.tracing.graph import (
    DEVICE,
    BatchInt,
    Call,
    Graph,
    ModelTensor,
    Nested,
    Reference,
    Slot,
)
from airsplit.models.tracing.tensors import list_tensors


def find_dead_slots(calls: Sequence[Call], live_slots: Iterable[int]) -> list[tuple[int, ...]]:
    """Return for each call the slots that are dead after it.

    Args:
        live_slots: The slots that are needed after the last call.
    """
    live = set(live_slots)
    dead = []
    for call in reversed(calls):
        touched = {*call.outputs, *call.read_slots}
        dead.append(tuple(touched - live))
        live |= touched
    return dead[::-1]


def run_calls(
    root: nn.Module,
    calls: Sequence[Call],
    dead_slots: Sequence[tuple[int, ...]],
    tensors: dict[int, Tensor],
    batch: int,
    device: torch.device,
) -> None:
    """Run calls in order.

    Args:
        root: Holds the layers and tensors that the calls name.
        dead_slots: For each call, the slots to free after it.
        tensors: The tensor of each slot that the calls need. Results are added, dead slots removed.
        batch: The batch size, for integers that depend on it.
        device: Where the calls create tensors.
    """

    def decode(value: Any) -> Any:
        # This runs for each argument of each training step: type() is quicker than isinstance().
        kind = type(value)
        if kind is Slot:
            return tensors[value.number]
        if kind is Nested:
            return value.rebuild(map(decode, value.items))
        if kind is ModelTensor:
            return get_attribute(root, value.name)
        if kind is BatchInt:
            return value.at(batch)
        return device if value is DEVICE else value

    try:
        for call, dead in zip(calls, dead_slots, strict=True):
            run: Any = call.target
            if isinstance(run, str):
                run = get_attribute(root, run)
            args = map(decode, call.args)
            kwargs = {key: decode(value) for key, value in call.kwargs.items()}
            if call.grad_enabled:
                result = run(*args, **kwargs)
            else:
                with torch.no_grad():
                    result = run(*args, **kwargs)

            if isinstance(result, Tensor):
                tensors[call.outputs[0]] = result
            elif call.outputs:
                tensors.update(zip(call.outputs, list_tensors(result), strict=True))

            # A local variable would keep the tensors alive until the next call has run.
            del args, kwargs, result
            for slot in dead:
                del tensors[slot]
    except Exception as error:
        # The model's own forward is not on the stack: only the call knows the user's line.
        note_place(error, *call.location)
        raise


def build_output(graph: Graph, root: nn.Module, tensors: Mapping[int, Tensor]) -> Any:
    """Return the model's output, of the type that the model returned, with these tensors in it."""
    memo: dict[int, Any] = {}
    for key, reference in graph.output_tensors.items():
        memo[key] = get_tensor(reference, root, tensors)
    if isinstance(graph.output, Tensor):
        return memo[id(graph.output)]
    # deepcopy takes objects in its memo for copied, so it puts ours in place of the traced ones.
    return copy.deepcopy(graph.output, memo)


def get_tensor(reference: Reference, root: nn.Module, tensors: Mapping[int, Tensor]) -> Tensor:
    """Return the tensor of a slot, or of the model."""
    if isinstance(reference, Slot):
        return tensors[reference.number]
    return get_attribute(root, reference.name)  # type: ignore[no-any-return]


def get_attribute(root: nn.Module, path: str) -> Any:
    """Return the module or tensor with a dotted name."""
    *modules, last = path.split(".")
    parent: Any = root
    for name in modules:
        # Quicker than getattr, which looks in four places.
        parent = parent._modules[name]
    if last in parent._modules:
        return parent._modules[last]
    return getattr(parent, last)
