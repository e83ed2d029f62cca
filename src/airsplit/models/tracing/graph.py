"""Tape: a model as the list of its calls, which can be played again, whole or in part.

A call is a layer of torch.nn, or a function of torch in the forward of any other module.  What a call takes is written as
it was given, with places where a tensor, a size of the batch or the device must be filled in.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from airsplit.core.plugins import note_place


@dataclass(frozen=True)
class Slot:
    """The tensor with this number: an input of the model, or what a call returned."""

    number: int


@dataclass(frozen=True)
class ModelTensor:
    """A parameter, a buffer or another tensor that the model holds, by its dotted name."""

    name: str


@dataclass(frozen=True)
class BatchInt:
    """A number that depends on the batch size B: times · B + plus."""

    times: int
    plus: int

    def at(self, batch: int) -> int:
        """
        >>> BatchInt(49, 1).at(10)
        491
        """
        return self.times * batch + self.plus


class ModelDevice:
    """The device that the data is on."""


DEVICE = ModelDevice()


@dataclass(frozen=True)
class Nested:
    """A tuple, list, dictionary or slice with places to fill in."""

    kind: type
    items: tuple[Any, ...]
    keys: tuple[Any, ...] = ()

    def made_of(self, items: Iterable[Any]) -> Any:
        """
        >>> Nested(dict, (Slot(1), 2), ("a", "b")).made_of([7, 2]), Nested(slice, (0, Slot(1), None)).made_of([0, 5, None])
        ({'a': 7, 'b': 2}, slice(0, 5, None))
        """
        if self.kind is dict:
            return dict(zip(self.keys, items, strict=True))
        return slice(*items) if self.kind is slice else self.kind(items)


ALONE = -1
"""The group of a call that is a row by itself."""


@dataclass(frozen=True, eq=False)
class Call:
    """One call.  `target` is a function, or the dotted name of a layer.

    stem     what it is: the name of its layer, or of its function within a module
    row      the name of the split behind it: the same, with a number from its second use on
    group    the module call that its row ends with; calls of one row follow each other
    outputs  the slots that it fills
    given    the tensors that it is given, in order
    writes   the slots and the state that it changes in place
    grad     whether gradients flow through it
    is_random  whether it draws random numbers
    where    file and line of the model that made it
    """

    target: Callable[..., Any] | str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    outputs: tuple[int, ...]
    given: tuple[Any, ...]
    writes: frozenset[Slot | ModelTensor]
    stem: str
    row: str
    group: int
    grad: bool
    is_random: bool
    where: tuple[str, int]

    @cached_property
    def reads(self) -> frozenset[Slot | ModelTensor]:
        """The slots and the state among what it is given."""
        return frozenset(part for part in self.parts if isinstance(part, Slot | ModelTensor))

    @property
    def parts(self) -> Iterator[Any]:
        """Everything that it is given, one by one, however it is nested."""
        return (part for value in (*self.args, *self.kwargs.values()) for part in _flat(value))

    @cached_property
    def read_slots(self) -> frozenset[int]:
        return _slots(self.reads)

    @cached_property
    def written_slots(self) -> frozenset[int]:
        return _slots(self.writes)

    @cached_property
    def read_state(self) -> tuple[str, ...]:
        """The names of the model's tensors that it is given, in order; what a layer holds is not among them."""
        return _names(self.parts)

    @cached_property
    def written_state(self) -> tuple[str, ...]:
        return _names(self.writes)

    @property
    def is_layer(self) -> bool:
        return isinstance(self.target, str)


@dataclass(frozen=True)
class CallCosts:
    """What one call costs, for the recorded batch or for one sample.

    requires_grad  which of its results lead to a parameter that is trained
    kept_given    which of the tensors it is given are kept for the backward pass, and
    kept_results  which of its results
    kept_besides  what else is kept, such as the mask of dropout, in elements
    random        whether it draws random numbers
    moved         for each of its results, which of the tensors it is given have their numbers in it
    moved_into    the same for each of the tensors it is given; none for those that it does not change
    lookups       pairs of places among the tensors it is given: an index, and the tables it looks up
    """

    products: int = 0
    light: int = 0
    backward: int = 0
    requires_grad: tuple[bool, ...] = ()
    kept_given: tuple[int, ...] = ()
    kept_results: tuple[int, ...] = ()
    kept_besides: int = 0
    random: bool = False
    moved: tuple[frozenset[int], ...] = ()
    moved_into: tuple[frozenset[int], ...] = ()
    lookups: frozenset[tuple[int, frozenset[int]]] = frozenset()

    def beyond(self, less: CallCosts) -> CallCosts:
        """What this work is more than that of a batch smaller by one: the work of one sample."""
        return replace(
            self,
            products=self.products - less.products,
            light=self.light - less.light,
            backward=self.backward - less.backward,
            kept_besides=self.kept_besides - less.kept_besides,
        )


