"""Trace a model's forward pass on the meta device, call by call, into a graph.

The model runs as it is, on tensors that have a shape and no values. Its Python may branch on
shapes, types and settings; only a branch on the data itself is an error. A layer of torch.nn is
one call; in every other module each function of torch is one.
"""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_unflatten

from airsplit.core.errors import AirsplitError, InvalidValue
from airsplit.models.tracing.constants import evaluate_constant
from airsplit.models.tracing.costs import CostCounter, MetaCall
from airsplit.models.tracing.graph import (
    NO_GROUP,
    Call,
    CallCosts,
    Graph,
    ModelTensor,
    Reference,
    Slot,
)
from airsplit.models.tracing.interception import intercept_calls
from airsplit.models.tracing.isolation import RngState
from airsplit.models.tracing.shape_only import drop_shape_arguments
from airsplit.models.tracing.source_location import (
    current_location,
    describe_current_location,
    first_line,
    format_location,
    is_in_kernel,
    locate_error,
)
from airsplit.models.tracing.tensors import list_tensors, named_tensors
from airsplit.models.tracing.values import Values
from airsplit.models.zoo.response_norm import ResponseNorm

# Modules of torch.nn that are traced layer by layer.
CONTAINERS = (
    nn.Sequential,
    nn.ModuleList,
    nn.ModuleDict,
    nn.TransformerEncoder,
    nn.TransformerDecoder,
    nn.Transformer,
    nn.DataParallel,
)

# Functions that return a number or an array instead of a tensor.
READS_VALUES = {
    "__bool__",
    "__int__",
    "__float__",
    "__index__",
    "__complex__",
    "__contains__",
    "item",
    "tolist",
    "is_nonzero",
    "equal",
    "allclose",
    "numpy",
    "__array__",
}
HOOKS = {"register_hook", "register_post_accumulate_grad_hook"}

# They would leave the meta device; when the graph runs, its tensors are where they belong.
DEVICE_MOVES = {"cpu", "cuda"}

# Messages of torch where a kernel needs values that the meta device does not have.
DATA_DEPENDENT = (
    "item() cannot be called on meta",
    "data-independent",
    "data-dependent",
    "data dependent",
)


class DataDependent(InvalidValue):
    """The model's control flow or shapes depend on the values of its data."""


class DrawsRandomNumbers(InvalidValue):
    """Random numbers of Python or numpy were drawn, by the model or by another thread."""


def trace(
    module: nn.Module, inputs: Sequence[Tensor], model: nn.Module, counter: CostCounter
) -> Graph:
    """Trace one forward pass of `module`, a copy of `model` on the meta device, in its mode."""
    tracer = _Tracer(module, model, inputs, counter)
    rng_state = RngState()
    try:
        with intercept_calls(tracer, tracer.handle_module, tracer.handle_function):
            output = module(*inputs)
    except AirsplitError:
        raise
    except Exception as error:
        raise InvalidValue(
            f"model fails at {format_location(locate_error(error))} with "
            f"{type(error).__name__}: {first_line(error)}; "
            f"does it take {_format_inputs(inputs)}?"
        ) from error
    finally:
        has_drawn = rng_state.restore()
    if has_drawn:
        raise DrawsRandomNumbers(
            "model draws random numbers of Python or numpy in its forward, "
            "which cannot be traced; use torch.rand"
        )
    return tracer.build_graph(output)


def is_layer(module: nn.Module) -> bool:
    """Return whether a module is traced as one call.

    It is if its forward is one of torch.nn, as in a subclass that only adds settings; containers
    are not.
    """
    if isinstance(module, torch.jit.ScriptModule | ResponseNorm):
        return True
    forward_module = getattr(type(module).forward, "__module__", "")
    has_torch_forward = forward_module.startswith(("torch.nn.", "torch.ao.nn."))
    return has_torch_forward and not isinstance(module, CONTAINERS)


@dataclass
class _Frame:
    """A module whose forward is running.

    Attributes:
        split_name: Set if all calls in it make one split.
    """

    path: str
    split_name: str | None
    group: int


