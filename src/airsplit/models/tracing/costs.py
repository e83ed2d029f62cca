"""Measure what a call costs: operations forward and backward, and tensors saved in between.

Matrix products and convolutions come from torch's own counter, where one multiply-add is one MAC;
all other operations from `elementwise`. Everything runs on the meta device: torch infers shapes,
and neither computes nor allocates. Equal calls are measured once, so a model of a hundred equal
blocks takes hardly longer than one of a single block.
"""

from __future__ import annotations

import math
from collections import ChainMap
from collections.abc import Callable, Hashable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import TreeSpec, tree_flatten, tree_map_only, tree_unflatten
from torch.utils.flop_counter import flop_registry

from airsplit.core.units import BYTES_PER_FLOAT32
from airsplit.models.tracing.copied_values import CopiedValues
from airsplit.models.tracing.elementwise import count_function_operations, count_layer_operations
from airsplit.models.tracing.graph import CallCosts
from airsplit.models.tracing.tensors import list_tensors, storage_id

# Attributes of every module: parameters, children and hooks, which are compared apart.
_MODULE_REGISTRIES = frozenset(vars(nn.Module())) - {"training"}


@dataclass(frozen=True)
class MetaCall:
    """A call that is about to run, with all its tensors on the meta device.

    Attributes:
        name: The name of a function.
        layer: The layer that is called; None for a function.
        args_require_grad: For each tensor argument, whether it depends on a trained parameter.
        trained: The trained parameters of the layer.
    """

    name: str
    layer: nn.Module | None
    run: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    args_require_grad: tuple[bool, ...]
    trained: tuple[nn.Parameter, ...]

    @property
    def tensor_args(self) -> list[Tensor]:
        return list_tensors((self.args, self.kwargs))

    @property
    def needs_backward(self) -> bool:
        return torch.is_grad_enabled() and (any(self.args_require_grad) or bool(self.trained))


