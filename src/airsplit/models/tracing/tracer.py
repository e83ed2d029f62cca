"""Trace a model's forward pass on the meta device, call by call, into a graph.

The model runs as it is, on tensors that have a shape and no values. Its Python may branch on
shapes, types and settings; only a branch on the data itself is an error. A layer of torch.nn is
one call; in every other module each function of torch is one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from airsplit.core.errors import AirsplitError, InvalidValue
from airsplit.models.tracing.costs import CostCounter
from airsplit.models.tracing.graph import Graph
from airsplit.models.tracing.interception import intercept_calls
from airsplit.models.tracing.isolation import RngState
from airsplit.models.tracing.module_stack import is_layer
from airsplit.models.tracing.recorder import Recorder
from airsplit.models.tracing.shape_only import drop_shape_arguments
from airsplit.models.tracing.source_location import (
    describe_current_location,
    first_line,
    format_location,
    is_in_kernel,
    locate_error,
)
from airsplit.models.tracing.tensors import named_tensors
from airsplit.models.tracing.untraceable import DrawsRandomNumbers, format_inputs

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


def trace(
    module: nn.Module, inputs: Sequence[Tensor], model: nn.Module, counter: CostCounter
) -> Graph:
    """Trace one forward pass of `module`, a copy of `model` on the meta device, in its mode."""
    recorder = Recorder(module, model, inputs, counter)
    tracer = _Tracer(module, model, recorder)
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
            f"does it take {format_inputs(inputs)}?"
        ) from error
    finally:
        has_drawn = rng_state.restore()
    if has_drawn:
        raise DrawsRandomNumbers(
            "model draws random numbers of Python or numpy in its forward, "
            "which cannot be traced; use torch.rand"
        )
    return recorder.build_graph(output)


class _Tracer(TorchFunctionMode):
    """Decides what becomes a call of the graph."""

    def __init__(self, module: nn.Module, model: nn.Module, recorder: Recorder) -> None:
        super().__init__()
        self._module = module
        self._recorder = recorder
        # A function in the model may hold the model itself, and call modules that are not copies.
        self._copies = {
            id(submodule): module.get_submodule(path) for path, submodule in model.named_modules()
        }

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
        if self._recorder.is_busy or module is self._module:
            return run(*args, **kwargs)
        modules = self._recorder.modules
        path = modules.next_path(module)
        if path is None:
            return self._handle_unregistered_module(run, module, args, kwargs)

        # Under functional_call a layer has other tensors than its own. Its functions are recorded
        # then, which read the tensors that it really uses.
        if is_layer(module) and self._recorder.values.has_own_tensors(module, path):
            # Nothing inside a layer is recorded, so its functions need not be intercepted. But a
            # layer with submodules may create tensors, which need the mode of torch.device("meta").
            quick: AbstractContextManager[None] = nullcontext()
            if not module._modules:
                quick = torch._C.DisableTorchFunction()
            with modules.enter(path, is_split=True), quick:
                return self._recorder.record(path, run, module, args, kwargs)

        if module._backward_hooks or module._backward_pre_hooks:
            raise InvalidValue(
                f"model has a backward hook on {path}, which a cut through it would lose; "
                "put it on layers of torch.nn"
            )
        # A user's module without submodules is one split, however many functions it calls.
        with modules.enter(path, is_split=not module._modules):
            return run(*args, **kwargs)

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
            return self._recorder.record(module, run, module, args, kwargs, name.lower())
        return run(*args, **kwargs)

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
        if self._recorder.is_busy or is_transformed or is_in_kernel():
            return func(*args, **kwargs)

        name = getattr(func, "__name__", type(func).__name__)
        if name == "__get__":
            # An attribute: x.shape, x.mT, x.requires_grad.
            name = func.__self__.__name__  # type: ignore[attr-defined]
            value = func(*args, **kwargs)
            if name == "requires_grad":
                # Nothing requires gradients on the meta device; say what the model would see.
                return self._recorder.values.requires_grad(args[0])
            if not isinstance(value, Tensor):
                return value
            return self._recorder.record(getattr, getattr, None, (args[0], name), kwargs, name)
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
        # There are no values, except those of constants, which can be computed separately.
        if name in READS_VALUES:
            return self._recorder.evaluate(func, args, kwargs)
        name, func, args, kwargs = drop_shape_arguments(name, func, args, kwargs)
        return self._recorder.record(func, func, None, args, kwargs, name)