@dataclass(frozen=True)
class TensorSpec:
    """What is known of a slot's tensor: its shape for one batch size after the other, and where it lives.

    storage   the same number for tensors that share memory
    order     its axes from the outermost to the innermost in memory
    requires_grad  whether it leads to a parameter that is trained, so that its gradient is wanted
    """

    shapes: tuple[tuple[int, ...], ...]
    dtype: torch.dtype
    storage: int
    requires_grad: bool
    order: tuple[int, ...] = ()

    @property
    def has_batch_axis(self) -> bool:
        return self.shapes[0] != self.shapes[-1]

    @property
    def is_per_sample(self) -> bool:
        """Whether each sample adds as much: no matrix of samples by samples."""
        return math.prod(self.shapes[0]) == FIRST_BATCH * self.elements

    @property
    def elements(self) -> int:
        """Elements that each sample adds."""
        return math.prod(self.shapes[-1]) - math.prod(self.shapes[0])

    @property
    def sent_elements(self) -> int:
        """Elements to send for each sample; at least those of half a batch of two where they are not per sample."""
        return (
            self.elements
            if self.is_per_sample
            else math.ceil(math.prod(self.shapes[0]) / FIRST_BATCH)
        )

    def laid_out(self, tensor: Tensor) -> Tensor:
        """The same tensor with its axes in memory as they were recorded: what comes over a wire comes in one piece."""
        if self.order == tuple(sorted(self.order)):
            return tensor
        back = sorted(range(len(self.order)), key=self.order.__getitem__)
        return tensor.permute(self.order).contiguous().permute(back)

    def shape_at(self, batch: int) -> tuple[int, ...]:
        """The shape for a batch size.

        >>> TensorSpec(((2, 3), (3, 3)), torch.float32, 0, requires_grad=False).shape_at(10)
        (10, 3)
        """
        return tuple(
            a + (batch - FIRST_BATCH) * (b - a) for a, b in zip(*self.shapes[:2], strict=True)
        )

    @property
    def sizes(self) -> str:
        """The shape in words, with B for the axes that grow with the batch.

        >>> TensorSpec(((2, 3, 8), (3, 3, 8)), torch.float32, 0, requires_grad=False).sizes
        '(B, 3, 8)'
        """
        first, second = self.shapes[:2]
        return f"({', '.join(str(a) if a == b else _grown(a, b - a) for a, b in zip(first, second, strict=True))})"

    def fits(self, tensor: Tensor) -> bool:
        """Whether a tensor has this shape, for some batch."""
        first, second = self.shapes[:2]
        return tensor.dim() == len(first) and all(
            a == size if a == b else (size - a) % (b - a) == 0
            for a, b, size in zip(first, second, tensor.shape, strict=True)
        )

    def batch_of(self, tensor: Tensor) -> int:
        """The batch size, from the axis that grows with it."""
        first, second = self.shapes[:2]
        axis = next(axis for axis, (a, b) in enumerate(zip(first, second, strict=True)) if a != b)
        times = second[axis] - first[axis]
        return (tensor.shape[axis] - first[axis]) // times + FIRST_BATCH


FIRST_BATCH = 2
"""Batches of 2 and 3 say what grows with the batch: one is too special."""