class _Tracer(TorchFunctionMode):
    def __init__(
        self, module: nn.Module, model: nn.Module, inputs: Sequence[Tensor], counter: CostCounter
    ) -> None:
        super().__init__()
        self._module = module
        self._model = model
        self._counter = counter
        self._paths = defaultdict[int, list[str]](list)
        for path, submodule in module.named_modules(remove_duplicate=False):
            self._paths[id(submodule)].append(path)
        # A function in the model may hold the model itself, and call modules that are not copies.
        self._copies = {
            id(submodule): module.get_submodule(path) for path, submodule in model.named_modules()
        }
        self._values = Values(module, model, inputs)
        self._autocast = _autocast_state()
        self._module_calls = Counter[int]()
        self._calls: list[Call] = []
        self._costs: list[CallCosts] = []
        # The model itself is the outermost frame, and its names have no prefix.
        self._frames = [_Frame("", None, NO_GROUP)]
        self._name_uses = Counter[str]()
        # Set while a recorded call runs: what it calls in turn is part of it.
        self._is_paused = False

    def build_graph(self, output: Any) -> Graph:
        """Return what was traced, with the output that the model returned."""
        assigned_slots = self._find_assigned_slots()
        output_tensors = self._values.find_references(output)
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
            input_count=len(self._values.inputs),
            calls=self._calls,
            specs=self._values.specs,
            output=output,
            output_tensors=output_tensors,
            costs=self._costs,
            assigned_slots=assigned_slots,
        )

    def _find_assigned_slots(self) -> dict[str, int]:
        """Return the slots that forward assigned to attributes of modules, by name.

        A new tensor in the place of a buffer is an error: it would be lost, as the halves keep the
        old one.
        """
        # By identity: a tensor that was changed in place is still the same one.
        before = self._values.model_tensors
        after = dict(named_tensors(self._module))
        slots: dict[str, int] = {}
        for name in before.keys() | after.keys():
            if after.get(name) is before.get(name):
                continue
            path, _, attribute = name.rpartition(".")
            submodule = self._module.get_submodule(path)
            if attribute in submodule._buffers or attribute in submodule._parameters:
                raise InvalidValue(
                    f"model replaces its buffer {name} by another tensor; "
                    f"change it in place: {name}.copy_(…)"
                )
            if name in after and after[name] in self._values:
                reference = self._values.get_reference(after[name])
                if isinstance(reference, Slot):
                    slots[name] = reference.number
        return slots

    def handle_module(
        self,
        call: Callable[..., Any],
        module: nn.Module,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Run a module: a layer as one call, others call by call."""
        module = self._copies.get(id(module), module)
        run = functools.partial(call, module)
        if self._is_paused or module is self._module:
            return run(*args, **kwargs)
        if not self._paths[id(module)]:
            return self._handle_unregistered_module(run, module, args, kwargs)

        # A module with several names has another of them at each call, as if they were several.
        paths = self._paths[id(module)]
        path = paths[self._module_calls[id(module)] % len(paths)]
        self._module_calls[id(module)] += 1

        if is_layer(module) and self._has_own_tensors(module, path):
            # Nothing inside a layer is recorded, so its functions need not be intercepted. But a
            # layer with submodules may create tensors, which need the mode of torch.device("meta").
            quick: AbstractContextManager[None] = nullcontext()
            if not module._modules:
                quick = torch._C.DisableTorchFunction()
            with self._enter_frame(path, self._unique_name(path)), quick:
                return self._record(path, run, module, args, kwargs)

        if module._backward_hooks or module._backward_pre_hooks:
            raise InvalidValue(
                f"model has a backward hook on {path}, which a cut through it would lose; "
                "put it on layers of torch.nn"
            )
        # A user's module without submodules is one split, however many functions it calls.
        split_name = None
        if not module._modules:
            split_name = self._unique_name(path)
        with self._enter_frame(path, split_name):
            return run(*args, **kwargs)

    def _has_own_tensors(self, module: nn.Module, path: str) -> bool:
        """Return whether a layer has its own tensors, and not others as under functional_call.

        With others, the functions in it are recorded, which read the tensors that it really uses.
        """
        own = self._values.model_tensors
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

    def _handle_unregistered_module(
        self,
        run: Callable[..., Any],
        module: nn.Module,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Run a module that forward creates, such as nn.ReLU(), as a function."""
        name = type(module).__name__
        if next(named_tensors(module), None) is not None:
            raise InvalidValue(
                f"model creates a {name} with tensors of its own in forward, at "
                f"{describe_current_location()}; create it in __init__"
            )
        if is_layer(module):
            return self._record(module, run, module, args, kwargs, name.lower())
        return run(*args, **kwargs)

    @contextmanager
    def _enter_frame(self, path: str, split_name: str | None) -> Iterator[None]:
        group = len(self._calls)
        outer = self._frames[-1]
        # What is inside a module that is one split belongs to that split.
        if outer.split_name is not None:
            split_name = outer.split_name
            group = outer.group
        self._frames.append(_Frame(path, split_name, group))
        try:
            yield
        finally:
            self._frames.pop()

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        return self.handle_function(func, args, kwargs or {})

    def handle_function(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        # Under a transform such as vmap tensors are wrappers, which have no slots.
        is_transformed = torch._C._functorch.maybe_current_level() is not None
        if self._is_paused or is_transformed or is_in_kernel():
            return func(*args, **kwargs)

        name = getattr(func, "__name__", type(func).__name__)
        if name == "__get__":
            # An attribute: x.shape, x.mT, x.requires_grad.
            name = func.__self__.__name__  # type: ignore[attr-defined]
            value = func(*args, **kwargs)
            if name == "requires_grad":
                # Nothing requires gradients on the meta device; say what the model would see.
                return self._values.requires_grad(args[0])
            if not isinstance(value, Tensor):
                return value
            return self._record(getattr, getattr, None, (args[0], name), kwargs, name)
        if name == "__set__":
            name = func.__self__.__name__  # type: ignore[attr-defined]
            if name in ("requires_grad", "grad"):
                return func(*args)
            raise InvalidValue(
                f"model assigns to a tensor's {name} at {describe_current_location()}, "
                "which cannot be traced; change it in place: x.copy_(…)"
            )
        if name in HOOKS:
            raise InvalidValue(
                f"model registers a hook on a tensor at {describe_current_location()}, "
                "which a cut would lose; use a torch.autograd.Function"
            )
        # There are no values, unless those of a constant can be computed apart.
        if name in READS_VALUES:
            return self._evaluate(func, args, kwargs)
        name, func, args, kwargs = drop_shape_arguments(name, func, args, kwargs)
        return self._record(func, func, None, args, kwargs, name)

    def _record(
        self,
        target: Callable[..., Any] | str,
        run: Callable[..., Any],
        layer: nn.Module | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        name: str = "",
    ) -> Any:
        """Run a call; record it if it returns or changes a tensor."""
        self._is_paused = True
        try:
            tensor_args = list_tensors((args, kwargs))
            versions = [tensor._version for tensor in tensor_args]
            # Nothing requires gradients on the meta device: those of the user's model count.
            trained: tuple[nn.Parameter, ...] = ()
            if layer is not None:
                trained = tuple(filter(self._values.requires_grad, layer.parameters()))
            args_require_grad = tuple(map(self._values.requires_grad, tensor_args))
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
            leaves = [
                self._make_distinct(leaf, changed) if isinstance(leaf, Tensor) else leaf
                for leaf in leaves
            ]
            results = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
            outputs = tuple(
                self._values.add(tensor, requires_grad=requires_grad).number
                for tensor, requires_grad in zip(results, costs.requires_grad, strict=True)
            )
            if changed and any(args_require_grad) and call.grad_enabled:
                self._values.require_grad_after_write(
                    [tensor for tensor in tensor_args if id(tensor) in changed]
                )
            self._calls.append(replace(call, outputs=outputs))
            self._costs.append(costs)
            return tree_unflatten(leaves, spec)
        finally:
            self._is_paused = False

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
            raise self._call_error(error, target, meta_call.layer) from error

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
        frame = self._frames[-1]
        base_name = name.strip("_") or "function"
        if frame.path:
            base_name = f"{frame.path}.{base_name}"
        if frame.split_name is not None:
            split_name = frame.split_name
            group = frame.group
        else:
            split_name = self._unique_name(base_name)
            group = NO_GROUP

        writes: set[Reference] = set()
        for tensor in tensor_args:
            if id(tensor) in changed:
                writes.update(self._values.list_written(tensor))
        return Call(
            target,
            tuple(map(self._values.encode, args)),
            {key: self._values.encode(value) for key, value in kwargs.items()},
            outputs=(),
            tensor_args=tuple(map(self._values.encode, tensor_args)),
            writes=frozenset(writes),
            base_name=base_name,
            name=split_name,
            group=group,
            grad_enabled=torch.is_grad_enabled(),
            is_random=is_random,
            location=current_location(),
        )

    def _make_distinct(self, tensor: Tensor, changed: set[int]) -> Tensor:
        """Return an alias of a result that is an argument, untouched, and needs a slot of its own.

        Dropout in evaluation mode returns such a result.
        """
        if tensor.device.type != "meta":
            tensor = tensor.to("meta")
        if tensor in self._values and id(tensor) not in changed:
            tensor = torch.ops.aten.alias.default(tensor)
        return tensor

    def _unique_name(self, name: str) -> str:
        """Return a name, with a number from its second use on."""
        unique = name
        while unique in self._name_uses:
            unique = f"{name}_{self._name_uses[name]}"
            self._name_uses[name] += 1
        self._name_uses[unique] = 1
        return unique

    def _evaluate(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Return a number from a tensor that does not depend on the data."""
        self._is_paused = True
        try:
            return evaluate_constant(
                functools.partial(func, **kwargs),
                [self._values.encode(value) for value in args],
                self._calls,
                self._values.specs,
                self._model,
                len(self._values.inputs),
            )
        except AirsplitError:
            raise
        except Exception as error:
            detail = first_line(error) if error.args else ""
            raise self._data_dependent(detail) from error
        finally:
            self._is_paused = False

    def _data_dependent(self, detail: str = "") -> DataDependent:
        if detail:
            detail = f": {detail}"
        return DataDependent(
            f"model depends on the values of its data at {describe_current_location()}{detail}, "
            "but the work of each split must be known before there are any; "
            "use torch.where instead of a branch and fixed sizes, "
            "or take the decision out of forward"
        )

    def _call_error(
        self, error: Exception, target: Callable[..., Any] | str, layer: nn.Module | None
    ) -> InvalidValue:
        message = first_line(error)
        # Torch has no exception type for this.
        is_kernel_error = isinstance(error, RuntimeError | NotImplementedError)
        if is_kernel_error and any(sign in message for sign in DATA_DEPENDENT):
            return self._data_dependent()
        if layer is not None:
            subject = f"layer {target!r} ({type(layer).__name__})"
        else:
            subject = f"{getattr(target, '__name__', target)} at {describe_current_location()}"
        mode = "training" if self._module.training else "evaluation"
        return InvalidValue(
            f"{_format_inputs(self._values.inputs)} must suit the model, "
            f"but in {mode} mode {subject} fails: {message}; "
            "give another shape, such as --input 3x32x32, or in Python a sample as inputs="
        )


def _format_inputs(inputs: Sequence[Tensor]) -> str:
    """Return shape and type of the model's inputs, without the batch axis.

    >>> _format_inputs([torch.zeros(2, 3, 8, 8)])
    'input_shape (3, 8, 8) of torch.float32'
    """
    return "input_shape " + " and ".join(
        f"{tuple(tensor.shape[1:])} of {tensor.dtype}" for tensor in inputs
    )


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
