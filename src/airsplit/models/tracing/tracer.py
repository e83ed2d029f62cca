"""Recording a model's forward pass on the meta device, call by call, as a Tape.

The model runs as it is, on tensors that have a shape and no values: its Python may branch on shapes, types and settings, and
only a branch on the data itself is an error.  Layers of torch.nn are recorded as they are called; in every other module,
each function of torch.
"""

from __future__ import annotations

import copy
import functools
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_unflatten
from torch.utils.checkpoint import CheckpointFunction

from airsplit.core.errors import AirsplitError, InvalidValue
from airsplit.models.costs import CostCounter, Made
from airsplit.models.tracing.constants import answer
from airsplit.models.tracing.graph import (
    ALONE,
    Call,
    CallCosts,
    Graph,
    ModelTensor,
    Slot,
    tensors_in,
)
from airsplit.models.tracing.isolation import RngState, on_the_meta_device
from airsplit.models.tracing.shape_only import without_values
from airsplit.models.tracing.source_location import (
    current_location,
    describe_current_location,
    first_line,
    format_location,
    is_in_kernel,
    locate_error,
)
from airsplit.models.tracing.values import Values, held_tensors
from airsplit.models.zoo.response_norm import ResponseNorm

CONTAINERS = (
    nn.Sequential,
    nn.ModuleList,
    nn.ModuleDict,
    nn.TransformerEncoder,
    nn.TransformerDecoder,
    nn.Transformer,
    nn.DataParallel,
)
"""Modules of torch.nn that are recorded layer by layer."""

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
}
READS_VALUES |= {"equal", "allclose", "numpy", "__array__"}
HOOKS = {"register_hook", "register_post_accumulate_grad_hook"}
DATA_DEPENDENT = (
    "item() cannot be called on meta",
    "data-independent",
    "data-dependent",
    "data dependent",
)
SAME_ELSEWHERE = {"cpu", "cuda"}


class ChangedByData(InvalidValue):
    """The model's control flow or shapes depend on the values of its data."""


class DrawsNumbers(InvalidValue):
    """Random numbers of Python or numpy were drawn: by the model or, by chance, by another thread."""


def trace(
    module: nn.Module, inputs: Sequence[Tensor], model: nn.Module, bench: CostCounter
) -> Graph:
    """Record one forward pass of `module`, a copy of `model` on the meta device, as it stands: in its mode, for these inputs."""
    recorder, lots = _Tracer(module, model, inputs, bench), RngState()
    try:
        with recorder.listening():
            output = module(*inputs)
    except AirsplitError:
        raise
    except Exception as error:
        told = f"{type(error).__name__}: {first_line(error)}; does it take {_told(inputs)}?"
        raise InvalidValue(
            f"model fails at {format_location(locate_error(error))} with {told}"
        ) from error
    finally:
        drawn = lots.drawn()
    if drawn:
        raise DrawsNumbers(
            "model draws random numbers of Python or numpy in its forward, which cannot be followed; use torch.rand"
        )
    return recorder.graph(output)


@dataclass
class _Frame:
    """A module whose forward is running."""

    path: str
    row: str | None  # set where the whole module is one row
    group: int


