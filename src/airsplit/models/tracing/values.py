"""Ledger: which tensor is which while a model is recorded - its inputs and results by number, what it holds by name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from airsplit.core.errors import InvalidValue
from airsplit.models.tracing.graph import DEVICE, ModelTensor, Nested, Slot, TensorSpec, storage_of
from airsplit.models.tracing.source_location import describe_current_location


class Values:
    """The tensors of one recording of `module`, a copy of `model` on the meta device.

    metas  what is known of each slot
    held   the tensors that the module holds, by name
    """

    def __init__(self, module: nn.Module, model: nn.Module, inputs: Sequence[Tensor]) -> None:
        # a function in the model may hold on to the model itself, not to this copy of it
        of_model, of_module = list(held_tensors(model)), list(held_tensors(module))
        both = [*of_model, *of_module]
        trained = {name for name, tensor in of_model if tensor.requires_grad}
        self.metas: list[TensorSpec] = []
        self.held = dict(of_module)
        self.inputs = tuple(inputs)
        self._state = {id(tensor): ModelTensor(name) for name, tensor in reversed(both)}
        self._state_in = {
            storage_of(tensor): ModelTensor(name) for name, tensor in self.held.items()
        }
        self._trained = {id(tensor) for name, tensor in both if name in trained}
        self._slots: dict[int, Slot] = {}
        self._storages: dict[int, int] = {}
        self._alive: list[Tensor] = []  # a tensor's id must stay its own
        for tensor in inputs:
            self.enter(tensor, flows=False)

    # ---- tensors ---------------------------------------------------------------------------------------------------------
    def enter(self, tensor: Tensor, flows: bool) -> Slot:
        """A slot for a result; `flows`: it leads to a parameter that is trained."""
        slot = Slot(len(self.metas))
        storage = self._storages.setdefault(storage_of(tensor), len(self._storages))
        order = tuple(sorted(range(tensor.dim()), key=tensor.stride().__getitem__, reverse=True))
        self.metas.append(TensorSpec((tuple(tensor.shape),), tensor.dtype, storage, flows, order))
        (self._trained.add if flows else self._trained.discard)(id(tensor))
        self._slots[id(tensor)] = slot
        self._alive.append(tensor)
        return slot

    def flows(self, tensor: Tensor) -> bool:
        """Whether it leads to a parameter that is trained, or is one."""
        return id(tensor) in self._trained

    def let_flow(self, changed: Sequence[Tensor]) -> None:
        """Gradients flow through whatever shares memory with a tensor into which something was written that has them."""
        storages = {
            self._storages.get(storage_of(tensor))
            for tensor in changed
            if tensor.is_floating_point()
        }
        for number, meta in enumerate(self.metas):
            if meta.storage in storages:
                self.metas[number] = replace(meta, requires_grad=True)
                self._trained.add(id(self._alive[number]))

    def knows(self, tensor: Tensor) -> bool:
        return id(tensor) in self._slots or id(tensor) in self._state

    def reference(self, tensor: Tensor) -> Slot | ModelTensor:
        found = self._slots.get(id(tensor)) or self._state.get(id(tensor))
        if found is None:
            hint = "make it in forward with functions of torch, or keep it as a buffer"
            raise InvalidValue(
                f"model uses a tensor of unknown origin at {describe_current_location()}; {hint}"
            )
        return found

    def by_id(self) -> dict[int, Slot | ModelTensor]:
        """Every tensor that is known, by its id."""
        return {**self._state, **self._slots}

    def changed_with(self, tensor: Tensor) -> Iterator[Slot | ModelTensor]:
        """What changes with a tensor: itself, and what the model holds in the same memory."""
        if tensor.device.type != "meta":
            raise InvalidValue(
                f"model changes a constant in place at {describe_current_location()}, which cannot be followed; keep it as a buffer"
            )
        yield self.reference(tensor)
        held = self._state_in.get(storage_of(tensor))
        if held is not None:
            yield held

    # ---- values ----------------------------------------------------------------------------------------------------------
    def written(self, value: Any) -> Any:
        """A value as the graph writes it."""
        if isinstance(value, Tensor):
            constant = not self.knows(value) and value.device.type != "meta"  # of the model's code
            return value if constant else self.reference(value)
        if isinstance(value, torch.device):
            return DEVICE if value.type == "meta" else value
        if isinstance(value, tuple | list | dict | slice | range):
            return self._nested(value)
        if (
            isinstance(value, nn.Module)
            or getattr(value, "__closure__", None)
            or isinstance(getattr(value, "__self__", None), nn.Module)
        ):
            why = "which cannot be followed; give it tensors instead"
            raise InvalidValue(
                f"model gives a module or a function of its own to a function at {describe_current_location()}, {why}"
            )
        return value.item() if isinstance(value, np.generic) else value

    def _nested(self, value: Any) -> Nested:
        if isinstance(value, dict):
            return Nested(dict, tuple(map(self.written, value.values())), tuple(value))
        if isinstance(value, slice):
            return Nested(slice, tuple(map(self.written, (value.start, value.stop, value.step))))
        return Nested(tuple if isinstance(value, tuple) else list, tuple(map(self.written, value)))


def held_tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Every tensor that a module holds, by its dotted name: parameters, buffers, and plain attributes."""
    for path, part in module.named_modules(remove_duplicate=False):
        held = {**part._parameters, **part._buffers, **vars(part)}
        yield from (
            (f"{path}.{name}".lstrip("."), value)
            for name, value in held.items()
            if isinstance(value, Tensor)
        )