@dataclass(frozen=True)
class _Measurement:
    """The costs of a call, and its flattened result; None if the call must run to have one."""

    costs: CallCosts
    result: tuple[list[Any], TreeSpec] | None

    def create_result(self) -> Any:
        assert self.result is not None  # noqa: S101 - the caller asked
        leaves, spec = self.result
        leaves = [_empty_like(leaf) if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        return tree_unflatten(leaves, spec)


@dataclass(frozen=True)
class CostCounter:
    """Runs calls on the meta device and measures each kind once.

    Attributes:
        gradients: Whether to measure the backward pass, too.
    """

    gradients: bool = True
    _measurements: MutableMapping[Hashable, _Measurement] = field(default_factory=dict)

    def without_gradients(self) -> CostCounter:
        """Return a counter that leaves out gradients, and looks up what this one has measured."""
        # Its own measurements lack gradients, so they must not get into the mapping of this one.
        return CostCounter(gradients=False, _measurements=ChainMap({}, self._measurements))

    def run(self, call: MetaCall) -> tuple[CallCosts, Any]:
        """Return a call's costs and its result."""
        key = build_call_key(call)
        known = self._measurements.get(key)
        if known is None:
            measurement, result = self._measure(call)
            if key is not None:
                self._measurements[key] = measurement
            return measurement.costs, result

        if known.result is None:
            return known.costs, call.run(*call.args, **call.kwargs)
        return known.costs, known.create_result()

    def _measure(self, call: MetaCall) -> tuple[_Measurement, Any]:
        tensor_args = call.tensor_args
        # Each write in place raises a tensor's version, also one through a view.
        versions = [tensor._version for tensor in tensor_args]
        arg_storages = {storage_id(tensor) for tensor in tensor_args}
        copied_values = CopiedValues(tensor_args)
        with OperationCounter(copied_values) as forward:
            result = call.run(*call.args, **call.kwargs)
        leaves, spec = tree_flatten(result)
        results = [leaf for leaf in leaves if isinstance(leaf, Tensor)]

        has_changed = versions != [tensor._version for tensor in tensor_args]
        is_view = [storage_id(tensor) in arg_storages for tensor in results]
        if call.layer is None and not has_changed and all(is_view):
            # A view computes nothing, whatever the function is called.
            elementwise_ops = 0
        else:
            elementwise_ops = _count_elementwise(call, results)

        costs = CallCosts(forward.macs, elementwise_ops)
        if self.gradients:
            costs = measure_gradients(call, costs, results)
        else:
            requires_grad = [
                call.needs_backward and tensor.is_floating_point() for tensor in results
            ]
            costs = replace(costs, requires_grad=tuple(requires_grad))
        costs = replace(
            costs,
            is_random=forward.is_random,
            copied=tuple(map(copied_values.sources_of, results)),
            copied_into=tuple(
                copied_values.written_sources_of(tensor) - {place}
                for place, tensor in enumerate(tensor_args)
            ),
            lookups=frozenset(copied_values.lookups),
        )

        # New tensors can be created again. Views, and a layer's own tensors, cannot: another call
        # must return views of its own arguments.
        own_storages = _storages_of(call.layer)
        is_own = any(storage_id(tensor) in own_storages for tensor in results)
        if results and not has_changed and not any(is_view) and not is_own:
            return _Measurement(costs, (leaves, spec)), result
        return _Measurement(costs, None), result


class OperationCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the operations of torch while it is entered.

    A dispatch mode is below autograd, so it sees the operations of the backward pass, too.

    Attributes:
        macs: Multiply-adds of matrix products and convolutions.
        is_random: Whether any operation draws random numbers.
    """

    def __init__(self, copied_values: CopiedValues | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.macs = 0
        self.is_random = False
        self._copied_values = copied_values

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        self.is_random |= torch.Tag.nondeterministic_seeded in func.tags
        count_flops = flop_registry.get(func._overloadpacket)
        if count_flops is not None:
            # torch counts a multiply-add as two operations.
            self.macs += int(count_flops(*args, **kwargs, out_val=result)) // 2
        if self._copied_values is not None:
            self._copied_values.follow(func, args, kwargs, result)
        return result


def float32_equivalents(dtype: torch.dtype) -> float:
    """Return how many float32 numbers an element counts for.

    Floating-point numbers count for one, so that a profile does not depend on the model's type.
    Others count by their size.

    >>> [float32_equivalents(dtype) for dtype in (torch.bfloat16, torch.int64, torch.bool)]
    [1.0, 2.0, 0.25]
    """
    if dtype.is_floating_point or dtype.is_complex:
        return 1.0
    return dtype.itemsize / BYTES_PER_FLOAT32


def _count_elementwise(call: MetaCall, results: list[Tensor]) -> int:
    if call.layer is not None:
        return count_layer_operations(call.layer, call.tensor_args, results)
    # The window of a pooling is its second argument; for lp_pool the exponent comes before it.
    place = 1
    if call.name.startswith("lp_pool"):
        place = 2
    window = 1
    if len(call.args) > place:
        window = call.args[place]
    window = call.kwargs.get("kernel_size", call.kwargs.get("size", window))
    return count_function_operations(call.name, window, call.tensor_args, results)


def measure_gradients(call: MetaCall, costs: CallCosts, results: list[Tensor]) -> CallCosts:
    """Add the costs of a call's backward pass, and what autograd saves for it.

    The trace itself has no gradients, so the call runs once more on stand-ins for its arguments:
    leaves of autograd of the same shapes.
    """
    if not call.needs_backward:
        return replace(costs, requires_grad=(False,) * len(results))

    wanted: list[Tensor] = list(call.trained)
    arg_places: dict[int, int] = {}
    args_require_grad = iter(call.args_require_grad)

    def create_stand_in(tensor: Tensor) -> Tensor:
        stand_in = _empty_like(tensor)
        if next(args_require_grad):
            wanted.append(stand_in.requires_grad_())
            # A leaf of autograd must not be changed in place, as the call may do.
            stand_in = stand_in.clone()
        arg_places[storage_id(stand_in)] = len(arg_places)
        return stand_in

    saved: list[Tensor] = []

    def save(tensor: Tensor) -> Tensor:
        saved.append(tensor.detach())
        return tensor

    args, kwargs = tree_map_only(Tensor, create_stand_in, (call.args, call.kwargs))
    run = call.run
    if call.layer is not None:
        # The user's hooks on a layer must not see stand-ins.
        run = call.layer.forward
    with _require_grad(call.trained), saved_tensors_hooks(save, lambda tensor: tensor):
        outputs = list_tensors(run(*args, **kwargs))
        requires_grad = tuple(tensor.requires_grad for tensor in outputs)
        ends = [tensor for tensor in outputs if tensor.requires_grad]
        with OperationCounter() as backward:
            # Without a matrix product forward there is none backward.
            if costs.matmul_macs and ends:
                gradients = [torch.empty_like(tensor) for tensor in ends]
                torch.autograd.grad(ends, wanted, gradients, allow_unused=True)

    costs = replace(costs, backward_macs=backward.macs, requires_grad=requires_grad)
    dropout = call.kwargs.get("dropout_p", 0)
    if len(call.args) > 4:
        dropout = call.args[4]
    if call.name == "scaled_dot_product_attention" and not dropout:
        # On the meta device torch computes all scores and saves them. Where it really runs, fused
        # kernels save query, key, value and result, and one number for each query.
        queries = math.prod(call.tensor_args[0].shape[:-1])
        return replace(costs, saved_args=(0, 1, 2), saved_results=(0,), saved_extra=queries)

    # The elementwise part of a backward pass counts like that of the forward pass.
    if ends:
        costs = replace(costs, backward_macs=costs.backward_macs + costs.elementwise_ops)
    result_places = {storage_id(tensor): place for place, tensor in enumerate(outputs)}
    return _add_saved(costs, saved, arg_places, result_places, _storages_of(call.layer))


def _add_saved(
    costs: CallCosts,
    saved: list[Tensor],
    arg_places: dict[int, int],
    result_places: dict[int, int],
    own_storages: set[int],
) -> CallCosts:
    """Add the tensors that autograd saves, each once, without those of the layer itself."""
    args: set[int] = set()
    results: set[int] = set()
    extra: dict[int, float] = {}
    for tensor in saved:
        storage = storage_id(tensor)
        if storage in arg_places:
            args.add(arg_places[storage])
        elif storage in result_places:
            results.add(result_places[storage])
        elif storage not in own_storages:
            # A mask, a mean, a copy: something that only this call has.
            extra[storage] = tensor.numel() * float32_equivalents(tensor.dtype)
    return replace(
        costs,
        saved_args=tuple(args),
        saved_results=tuple(results),
        saved_extra=math.ceil(sum(extra.values())),
    )


@contextmanager
def _require_grad(parameters: tuple[nn.Parameter, ...]) -> Iterator[None]:
    for parameter in parameters:
        parameter.requires_grad_(True)
    try:
        yield
    finally:
        for parameter in parameters:
            parameter.requires_grad_(False)


def _empty_like(tensor: Tensor) -> Tensor:
    # empty_like() would not keep the strides of a view with gaps.
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


def _storages_of(layer: nn.Module | None) -> set[int]:
    if layer is None:
        return set()
    return {storage_id(tensor) for tensor in (*layer.parameters(), *layer.buffers())}


def build_call_key(call: MetaCall) -> Hashable | None:
    """Return a key that is equal for calls of equal costs; None if there is no such key."""
    target: Hashable = call.run
    if call.layer is not None:
        for submodule in call.layer.modules():
            has_hooks = submodule._forward_hooks or submodule._forward_pre_hooks
            # A hook may do anything, and the attributes of TorchScript are not in vars().
            if has_hooks or isinstance(submodule, torch.jit.ScriptModule):
                return None
        is_trained = tuple(
            # By identity: equal tensors are not the same parameter, and == compares elements.
            any(parameter is trained for trained in call.trained)
            for parameter in call.layer.parameters()
        )
        target = (_layer_key(call.layer), is_trained)

    # Which values a call copies where depends on which of its arguments share memory.
    storages = [storage_id(tensor) for tensor in call.tensor_args]
    sharing = tuple(map(storages.index, storages))
    key = (
        target,
        _value_key(call.args),
        _value_key(call.kwargs),
        sharing,
        call.args_require_grad,
        torch.is_grad_enabled(),
    )
    try:
        hash(key)
    except TypeError:
        # An object of a user's class without a hash: measure the call each time.
        return None
    return key


def _value_key(value: Any) -> Any:
    if isinstance(value, Tensor):
        return Tensor, tuple(value.shape), value.stride(), value.dtype
    if isinstance(value, tuple | list):
        return type(value), tuple(_value_key(item) for item in value)
    if isinstance(value, dict):
        return tuple((name, _value_key(item)) for name, item in value.items())
    if isinstance(value, slice):
        return slice, *map(_value_key, (value.start, value.stop, value.step))
    # With its type, as 1, 1.0 and True are equal.
    return type(value), value


def _layer_key(layer: nn.Module) -> Hashable:
    # Kernel size, stride, eps, the mode: a layer's settings are its other attributes.
    settings = tuple(
        (name, _value_key(value))
        for name, value in vars(layer).items()
        if name not in _MODULE_REGISTRIES
    )
    named = (*layer.named_parameters(recurse=False), *layer.named_buffers(recurse=False))
    tensors = tuple((name, tuple(tensor.shape), tensor.dtype) for name, tensor in named)
    children = tuple(_layer_key(child) for child in layer.children())
    return type(layer), settings, tensors, children
