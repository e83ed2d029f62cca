"""What a call computes and keeps: matrix products forward and backward, light operations, tensors for the backward pass.

Matrix products and convolutions come from torch's own counter (one multiply-add is one MAC); light operations are those of
`light`.  Nothing is allocated and nothing runs: torch only infers shapes.  What is asked twice is looked up: a model of a
hundred equal blocks is measured like one of a single block.
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
from airsplit.models.elementwise import light_operations_of_function, light_operations_of_layer
from airsplit.models.tracing.graph import CallCosts, storage_of, tensors_in
from airsplit.models.tracing.movement import Movement


@dataclass(frozen=True)
class Made:
    """A call in the making: of a layer, or of a function with its name; all its tensors are on the meta device.

    flowing  which of the tensors it is given lead to a parameter that is trained, in order
    trained  the parameters of its layer that are trained
    """

    name: str
    layer: nn.Module | None
    run: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    flowing: tuple[bool, ...]
    trained: tuple[nn.Parameter, ...]

    @property
    def given(self) -> list[Tensor]:
        return tensors_in((self.args, self.kwargs))


@dataclass(frozen=True)
class _Known:
    """A call that was measured: its work, and how to make its result again; None where it must be run."""

    work: CallCosts
    result: tuple[list[Any], TreeSpec] | None

    def again(self) -> Any:
        assert self.result is not None  # noqa: S101 - the caller asked
        leaves, spec = self.result
        return tree_unflatten(
            [_like(leaf) if isinstance(leaf, Tensor) else leaf for leaf in leaves], spec
        )


@dataclass(frozen=True)
class CostCounter:
    """Makes calls and measures them, each kind once; their backward passes only where `gradients` are wanted."""

    gradients: bool = True
    _known: MutableMapping[Hashable, _Known] = field(default_factory=dict)

    def without_gradients(self) -> CostCounter:
        """One that looks up what this one knows.  What it finds out itself has no gradients, and this one must not look it up."""
        return CostCounter(gradients=False, _known=ChainMap({}, self._known))

    def make(self, made: Made) -> tuple[CallCosts, Any]:
        """A call's work and its result."""
        key = _key(made)
        known = None if key is None else self._known.get(key)
        if known is not None:
            return known.work, made.run(
                *made.args, **made.kwargs
            ) if known.result is None else known.again()
        given = made.given
        versions, storages = (
            [tensor._version for tensor in given],
            {storage_of(tensor) for tensor in given},
        )
        movement = Movement(given)
        with Products(movement) as forward:
            result = made.run(*made.args, **made.kwargs)
        leaves, spec = tree_flatten(result)
        returned = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        changed = any(
            tensor._version != version for tensor, version in zip(given, versions, strict=True)
        )
        new = not changed and not any(storage_of(tensor) in storages for tensor in returned)
        viewed = not changed and all(storage_of(tensor) in storages for tensor in returned)
        light = 0 if viewed and made.layer is None else _light(made, given, returned)
        if self.gradients:
            work = _with_gradients(made, forward.macs, light, returned)
        else:
            flows = torch.is_grad_enabled() and (any(made.flowing) or bool(made.trained))
            work = CallCosts(
                forward.macs,
                light,
                requires_grad=tuple(flows and each.is_floating_point() for each in returned),
            )
        work = replace(
            work,
            random=forward.random,
            moved=tuple(map(movement.held_by, returned)),
            moved_into=tuple(
                movement.written_into(tensor) - {place} for place, tensor in enumerate(given)
            ),
            lookups=frozenset(movement.lookups),
        )
        if key is not None:
            own = made.layer is not None and any(
                storage_of(tensor) in _held(made.layer) for tensor in returned
            )
            self._known[key] = _Known(
                work, (leaves, spec) if new and not own and returned else None
            )
        return work, result


