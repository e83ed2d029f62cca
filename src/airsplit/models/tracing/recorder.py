"""Run the calls of a forward pass on the meta device, and record them in a graph."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from airsplit.core.errors import AirsplitError, InvalidValue
from airsplit.models.tracing.constants import evaluate_constant
from airsplit.models.tracing.costs import CostCounter, MetaCall
from airsplit.models.tracing.graph import Call, CallCosts, Graph, ModelTensor, Reference
from airsplit.models.tracing.module_stack import ModuleStack
from airsplit.models.tracing.source_location import (
    current_location,
    describe_current_location,
    first_line,
)
from airsplit.models.tracing.tensors import list_tensors
from airsplit.models.tracing.untraceable import describe_data_dependence, describe_failed_call
from airsplit.models.tracing.values import Values

# They would leave the meta device; when the graph runs, its tensors are where they belong.
DEVICE_MOVES = {"cpu", "cuda"}


class Recorder:
    """Records one forward pass of `module`, a copy of `model` on the meta device.

    Attributes:
        modules: The modules that are running.
        values: The tensors of the pass.
        is_busy: Whether a recorded call is running: what it calls in turn is part of it.
    """

    def __init__(
        self, module: nn.Module, model: nn.Module, inputs: Sequence[Tensor], counter: CostCounter
    ) -> None:
        self.modules = ModuleStack(module)
        self.values = Values(module, model, inputs)
        self.is_busy = False
        self._module = module
        self._model = model
        self._counter = counter
        self._autocast = _autocast_state()
        self._calls: list[Call] = []
        self._costs: list[CallCosts] = []

    def build_graph(self, output: Any) -> Graph:
        """Return what was recorded, with the output that the model returned."""
        assigned_slots = self.values.find_assigned_slots(self._module)
        output_tensors = self.values.find_references(output)
        if not output_tensors:
            raise InvalidValue(
                "model must return a tensor, or something with tensors in it, "
                f"got {type(output).__name__}"
            )
        parameters = {name for name, _ in self._module.named_parameters()}
        for reference in output_tensors.values():
            if isinstance(reference, ModelTensor) and reference.name in parameters:
                raise InvalidValue(
                    f"model returns its parameter {reference.name} itself, "
                    "which belongs to one side; return a copy of it"
                )
        return Graph(
            input_count=len(self.values.inputs),
            calls=self._calls,
            specs=self.values.specs,
            output=output,
            output_tensors=output_tensors,
            costs=self._costs,
            assigned_slots=assigned_slots,
        )

    def record(
        self,
        target: Callable[..., Any] | str,
        run: Callable[..., Any],
        layer: nn.Module | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        name: str = "",
    ) -> Any:
        """Run a call; record it if it returns or changes a tensor.

        Args:
            target: What the graph calls: a function, or the dotted name of a layer.
            run: Makes the call with these arguments.
            layer: The layer that is called; None for a function.
            name: The name of a function.
        """
        self.is_busy = True
        try:
            tensor_args = list_tensors((args, kwargs))
            # Each write in place raises a tensor's version.
            versions = [tensor._version for tensor in tensor_args]
            # Nothing requires gradients on the meta device: those of the user's model count.
            trained: tuple[nn.Parameter, ...] = ()
            if layer is not None:
                trained = tuple(filter(self.values.requires_grad, layer.parameters()))
            args_require_grad = tuple(map(self.values.requires_grad, tensor_args))
            meta_call = MetaCall(
                name,
                layer,
                run,
                _move_to_meta(args, name),
                _move_to_meta(kwargs),
                args_require_grad,
                trained,
            )
            costs, result = self._run(meta_call, target)

            changed = {
                id(tensor)
                for tensor, version in zip(tensor_args, versions, strict=True)
                if tensor._version != version
            }
            # If out= is a constant, only its copy on the meta device has a new version.
            changed.update(id(tensor) for tensor in list_tensors(kwargs.get("out")))
            leaves, spec = tree_flatten(result)
            if not changed and not any(isinstance(leaf, Tensor) for leaf in leaves):
                return result

            # Encode the arguments before the results get slots: in place they are the same tensors.
            call = self._build_call(
                target, args, kwargs, name, tensor_args, changed, costs.is_random
            )
            outputs = self._add_results(leaves, changed, costs)
            if changed and any(args_require_grad) and call.grad_enabled:
                self.values.require_grad_after_write(
                    [tensor for tensor in tensor_args if id(tensor) in changed]
                )
            self._calls.append(replace(call, outputs=outputs))
            self._costs.append(costs)
            return tree_unflatten(leaves, spec)
        finally:
            self.is_busy = False

    def _run(self, meta_call: MetaCall, target: Callable[..., Any] | str) -> tuple[CallCosts, Any]:
        """Return a call's costs and its result."""
        if meta_call.name in DEVICE_MOVES:
            costs = CallCosts(requires_grad=meta_call.args_require_grad, copied=(frozenset({0}),))
            return costs, meta_call.args[0]
        try:
            return self._counter.run(meta_call)
        except AirsplitError:
            raise
        except Exception as error:
            if meta_call.layer is not None:
                subject = f"layer {target!r} ({type(meta_call.layer).__name__})"
            else:
                name = getattr(target, "__name__", target)
                subject = f"{name} at {describe_current_location()}"
            raise describe_failed_call(
                error, subject, self.values.inputs, training=self._module.training
            ) from error

    def _add_results(
        self, leaves: list[Any], changed: set[int], costs: CallCosts
    ) -> tuple[int, ...]:
        """Give each tensor among the results a slot; a result that has one is replaced.

        Args:
            leaves: The flattened result of a call.
            changed: The arguments that the call changed in place, by id().
        """
        places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        outputs = []
        for place in places:
            tensor = leaves[place]
            if tensor.device.type != "meta":
                tensor = tensor.to("meta")
            # Dropout in evaluation mode returns its argument. Tensors are identified by their id(),
            # so the result must be another object; but a call in place returns the same one.
            if tensor in self.values and id(tensor) not in changed:
                tensor = torch.ops.aten.alias.default(tensor)
            leaves[place] = tensor
        for place, requires_grad in zip(places, costs.requires_grad, strict=True):
            slot = self.values.add(leaves[place], requires_grad=requires_grad)
            outputs.append(slot.number)
        return tuple(outputs)

    def _build_call(
        self,
        target: Callable[..., Any] | str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        name: str,
        tensor_args: list[Tensor],
        changed: set[int],
        is_random: bool,
    ) -> Call:
        # Autocast casts inside functions, by a setting that the calls of a graph do not have.
        if _autocast_state() != self._autocast:
            raise InvalidValue(
                f"model enters torch.autocast at {describe_current_location()}, "
                "which cannot be traced; run the halves under it instead"
            )
        call_name = self.modules.name_call(name)
        writes: set[Reference] = set()
        for tensor in tensor_args:
            if id(tensor) in changed:
                writes.update(self.values.list_written(tensor))
        return Call(
            target,
            tuple(map(self.values.encode, args)),
            {key: self.values.encode(value) for key, value in kwargs.items()},
            outputs=(),
            tensor_args=tuple(map(self.values.encode, tensor_args)),
            writes=frozenset(writes),
            base_name=call_name.base_name,
            name=call_name.name,
            group=call_name.group,
            grad_enabled=torch.is_grad_enabled(),
            is_random=is_random,
            location=current_location(),
        )

    def evaluate(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Return a number from a tensor that does not depend on the data."""
        self.is_busy = True
        try:
            return evaluate_constant(
                functools.partial(func, **kwargs),
                [self.values.encode(value) for value in args],
                self._calls,
                self.values.specs,
                self._model,
                len(self.values.inputs),
            )
        except AirsplitError:
            raise
        except Exception as error:
            detail = first_line(error) if error.args else ""
            raise describe_data_dependence(detail) from error
        finally:
            self.is_busy = False


def _autocast_state() -> tuple[Any, ...]:
    return tuple(
        (torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind))
        for kind in ("cpu", "cuda")
    )


def _move_to_meta(value: Any, name: str = "") -> Any:
    """Return an argument with all tensors and devices on the meta device.

    Args:
        name: The function's or the argument's name: some strings are devices.
    """
    if isinstance(value, Tensor):
        return value if value.device.type == "meta" else value.to("meta")
    if isinstance(value, torch.device) or (isinstance(value, str) and name in ("to", "device")):
        return torch.device("meta")
    if type(value) in (tuple, list):
        return type(value)(_move_to_meta(item, name) for item in value)
    if type(value) is dict:
        return {key: _move_to_meta(item, key) for key, item in value.items()}
    return value
