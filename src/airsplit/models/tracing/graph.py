"""The computation graph of a traced model.

A graph lists the calls that one forward pass makes, in order. A call runs a layer of torch.nn or a
function of torch. Its arguments are stored as the model gave them, with placeholders for tensors,
for sizes that depend on the batch, and for the device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from airsplit.models.tracing.source_location import Location

# Tracing with batches of 2 and 3 shows which sizes grow with the batch. A batch of 1 is too
# special: it broadcasts, and squeeze() drops it.
FIRST_BATCH = 2

# The group of a call that is a split by itself.
NO_GROUP = -1


@dataclass(frozen=True)
class Slot:
    """The place of one tensor: an input of the model, or a result of a call."""

    number: int


@dataclass(frozen=True)
class ModelTensor:
    """A parameter, a buffer or another tensor of the model, by its dotted name."""

    name: str


Reference = Slot | ModelTensor


@dataclass(frozen=True)
class BatchInt:
    """An integer that depends on the batch size B: times · B + plus."""

    times: int
    plus: int

    def at(self, batch: int) -> int:
        """Return the integer for a batch size.

        >>> BatchInt(49, 1).at(10)
        491
        """
        return self.times * batch + self.plus


class ModelDevice:
    """Placeholder for the device on which the model runs.

    The trace has "meta" there; a half runs wherever its inputs are.
    """


DEVICE = ModelDevice()


@dataclass(frozen=True)
class Nested:
    """A tuple, list, dictionary or slice with placeholders in it."""

    kind: type
    items: tuple[Any, ...]
    keys: tuple[Any, ...] = ()

    def rebuild(self, items: Iterable[Any]) -> Any:
        """Return a container of the same kind with other items.

        >>> Nested(dict, (Slot(1), 2), ("a", "b")).rebuild([7, 2])
        {'a': 7, 'b': 2}
        >>> Nested(slice, (0, Slot(1), None)).rebuild([0, 5, None])
        slice(0, 5, None)
        """
        if self.kind is dict:
            return dict(zip(self.keys, items, strict=True))
        if self.kind is slice:
            return slice(*items)
        return self.kind(items)


@dataclass(frozen=True, eq=False)
class Call:
    """One call of a forward pass.

    Attributes:
        target: A function, or the dotted name of a layer.
        outputs: The slots that it fills.
        tensor_args: The tensors among its arguments, in order.
        writes: The slots and model tensors that it changes in place.
        base_name: The name of its layer, or of its function within a module.
        name: The name of the split behind it: `base_name`, with a number from its second use on.
        group: Equal for consecutive calls that make one split, such as all those of one module;
            NO_GROUP for a call that is a split by itself.
        grad_enabled: Whether gradients flow through it.
        is_random: Whether it draws random numbers.
        location: File and line of the model that made it.
    """

    target: Callable[..., Any] | str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    outputs: tuple[int, ...]
    tensor_args: tuple[Any, ...]
    writes: frozenset[Reference]
    base_name: str
    name: str
    group: int
    grad_enabled: bool
    is_random: bool
    location: Location

    @property
    def is_layer(self) -> bool:
        return isinstance(self.target, str)

    @property
    def leaves(self) -> Iterator[Any]:
        """All arguments, with containers flattened."""
        for value in (*self.args, *self.kwargs.values()):
            yield from _flatten(value)

    @cached_property
    def reads(self) -> frozenset[Reference]:
        """The slots and model tensors among the arguments."""
        return frozenset(leaf for leaf in self.leaves if isinstance(leaf, Reference))

    @cached_property
    def read_slots(self) -> frozenset[int]:
        return _slot_numbers(self.reads)

    @cached_property
    def written_slots(self) -> frozenset[int]:
        return _slot_numbers(self.writes)

    @cached_property
    def read_state(self) -> tuple[str, ...]:
        """Names of the model tensors among the arguments, in order; not those of its layer."""
        return _tensor_names(self.leaves)

    @cached_property
    def written_state(self) -> tuple[str, ...]:
        return _tensor_names(self.writes)


@dataclass(frozen=True)
class CallCosts:
    """The costs of a call, and its effect on its tensors.

    Counts are for the traced batch, or for one sample after `per_sample`. Tensors are identified by
    their place among the call's tensor arguments, or among its results.

    Attributes:
        matmul_macs: Multiply-adds of matrix products and convolutions.
        elementwise_ops: All other operations.
        backward_macs: Operations of the backward pass.
        requires_grad: For each result, whether it depends on a trained parameter.
        saved_args: The arguments that autograd saves for the backward pass.
        saved_results: The results that autograd saves.
        saved_extra: What else autograd saves, such as the mask of a dropout, in elements.
        is_random: Whether the call draws random numbers.
        copied: For each result, the arguments whose values are in it unchanged.
        copied_into: For each argument, the others whose values were copied into it.
        lookups: Pairs of an argument that is an index, and the tables that it looks up.
    """

    matmul_macs: int = 0
    elementwise_ops: int = 0
    backward_macs: int = 0
    requires_grad: tuple[bool, ...] = ()
    saved_args: tuple[int, ...] = ()
    saved_results: tuple[int, ...] = ()
    saved_extra: int = 0
    is_random: bool = False
    copied: tuple[frozenset[int], ...] = ()
    copied_into: tuple[frozenset[int], ...] = ()
    lookups: frozenset[tuple[int, frozenset[int]]] = frozenset()

    @property
    def macs(self) -> int:
        """All operations of the forward pass."""
        return self.matmul_macs + self.elementwise_ops

    def per_sample(self, smaller: CallCosts) -> CallCosts:
        """Return the costs of one sample, given those of a batch that is smaller by one."""
        return replace(
            self,
            matmul_macs=self.matmul_macs - smaller.matmul_macs,
            elementwise_ops=self.elementwise_ops - smaller.elementwise_ops,
            backward_macs=self.backward_macs - smaller.backward_macs,
            saved_extra=self.saved_extra - smaller.saved_extra,
        )


@dataclass(frozen=True)
class TensorSpec:
    """Shape, type and memory of the tensor in a slot.

    Attributes:
        shapes: Its shape for each batch size that was traced, 2 and 3.
        storage: A number that slots in the same memory share.
        requires_grad: Whether it depends on a trained parameter, so that its gradient is needed.
        axis_order: Its axes from the outermost to the innermost in memory.
    """

    shapes: tuple[tuple[int, ...], ...]
    dtype: torch.dtype
    storage: int
    requires_grad: bool
    axis_order: tuple[int, ...] = ()

    @property
    def has_batch_axis(self) -> bool:
        return self.shapes[0] != self.shapes[-1]

    @property
    def is_per_sample(self) -> bool:
        """Whether each sample adds the same number of elements: not so for B × B matrices."""
        return math.prod(self.shapes[0]) == FIRST_BATCH * self.elements

    @property
    def elements(self) -> int:
        """Elements that one more sample adds."""
        return math.prod(self.shapes[-1]) - math.prod(self.shapes[0])

    @property
    def sent_elements(self) -> int:
        """Elements per sample to send; half of a batch of two if samples do not add equally."""
        if self.is_per_sample:
            return self.elements
        # A cut that sends it is illegal; this only compares it with other cuts.
        return math.ceil(math.prod(self.shapes[0]) / FIRST_BATCH)

    @property
    def symbolic_shape(self) -> str:
        """The shape as text, with B for the batch size.

        >>> TensorSpec(((2, 3, 8), (3, 3, 8)), torch.float32, 0, requires_grad=False).symbolic_shape
        '(B, 3, 8)'
        """
        sizes = [symbolic_size(a, b) for a, b in zip(*self.shapes[:2], strict=True)]
        return f"({', '.join(sizes)})"

    def shape_at(self, batch: int) -> tuple[int, ...]:
        """Return the shape for a batch size.

        >>> TensorSpec(((2, 3), (3, 3)), torch.float32, 0, requires_grad=False).shape_at(10)
        (10, 3)
        """
        # Each size is affine in the batch size: the line through (2, a) and (3, b).
        pairs = zip(*self.shapes[:2], strict=True)
        return tuple(a + (batch - FIRST_BATCH) * (b - a) for a, b in pairs)

    def matches(self, tensor: Tensor) -> bool:
        """Return whether a tensor has this shape for some batch size."""
        first, second = self.shapes[:2]
        if tensor.dim() != len(first):
            return False
        return all(
            a == size if a == b else (size - a) % (b - a) == 0
            for a, b, size in zip(first, second, tensor.shape, strict=True)
        )

    def batch_size_of(self, tensor: Tensor) -> int:
        """Return the batch size of a tensor, from the first axis that grows with it."""
        first, second = self.shapes[:2]
        axis = next(axis for axis, (a, b) in enumerate(zip(first, second, strict=True)) if a != b)
        # The inverse of shape_at, along one axis.
        times = second[axis] - first[axis]
        return (tensor.shape[axis] - first[axis]) // times + FIRST_BATCH

    def restore_layout(self, tensor: Tensor) -> Tensor:
        """Return the tensor with its axes in memory as they were traced.

        A tensor that was sent arrives contiguous, but the model may call view() on it.
        """
        if self.axis_order == tuple(sorted(self.axis_order)):
            return tensor
        # Permute to the order in memory, copy to that order, and permute back.
        inverse = sorted(range(len(self.axis_order)), key=self.axis_order.__getitem__)
        return tensor.permute(self.axis_order).contiguous().permute(inverse)


@dataclass(frozen=True, eq=False)
class Graph:
    """A traced forward pass. Slots 0 to input_count - 1 are the model's inputs.

    Attributes:
        calls: All calls, in the order in which the model makes them.
        specs: Shape, type and memory of the tensor in each slot.
        output: The model's output as it was traced.
        output_tensors: The slot or model tensor of each tensor in the output, by its id().
        costs: What each call costs.
        assigned_slots: Slots that forward assigns to plain attributes of modules, by their names.
    """

    input_count: int
    calls: Sequence[Call]
    specs: Sequence[TensorSpec]
    output: Any
    output_tensors: Mapping[int, Reference]
    costs: Sequence[CallCosts] = ()
    assigned_slots: Mapping[str, int] = field(default_factory=dict)

    @property
    def output_slots(self) -> frozenset[int]:
        return _slot_numbers(self.output_tensors.values())

    @property
    def output_state(self) -> tuple[str, ...]:
        """Names of the model tensors in the output."""
        return _tensor_names(self.output_tensors.values())


def _flatten(value: Any) -> Iterator[Any]:
    if isinstance(value, Nested):
        for item in value.items:
            yield from _flatten(item)
    else:
        yield value


def _slot_numbers(references: Iterable[Reference]) -> frozenset[int]:
    return frozenset(ref.number for ref in references if isinstance(ref, Slot))


def _tensor_names(values: Iterable[Any]) -> tuple[str, ...]:
    """Return the names of the model tensors among values, without duplicates, in order."""
    return tuple(dict.fromkeys(value.name for value in values if isinstance(value, ModelTensor)))


def symbolic_size(first: int, second: int) -> str:
    """Return the size of an axis in terms of the batch size B, given those for B = 2 and 3.

    >>> [symbolic_size(*sizes) for sizes in ((2, 3), (100, 150), (3, 4), (1, 2), (8, 8))]
    ['B', '50B', 'B + 1', 'B - 1', '8']
    """
    times = second - first
    if times == 0:
        return str(first)

    text = "B" if times == 1 else f"{times}B"
    plus = first - FIRST_BATCH * times
    if plus > 0:
        text += f" + {plus}"
    elif plus < 0:
        text += f" - {-plus}"
    return text