class Products(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the multiply-adds of matrix products and convolutions while it is entered; `movement` follows every operation."""

    def __init__(self, movement: Movement | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.macs, self.random, self._movement = 0, False, movement

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        self.random |= torch.Tag.nondeterministic_seeded in func.tags
        count = flop_registry.get(func._overloadpacket)
        if count is not None:
            self.macs += int(count(*args, **(kwargs or {}), out_val=result)) // 2
        if self._movement is not None:
            self._movement.follow(func, args, kwargs or {}, result)
        return result


def _light(made: Made, given: list[Tensor], returned: list[Tensor]) -> int:
    if made.layer is not None:
        return light_operations_of_layer(made.layer, given, returned)
    at = 2 if made.name.startswith("lp_pool") else 1  # the exponent of its norm comes before
    window = made.args[at] if len(made.args) > at else 1
    return light_operations_of_function(
        made.name, made.kwargs.get("kernel_size", made.kwargs.get("size", window)), given, returned
    )


def _with_gradients(made: Made, products: int, light: int, returned: list[Tensor]) -> CallCosts:
    """The work of a call and of its backward pass, which is run by itself on stand-ins for what it is given."""
    if not torch.is_grad_enabled() or not (any(made.flowing) or made.trained):
        return CallCosts(products, light, 0, (False,) * len(returned))
    wanted, given = list[Tensor](made.trained), made.given
    flowing, stands_for = iter(made.flowing), dict[int, int]()

    def stand_in(tensor: Tensor) -> Tensor:
        twin = _like(tensor)
        if next(flowing):
            wanted.append(twin.requires_grad_())
            twin = twin.clone()  # the call may change it in place
        stands_for[storage_of(twin)] = len(stands_for)
        return twin

    kept: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        kept.append(tensor.detach())
        return tensor

    args, kwargs = tree_map_only(Tensor, stand_in, (made.args, made.kwargs))
    run = made.run if made.layer is None else made.layer.forward  # hooks must not see stand-ins
    with _training(made.trained), saved_tensors_hooks(keep, lambda tensor: tensor):
        results = tensors_in(run(*args, **kwargs))
        flows = tuple(tensor.requires_grad for tensor in results)
        ends = [tensor for tensor in results if tensor.requires_grad]
        with Products() as backward:
            if products and ends:
                torch.autograd.grad(
                    ends, wanted, [torch.empty_like(tensor) for tensor in ends], allow_unused=True
                )
    if made.name == "scaled_dot_product_attention" and not made.kwargs.get(
        "dropout_p", made.args[4] if len(made.args) > 4 else 0
    ):
        # torch infers shapes by the formula, with all scores; to run it, it has kernels that keep one number a query instead
        return CallCosts(
            products, light, backward.macs, flows, (0, 1, 2), (0,), math.prod(given[0].shape[:-1])
        )
    places = {storage_of(tensor): at for at, tensor in enumerate(results)}
    held = _held(made.layer) if made.layer is not None else set[int]()
    besides = {
        storage_of(t): t.numel() * float32s(t.dtype)
        for t in kept
        if storage_of(t) not in places.keys() | stands_for.keys() | held
    }
    return CallCosts(
        products,
        light,
        backward.macs + (light if ends else 0),
        flows,
        tuple({stands_for[storage_of(t)] for t in kept if storage_of(t) in stands_for}),
        tuple(
            {
                places[storage_of(t)]
                for t in kept
                if storage_of(t) in places and storage_of(t) not in stands_for
            }
        ),
        math.ceil(sum(besides.values())),
    )


def float32s(dtype: torch.dtype) -> float:
    """How many elements one of a type counts for: a number of the model's one, others by their size as parts of a float32.

    >>> float32s(torch.bfloat16), float32s(torch.int64), float32s(torch.bool)
    (1.0, 2.0, 0.25)
    """
    return (
        1.0 if dtype.is_floating_point or dtype.is_complex else dtype.itemsize / BYTES_PER_FLOAT32
    )


@contextmanager
def _training(parameters: tuple[nn.Parameter, ...]) -> Iterator[None]:
    for parameter in parameters:
        parameter.requires_grad_(True)
    try:
        yield
    finally:
        for parameter in parameters:
            parameter.requires_grad_(False)


def _like(tensor: Tensor) -> Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


def _held(layer: nn.Module) -> set[int]:
    return {storage_of(tensor) for tensor in (*layer.parameters(), *layer.buffers())}


_REGISTRIES = frozenset(vars(nn.Module())) - {"training"}
"""What every module has, and is looked at by itself."""


# ---- what makes two calls the same -------------------------------------------------------------------------------------------
def _key(made: Made) -> Hashable | None:
    """Equal for calls that cost the same; None where that cannot be said."""
    doer: Hashable = made.run
    if made.layer is not None:
        parts = list(made.layer.modules())
        if any(
            part._forward_hooks
            or part._forward_pre_hooks
            or isinstance(part, torch.jit.ScriptModule)
            for part in parts
        ):
            return None
        doer = (
            _layer_key(made.layer),
            tuple(any(each is p for p in made.trained) for each in made.layer.parameters()),
        )
    memory = [storage_of(tensor) for tensor in made.given]
    shared = tuple(map(memory.index, memory))  # which share memory decides what a call moves where
    key = (
        doer,
        _value_key(made.args),
        _value_key(made.kwargs),
        shared,
        made.flowing,
        torch.is_grad_enabled(),
    )
    try:
        hash(key)
    except TypeError:
        return None
    return key


def _value_key(value: Any) -> Any:
    if isinstance(value, Tensor):
        return Tensor, tuple(value.shape), value.stride(), value.dtype
    if isinstance(value, tuple | list):
        return type(value), tuple(_value_key(part) for part in value)
    if isinstance(value, dict):
        return tuple((name, _value_key(part)) for name, part in value.items())
    if isinstance(value, slice):
        return slice, *map(_value_key, (value.start, value.stop, value.step))
    return type(value), value


def _layer_key(layer: nn.Module) -> Hashable:
    settings = tuple(
        (name, _value_key(value)) for name, value in vars(layer).items() if name not in _REGISTRIES
    )
    tensors = tuple(
        (n, tuple(t.shape), t.dtype)
        for n, t in (*layer.named_parameters(recurse=False), *layer.named_buffers(recurse=False))
    )
    return type(layer), settings, tensors, tuple(_layer_key(child) for child in layer.children())