class _Tracer(TorchFunctionMode):
    def __init__(
        self, module: nn.Module, model: nn.Module, inputs: Sequence[Tensor], bench: CostCounter
    ) -> None:
        super().__init__()
        self._module, self._model, self._bench = module, model, bench
        self._paths = defaultdict[int, list[str]](list)
        for path, part in module.named_modules(remove_duplicate=False):
            self._paths[id(part)].append(path)
        self._times = Counter[int]()
        # a function in the model may hold on to the model itself, not to this copy of it
        self._twins = {id(part): module.get_submodule(path) for path, part in model.named_modules()}
        self._ledger = Values(module, model, inputs)
        self._autocast = _autocast()
        self._calls: list[Call] = []
        self._work: list[CallCosts] = []
        self._frames: list[_Frame] = []
        self._names = Counter[str]()
        self._paused = False

    # ---- set-up ----------------------------------------------------------------------------------------------------------
    @contextmanager
    def listening(self) -> Iterator[None]:
        """Layers, functions and custom gradients come to this recorder; tensors are made on the meta device."""
        plain_call, plain_apply = (
            nn.Module.__call__,
            vars(torch.autograd.Function)["apply"].__func__,
        )
        plain_script, here = vars(torch.jit.ScriptFunction)["__call__"], threading.get_ident()

        def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != here:
                return plain_call(module, *args, **kwargs)
            module = self._twins.get(id(module), module)
            return self._on_module(functools.partial(plain_call, module), module, args, kwargs)

        def apply(function: type, *args: Any, **kwargs: Any) -> Any:
            original = functools.update_wrapper(
                functools.partial(plain_apply, function), function, updated=()
            )
            if threading.get_ident() != here:
                return original(*args, **kwargs)
            if (
                function is CheckpointFunction
            ):  # runs a part of the model again to save memory; here it runs once
                return args[0](*args[2:])
            return self._on_function(original, args, kwargs)

        def script(function: Any, *args: Any, **kwargs: Any) -> Any:
            original = functools.partial(plain_script, function)
            original.__name__ = function.name  # type: ignore[attr-defined]
            return (
                original(*args, **kwargs)
                if threading.get_ident() != here
                else self._on_function(original, args, kwargs)
            )

        with (
            patch.object(nn.Module, "__call__", call),
            patch.object(torch.autograd.Function, "apply", classmethod(apply)),
            patch.object(torch.jit.ScriptFunction, "__call__", script),
            on_the_meta_device(),
            self,
        ):
            yield

    def graph(self, output: Any) -> Graph:
        """What was recorded, with the output that the model returned."""
        left = self._left_behind()
        if not all(map(self._ledger.knows, tensors_in(output))):
            raise InvalidValue(
                "model returns a tensor of unknown origin; make it in forward with functions of torch"
            )
        known = self._ledger.by_id()
        try:
            with torch.device("meta"):
                results = {key: known[key] for key in _inside(output, known.keys())}
        except Exception as error:
            raise InvalidValue(
                f"model must return what copy.deepcopy can copy, got {first_line(error)}"
            ) from error
        parameters = {name for name, _ in self._module.named_parameters()}
        for reference in results.values():
            if isinstance(reference, ModelTensor) and reference.name in parameters:
                raise InvalidValue(
                    f"model returns its parameter {reference.name} itself, which belongs to one side; return a copy of it"
                )
        if not results:
            raise InvalidValue(
                f"model must return a tensor, or something with tensors in it, got {type(output).__name__}"
            )
        return Graph(
            len(self._ledger.inputs),
            self._calls,
            self._ledger.metas,
            output,
            results,
            self._work,
            left,
        )

    def _left_behind(self) -> dict[str, int]:
        """The slots that forward left in the modules, by name; raises where one is in the place of a buffer: it would be lost."""
        before, now, left = self._ledger.held, dict(held_tensors(self._module)), dict[str, int]()
        for name in (
            name for name in before.keys() | now.keys() if now.get(name) is not before.get(name)
        ):
            *path, last = name.split(".")
            part = self._module.get_submodule(".".join(path))
            if last in part._buffers or last in part._parameters:
                raise InvalidValue(
                    f"model puts another tensor in the place of its buffer {name}; change it in place: {name}.copy_(…)"
                )
            if name in now and self._ledger.knows(now[name]):
                reference = self._ledger.reference(now[name])
                left |= {name: reference.number} if isinstance(reference, Slot) else {}
        return left

    # ---- modules ---------------------------------------------------------------------------------------------------------
    def _on_module(
        self,
        run: Callable[..., Any],
        module: nn.Module,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        if self._paused or module is self._module:
            return run(*args, **kwargs)
        if not self._paths[id(module)]:
            return self._on_loose_module(run, module, args, kwargs)
        path = self._path(module)
        if is_layer(module) and self._holds_its_own(module, path):
            # nothing inside it is recorded, so nothing need be intercepted; what has parts may make tensors by itself
            quick = nullcontext() if module._modules else torch._C.DisableTorchFunction()
            with self._inside(path, self._unique(path)), quick:
                return self._make(path, run, module, args, kwargs)
        if module._backward_hooks or module._backward_pre_hooks:
            raise InvalidValue(
                f"model has a backward hook on {path}, which a cut through it would lose; put it on layers of torch.nn"
            )
        whole = not module._modules
        with self._inside(path, self._unique(path) if whole else None):
            return run(*args, **kwargs)

    def _holds_its_own(self, module: nn.Module, path: str) -> bool:
        """Whether a layer has the tensors that belong to it, and not others for the time being, as under functional_call."""
        if module._modules:
            return all(
                self._ledger.held.get(f"{path}.{name}", tensor) is tensor
                for name, tensor in held_tensors(module)
            )
        registered = (*module._parameters.items(), *module._buffers.items())
        return all(
            tensor is None or self._ledger.held.get(f"{path}.{name}") is tensor
            for name, tensor in registered
        )

    def _path(self, module: nn.Module) -> str:
        """The name of a module; of one with several names, another at each call."""
        names = self._paths[id(module)]
        self._times[id(module)] += 1
        return names[(self._times[id(module)] - 1) % len(names)]

    def _on_loose_module(
        self,
        run: Callable[..., Any],
        module: nn.Module,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """A module that is not part of the model, such as nn.ReLU() made in its forward: a function, if it holds nothing."""
        name = type(module).__name__
        if any(True for _ in held_tensors(module)):
            hint = "make it in __init__, so that it is kept"
            raise InvalidValue(
                f"model makes a {name} with tensors of its own in its forward, at {describe_current_location()}; {hint}"
            )
        return (
            self._make(module, run, module, args, kwargs, name.lower())
            if is_layer(module)
            else run(*args, **kwargs)
        )

    @contextmanager
    def _inside(self, path: str, row: str | None) -> Iterator[None]:
        outer = self._frames[-1] if self._frames else None
        if outer is not None and outer.row is not None:
            row, group = outer.row, outer.group
        else:
            group = len(self._calls)
        self._frames.append(_Frame(path, row, group))
        try:
            yield
        finally:
            self._frames.pop()

    # ---- functions -------------------------------------------------------------------------------------------------------
    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        return self._on_function(func, args, kwargs or {})

    def _on_function(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if self._paused or torch._C._functorch.maybe_current_level() is not None or is_in_kernel():
            return func(*args, **kwargs)
        name = getattr(func, "__name__", type(func).__name__)
        if name == "__get__":  # an attribute: x.shape, x.mT
            name = func.__self__.__name__  # type: ignore[attr-defined]
            found = func(*args, **kwargs)
            if name == "requires_grad":
                return self._ledger.flows(args[0])
            if not isinstance(found, Tensor):
                return found
            func, args = getattr, (args[0], name)
        elif name == "__set__":
            return self._on_assignment(func, args)
        elif name in HOOKS:
            raise InvalidValue(
                f"model hangs a hook on a tensor at {describe_current_location()}, which a cut would lose; use a torch.autograd.Function"
            )
        elif name in READS_VALUES:
            return self._value(func, args, kwargs)
        else:
            name, func, args, kwargs = without_values(name, func, args, kwargs)
        return self._make(func, func, None, args, kwargs, name)

    def _on_assignment(self, func: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        name = func.__self__.__name__  # type: ignore[attr-defined]
        if name in ("requires_grad", "grad"):
            return func(*args)
        raise InvalidValue(
            f"model assigns to a tensor's {name} at {describe_current_location()}, which cannot be followed; change it in place: x.copy_(…)"
        )

    def _make(
        self,
        target: Callable[..., Any] | str,
        run: Callable[..., Any],
        layer: nn.Module | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        name: str = "",
    ) -> Any:
        """Make a call and record it, where it returns or changes a tensor."""
        self._paused = True
        try:
            given = tensors_in((args, kwargs))
            versions = [tensor._version for tensor in given]
            parameters = (
                () if layer is None else tuple(filter(self._ledger.flows, layer.parameters()))
            )
            flowing = tuple(map(self._ledger.flows, given))
            made = Made(
                name, layer, run, _on_meta(args, name), _on_meta(kwargs), flowing, parameters
            )
            work, result = self._run(made, target)
            changed = {
                id(tensor)
                for tensor, version in zip(given, versions, strict=True)
                if tensor._version != version
            }
            changed.update(id(tensor) for tensor in tensors_in(kwargs.get("out")))
            leaves, spec = tree_flatten(result)
            if not changed and not any(isinstance(leaf, Tensor) for leaf in leaves):
                return result
            call = self._call(target, args, kwargs, name, given, changed, work.random)
            leaves = [
                self._fresh(leaf, changed) if isinstance(leaf, Tensor) else leaf for leaf in leaves
            ]
            returned = (leaf for leaf in leaves if isinstance(leaf, Tensor))
            outputs = tuple(
                self._ledger.enter(leaf, flows).number
                for leaf, flows in zip(returned, work.requires_grad, strict=True)
            )
            if changed and any(flowing) and call.grad:
                self._ledger.let_flow([tensor for tensor in given if id(tensor) in changed])
            self._calls.append(replace(call, outputs=outputs))
            self._work.append(work)
            return tree_unflatten(leaves, spec)
        finally:
            self._paused = False

    def _run(self, made: Made, target: Callable[..., Any] | str) -> tuple[CallCosts, Any]:
        """A call's work and its result."""
        try:
            if made.name in SAME_ELSEWHERE:
                return CallCosts(requires_grad=made.flowing, moved=(frozenset({0}),)), made.args[0]
            return self._bench.make(made)
        except AirsplitError:
            raise
        except Exception as error:
            raise self._failure(error, target, made.layer) from error

    def _call(
        self,
        target: Callable[..., Any] | str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        name: str,
        given: list[Tensor],
        changed: set[int],
        random: bool,
    ) -> Call:
        if _autocast() != self._autocast:
            raise InvalidValue(
                f"model enters torch.autocast at {describe_current_location()}, which cannot be followed; run the halves under it instead"
            )
        frame = self._frames[-1] if self._frames else None
        path = f"{frame.path}." if frame is not None and frame.path else ""
        stem = path + (name.strip("_") or "function")
        row, group = (
            (frame.row, frame.group)
            if frame is not None and frame.row is not None
            else (self._unique(stem), ALONE)
        )
        return Call(
            target,
            tuple(map(self._ledger.written, args)),
            {key: self._ledger.written(value) for key, value in kwargs.items()},
            outputs=(),
            given=tuple(map(self._ledger.written, given)),
            writes=frozenset(
                each
                for tensor in given
                if id(tensor) in changed
                for each in self._ledger.changed_with(tensor)
            ),
            stem=stem,
            row=row,
            group=group,
            grad=torch.is_grad_enabled(),
            is_random=random,
            where=current_location(),
        )

    def _fresh(self, tensor: Tensor, changed: set[int]) -> Tensor:
        """A tensor of its own for a result that is one of the inputs untouched, as that of dropout in evaluation mode is."""
        if tensor.device.type != "meta":
            tensor = tensor.to("meta")
        same = self._ledger.knows(tensor) and id(tensor) not in changed
        return torch.ops.aten.alias.default(tensor) if same else tensor

    def _unique(self, name: str) -> str:
        """The name, with a number behind it from its second use on."""
        unique = name
        while unique in self._names:
            unique = f"{name}_{self._names[name]}"
            self._names[name] += 1
        self._names[unique] = 1
        return unique

    # ---- what cannot be recorded -----------------------------------------------------------------------------------------
    def _value(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """A number out of a tensor: worked out where it does not depend on the data, else an error."""
        ledger, told = self._ledger, functools.partial(func, **kwargs)
        self._paused = True
        try:
            return answer(
                told,
                [ledger.written(value) for value in args],
                self._calls,
                ledger.metas,
                self._model,
                len(ledger.inputs),
            )
        except AirsplitError:
            raise
        except Exception as error:
            raise self._depends(first_line(error) if error.args else "") from error
        finally:
            self._paused = False

    def _depends(self, told: str) -> ChangedByData:
        why = "but the work of each split must be known before there are any"
        way_out = "use torch.where instead of a branch and fixed sizes, or take the decision out of forward"
        return ChangedByData(
            f"model depends on the values of its data at {describe_current_location()}{told and ': '}{told}, {why}; {way_out}"
        )

    def _failure(
        self, error: Exception, target: Callable[..., Any] | str, layer: nn.Module | None
    ) -> InvalidValue:
        told, at = first_line(error), describe_current_location()
        if isinstance(error, RuntimeError | NotImplementedError) and any(
            sign in told for sign in DATA_DEPENDENT
        ):
            return self._depends("")
        what = (
            f"layer {target!r} ({type(layer).__name__})"
            if layer is not None
            else f"{getattr(target, '__name__', target)} at {at}"
        )
        mode = "training" if self._module.training else "evaluation"
        hint = "give another shape, such as --input 3x32x32, or in Python a sample as inputs="
        return InvalidValue(
            f"{_told(self._ledger.inputs)} must suit the model, but in {mode} mode {what} says: {told}; {hint}"
        )


def is_layer(module: nn.Module) -> bool:
    """Whether a module is recorded as one call: what runs by a forward of torch.nn, but for its containers, or by ours of the same."""
    if isinstance(module, torch.jit.ScriptModule | ResponseNorm):
        return True
    theirs = getattr(type(module).forward, "__module__", "").startswith(
        ("torch.nn.", "torch.ao.nn.")
    )
    return theirs and not isinstance(module, CONTAINERS)


def _told(inputs: Sequence[Tensor]) -> str:
    """What the model was given, without the batch axis.

    >>> _told([torch.zeros(2, 3, 8, 8)])
    'input_shape (3, 8, 8) of torch.float32'
    """
    return "input_shape " + " and ".join(
        f"{tuple(tensor.shape[1:])} of {tensor.dtype}" for tensor in inputs
    )


def _autocast() -> tuple[Any, ...]:
    return tuple(
        (torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind))
        for kind in ("cpu", "cuda")
    )


def _on_meta(value: Any, name: str = "") -> Any:
    """What a function is given, with everything on the meta device."""
    if isinstance(value, Tensor):
        return value if value.device.type == "meta" else value.to("meta")
    if isinstance(value, torch.device) or (isinstance(value, str) and name in ("to", "device")):
        return torch.device("meta")
    if type(value) in (tuple, list):
        return type(value)(_on_meta(part, name) for part in value)
    if type(value) is dict:
        return {key: _on_meta(part, key) for key, part in value.items()}
    return value


def _inside(value: Any, sought: Set[int]) -> list[int]:
    """Which of the tensors that are sought, by id, are in an object of any kind."""
    memo = _Seen(sought)
    copy.deepcopy(value, memo)
    return list(memo.seen)


class _Seen(dict[int, Any]):
    """A memo for deepcopy that notes which of the sought objects it passes, and takes them for copied."""

    def __init__(self, sought: Set[int]) -> None:
        super().__init__()
        self._sought, self.seen = sought, dict[int, None]()

    def get(self, key: int, default: Any = None) -> Any:
        if key not in self._sought:
            return super().get(key, default)
        self.seen[key] = None
        return True