@dataclass(frozen=True, eq=False)
class Graph:
    """A recorded forward pass.  Slots 0 to inputs - 1 are the model's inputs.

    output   the model's output as it was recorded
    results  which slots are in the output, by the id of their tensor
    work     what each call costs
    left     the slots that the model keeps as plain attributes of its modules, by name
    """

    input_count: int
    calls: Sequence[Call]
    specs: Sequence[TensorSpec]
    output: Any
    results: Mapping[int, Slot | ModelTensor]
    work: Sequence[CallCosts] = ()
    left: Mapping[str, int] = field(default_factory=dict)

    @property
    def result_slots(self) -> frozenset[int]:
        return _slots(self.results.values())

    @property
    def result_state(self) -> tuple[str, ...]:
        return _names(self.results.values())

    def output_of(self, root: nn.Module, tensors: Mapping[int, Tensor]) -> Any:
        """The model's output, made of these tensors: whatever object the model returned, with them in it."""
        memo = {key: _look_up(root, reference, tensors) for key, reference in self.results.items()}
        if isinstance(self.output, Tensor):
            return memo[id(self.output)]
        return copy.deepcopy(
            self.output, memo
        )  # deepcopy takes what it finds in its memo for copied already


def spent_slots(calls: Sequence[Call], kept: Iterable[int]) -> list[tuple[int, ...]]:
    """For each call, the slots that nothing needs after it."""
    needed, spent = set(kept), []
    for call in reversed(calls):
        touched = {*call.outputs, *call.read_slots}
        spent.append(tuple(touched - needed))
        needed |= touched
    return spent[::-1]


def run_calls(
    root: nn.Module,
    calls: Sequence[Call],
    spent: Sequence[tuple[int, ...]],
    tensors: dict[int, Tensor],
    batch: int,
    device: torch.device,
) -> None:
    """Run calls in turn.  `tensors` has what they need and takes what they return; what is spent is let go."""

    def filled(value: Any) -> Any:
        kind = type(value)
        if kind is Slot:
            return tensors[value.number]
        if kind is Nested:
            return value.made_of(map(filled, value.items))
        if kind is ModelTensor:
            return get_attribute(root, value.name)
        if kind is BatchInt:
            return value.at(batch)
        return device if value is DEVICE else value

    try:
        for call, gone in zip(calls, spent, strict=True):
            run = get_attribute(root, call.target) if isinstance(call.target, str) else call.target
            args = map(filled, call.args)
            kwargs = (
                {key: filled(value) for key, value in call.kwargs.items()} if call.kwargs else {}
            )
            if call.grad:
                result = run(*args, **kwargs)
            else:
                with torch.no_grad():
                    result = run(*args, **kwargs)
            if isinstance(result, Tensor):
                tensors[call.outputs[0]] = result
            elif call.outputs:
                tensors.update(zip(call.outputs, tensors_in(result), strict=True))
            del args, result
            for slot in gone:
                del tensors[slot]
    except Exception as error:
        # the model's own forward does not run: the line that made the call is only known here
        note_place(error, *call.where)
        raise


def _grown(first: int, step: int) -> str:
    """
    >>> _grown(2, 1), _grown(100, 50), _grown(3, 1), _grown(1, 1)
    ('B', '50B', 'B + 1', 'B - 1')
    """
    plus = first - FIRST_BATCH * step
    return (
        ("" if step == 1 else str(step))
        + "B"
        + (f" {'+' if plus > 0 else '-'} {abs(plus)}" if plus else "")
    )


def tensors_in(value: Any) -> list[Tensor]:
    """Every tensor in tuples, lists and dictionaries, in order."""
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]


def storage_of(tensor: Tensor) -> int:
    """The same number for tensors that share memory, as long as they live."""
    return int(tensor.untyped_storage()._cdata)


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, Nested):
        for item in value.items:
            yield from _flat(item)
    else:
        yield value


def _slots(references: Iterable[Slot | ModelTensor]) -> frozenset[int]:
    return frozenset(each.number for each in references if isinstance(each, Slot))


def _names(values: Iterable[Any]) -> tuple[str, ...]:
    """The names of the state among values, each once, in order."""
    return tuple(dict.fromkeys(each.name for each in values if isinstance(each, ModelTensor)))


def get_attribute(root: nn.Module, name: str) -> Any:
    """The module or tensor of a dotted name."""
    *modules, last = name.split(".")
    here: Any = root
    for module in modules:
        here = here._modules[module]  # quicker than getattr, which looks in four places
    return here._modules[last] if last in here._modules else getattr(here, last)


def _look_up(
    root: nn.Module, reference: Slot | ModelTensor, tensors: Mapping[int, Tensor]
) -> Tensor:
    if isinstance(reference, Slot):
        return tensors[reference.number]
    return get_attribute(root, reference.name)  # type: ignore[no-any-return]
