"""The tensors of one trace: which slot or model tensor each of them is."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence, Set
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from airsplit.core.errors import InvalidValue
from airsplit.models.tracing.graph import (
    DEVICE,
    ModelTensor,
    Nested,
    Reference,
    Slot,
    TensorSpec,
)
from airsplit.models.tracing.source_location import describe_current_location, first_line
from airsplit.models.tracing.tensors import list_tensors, named_tensors, storage_id


class Values:
    """The tensors of one trace of `module`, a copy of `model` on the meta device.

    Tensors are identified by their id(), so every tensor of the trace is kept alive: a new one
    could get the id, or the memory, of one that is gone.

    Attributes:
        specs: Shape, type and memory of the tensor in each slot.
        model_tensors: The tensors of the module when tracing began, by name.
    """

    def __init__(self, module: nn.Module, model: nn.Module, inputs: Sequence[Tensor]) -> None:
        # A function in the model may hold the tensors of the model itself, not those of this copy.
        originals = list(named_tensors(model))
        copies = list(named_tensors(module))
        both = [*originals, *copies]
        trained = {name for name, tensor in originals if tensor.requires_grad}

        self.specs: list[TensorSpec] = []
        self.model_tensors = dict(copies)
        self.inputs = tuple(inputs)
        # Reversed, so that a shared tensor is known by the first of its names.
        self._model_ids = {id(tensor): ModelTensor(name) for name, tensor in reversed(both)}
        self._model_storages = {
            storage_id(tensor): ModelTensor(name) for name, tensor in self.model_tensors.items()
        }
        # Copies require no gradients, so that autograd builds no graph; `requires_grad` is here.
        self._require_grad = {id(tensor) for name, tensor in both if name in trained}
        self._slots: dict[int, Slot] = {}
        self._storages: dict[int, int] = {}
        self._alive: list[Tensor] = []
        for tensor in inputs:
            self.add(tensor, requires_grad=False)

    def add(self, tensor: Tensor, *, requires_grad: bool) -> Slot:
        """Give a tensor a slot.

        Args:
            requires_grad: Whether it depends on a trained parameter.
        """
        slot = Slot(len(self.specs))
        storage = self._storages.setdefault(storage_id(tensor), len(self._storages))
        axes = sorted(range(tensor.dim()), key=tensor.stride().__getitem__, reverse=True)
        shape = tuple(tensor.shape)
        self.specs.append(TensorSpec((shape,), tensor.dtype, storage, requires_grad, tuple(axes)))

        # A function that works in place returns a tensor that has a slot already: from here on it
        # is the new one.
        self._slots[id(tensor)] = slot
        if requires_grad:
            self._require_grad.add(id(tensor))
        else:
            self._require_grad.discard(id(tensor))
        self._alive.append(tensor)
        return slot

    def requires_grad(self, tensor: Tensor) -> bool:
        """Return whether a tensor is a trained parameter or depends on one."""
        return id(tensor) in self._require_grad

    def require_grad_after_write(self, written: Sequence[Tensor]) -> None:
        """Mark all slots in the memory of tensors into which gradients were written.

        A view that was taken before the write has gradients after it, too.
        """
        storages = {
            self._storages.get(storage_id(tensor))
            for tensor in written
            if tensor.is_floating_point()
        }
        for number, spec in enumerate(self.specs):
            if spec.storage in storages:
                self.specs[number] = replace(spec, requires_grad=True)
                self._require_grad.add(id(self._alive[number]))

    def __contains__(self, tensor: Tensor) -> bool:
        return id(tensor) in self._slots or id(tensor) in self._model_ids

    def get_reference(self, tensor: Tensor) -> Reference:
        """Return the slot or model tensor that a tensor is."""
        reference = self._slots.get(id(tensor)) or self._model_ids.get(id(tensor))
        if reference is None:
            raise InvalidValue(
                "model uses a tensor of unknown origin at "
                f"{describe_current_location()}; make it in forward with functions of torch, "
                "or keep it as a buffer"
            )
        return reference

    def find_references(self, output: Any) -> dict[int, Reference]:
        """Return the slots and model tensors in an object of any kind, by the id of the tensor."""
        if not all(tensor in self for tensor in list_tensors(output)):
            raise InvalidValue(
                "model returns a tensor of unknown origin; "
                "make it in forward with functions of torch"
            )
        # list_tensors knows containers; deepcopy finds tensors in the user's own classes, too.
        references: dict[int, Reference] = {**self._model_ids, **self._slots}
        memo = _SearchMemo(references.keys())
        try:
            with torch.device("meta"):
                copy.deepcopy(output, memo)
        except Exception as error:
            raise InvalidValue(
                f"model must return what copy.deepcopy can copy, got {first_line(error)}"
            ) from error
        return {key: references[key] for key in memo.found}

    def has_own_tensors(self, module: nn.Module, path: str) -> bool:
        """Return whether a module has the tensors that it had when tracing began.

        Under torch.func.functional_call it has others.
        """
        own = self.model_tensors
        if module._modules:
            return all(
                own.get(f"{path}.{name}", tensor) is tensor
                for name, tensor in named_tensors(module)
            )
        # The usual case, without named_tensors(), which takes long for a thousand layers.
        registered = (*module._parameters.items(), *module._buffers.items())
        return all(
            tensor is None or own.get(f"{path}.{name}") is tensor for name, tensor in registered
        )

    def find_assigned_slots(self, module: nn.Module) -> dict[str, int]:
        """Return the slots that forward assigned to attributes of modules, by name.

        A new tensor in the place of a buffer is an error: it would be lost, as the halves keep the
        old one.
        """
        # By identity: a tensor that was changed in place is still the same one.
        before = self.model_tensors
        after = dict(named_tensors(module))
        slots: dict[str, int] = {}
        for name in before.keys() | after.keys():
            if after.get(name) is before.get(name):
                continue
            path, _, attribute = name.rpartition(".")
            submodule = module.get_submodule(path)
            if attribute in submodule._buffers or attribute in submodule._parameters:
                raise InvalidValue(
                    f"model replaces its buffer {name} by another tensor; "
                    f"change it in place: {name}.copy_(…)"
                )
            if name in after and after[name] in self:
                reference = self.get_reference(after[name])
                if isinstance(reference, Slot):
                    slots[name] = reference.number
        return slots

    def list_written(self, tensor: Tensor) -> Iterator[Reference]:
        """Yield what changes with a tensor: itself, and the model tensor in the same memory."""
        if tensor.device.type != "meta":
            raise InvalidValue(
                f"model changes a constant in place at {describe_current_location()}, "
                "which cannot be traced; keep it as a buffer"
            )
        yield self.get_reference(tensor)
        model_tensor = self._model_storages.get(storage_id(tensor))
        if model_tensor is not None:
            yield model_tensor

    def encode(self, value: Any) -> Any:
        """Return an argument as the graph stores it, with placeholders."""
        if isinstance(value, Tensor):
            # A tensor with data is a constant of the model's code, and stays as it is.
            if value.device.type != "meta" and value not in self:
                return value
            return self.get_reference(value)
        if isinstance(value, torch.device):
            return DEVICE if value.type == "meta" else value
        if isinstance(value, dict):
            return Nested(dict, tuple(map(self.encode, value.values())), tuple(value))
        if isinstance(value, slice):
            return Nested(slice, tuple(map(self.encode, (value.start, value.stop, value.step))))
        if isinstance(value, tuple):
            return Nested(tuple, tuple(map(self.encode, value)))
        if isinstance(value, list | range):
            return Nested(list, tuple(map(self.encode, value)))
        is_closure = bool(getattr(value, "__closure__", None))
        is_method = isinstance(getattr(value, "__self__", None), nn.Module)
        if isinstance(value, nn.Module) or is_closure or is_method:
            # It may use tensors that are not among the arguments of the call.
            raise InvalidValue(
                "model passes a module or a function of its own to a function at "
                f"{describe_current_location()}, which cannot be traced; "
                "pass tensors instead"
            )
        if isinstance(value, np.generic):
            # A numpy integer may depend on the batch size, and only an int is compared.
            return value.item()
        return value


class _SearchMemo(dict[int, Any]):
    """A memo for deepcopy that notes which objects of given ids it meets, and copies none."""

    def __init__(self, ids: Set[int]) -> None:
        super().__init__()
        self._ids = ids
        self.found = dict[int, None]()

    def get(self, key: int, default: Any = None) -> Any:
        if key not in self._ids:
            return super().get(key, default)
        self.found[key] = None
        # Anything but the default means that the object has been copied already.
        return True
