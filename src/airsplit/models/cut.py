"""cut: a model in two halves, front and back, that share its parameters."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn

from airsplit.core.errors import InvalidValue
from airsplit.models.data_flow import DataFlow
from airsplit.models.inputs import make_example_inputs
from airsplit.models.splits import ModelSplits, find_splits
from airsplit.models.tracing.graph import Call, TensorSpec, get_attribute, run_calls, spent_slots
from airsplit.models.tracing.values import held_tensors


def cut(
    model: nn.Module,
    split: int | str,
    *,
    input_shape: Sequence[int] | None = None,
    inputs: Tensor | tuple[Tensor, ...] | None = None,
) -> tuple[Front, Back]:
    """Cut a model in two: `front` for the device, `back` for the server.

    model        a torch.nn.Module; its weights are shared with both halves, not copied
    split        the name or number of a row of its profile
    input_shape  the shape of one sample, without the batch axis; or
    inputs       a tensor, or a tuple of tensors, with a batch axis; not needed for built-in models

    front(*inputs) returns a tuple of every tensor that crosses the cut; back(*tensors) returns what the model returns.

    >>> import torch
    >>> model = nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> front, back = cut(model, 2, input_shape=(8,))
    >>> x = torch.ones(5, 8)
    >>> [tensor.shape for tensor in front(x)], torch.equal(back(*front(x)), model(x))
    ([torch.Size([5, 4])], True)
    >>> list(front.state_dict()), list(back.state_dict())
    (['0.weight', '0.bias'], ['2.weight', '2.bias'])
    """
    found = find_splits(model, make_example_inputs(model, input_shape, inputs))
    return cut_in_halves(found, found.profile().split_of(split))


class Subgraph:
    """What a half does in one mode: the slots that come in, the calls, the slots that leave.

    changed   the slots that come in and are changed in place
    """

    def __init__(
        self,
        flow: DataFlow,
        entering: list[int],
        calls: list[Call],
        leaving: list[int],
        changed: Iterable[int] = (),
    ) -> None:
        self.graph, self.inputs, self.calls, self.outputs, self.changed = (
            flow.graph,
            entering,
            calls,
            leaving,
            changed,
        )
        self._spent = spent_slots(calls, (*leaving, *flow.graph.result_slots))
        self._fixed_type = any(
            isinstance(each, torch.dtype) for call in calls for each in call.parts
        )
        self._telling = next(
            (at for at, slot in enumerate(entering) if flow.graph.specs[slot].has_batch_axis), None
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> Subgraph:
        return self  # it holds nothing of the model

    def run(self, half: nn.Module, given: tuple[Tensor, ...]) -> dict[int, Tensor]:
        """Every tensor of this side, by its slot."""
        name = type(half).__name__.lower()
        if len(given) != len(self.inputs) or not all(
            isinstance(tensor, Tensor) for tensor in given
        ):
            got = ", ".join(type(each).__name__ for each in given) or "nothing"
            raise InvalidValue(
                f"{name} must be given {len(self.inputs)} tensors, got {got}; write {name}(*tensors)"
            )
        tensors = dict(zip(self.inputs, given, strict=True))
        for slot, tensor in tensors.items():
            tensors[slot] = self._checked(self.graph.specs[slot], tensor)
        for slot in self.changed:  # the sender's tensor must stay as it is, and a leaf of autograd must not be changed in place
            tensors[slot] = tensors[slot].clone()
        run_calls(half, self.calls, self._spent, tensors, self._batch(given), given[0].device)
        return tensors

    def _checked(self, meta: TensorSpec, tensor: Tensor) -> Tensor:
        if not meta.fits(tensor):
            got = tuple(tensor.shape)
            raise InvalidValue(
                f"tensors must have the sizes that the model was cut for, {meta.sizes}, got {got}; cut it for others"
            )
        if tensor.dtype != meta.dtype and self._fixed_type:
            types = f"{meta.dtype}, got {tensor.dtype}"
            raise InvalidValue(
                f"tensors must have the type that the model was cut for, {types}; cut it again after changing its type"
            )
        return meta.laid_out(tensor)

    def _batch(self, given: tuple[Tensor, ...]) -> int:
        at = self._telling
        return 0 if at is None else self.graph.specs[self.inputs[at]].batch_of(given[at])


class Half(nn.Module):
    """One side of a cut.  Its tensors are the model's own and have the names that they have in the model."""

    # names that no model has: its own go beside them
    _airsplit_sides: dict[bool, Subgraph]
    _airsplit_flags: Mapping[bool, Mapping[str, bool]]

    def __init__(
        self, training: bool, sides: dict[bool, Subgraph], flags: Mapping[bool, Mapping[str, bool]]
    ) -> None:
        super().__init__()
        self.training, self._airsplit_sides, self._airsplit_flags = training, sides, flags

    def train(self, mode: bool = True) -> Self:
        """Set the mode, of each part as the model's own train() would: what it keeps frozen stays so."""
        for path, part in self.named_modules():
            part.training = self._airsplit_flags[mode].get(path, mode)
        self.training = mode
        return self


def get_subgraph(half: Half, training: bool) -> Subgraph:
    """What a half does in a mode.  A function, because a half has the names of the model's parts for attributes."""
    return half._airsplit_sides[training]


class Front(Half):
    """The first layers: takes the model's inputs, returns a tuple of every tensor that crosses the cut."""

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        side = self._airsplit_sides[self.training]
        tensors = side.run(self, inputs)
        return tuple(tensors[slot] for slot in side.outputs)


class Back(Half):
    """The other layers: takes what crosses the cut, returns the model's output."""

    def forward(self, *crossing: Tensor) -> Any:
        side = self._airsplit_sides[self.training]
        return side.graph.output_of(self, side.run(self, crossing))


class Part(nn.Module):
    """A place in a half where the model has a module that is not wholly on one side."""


def cut_in_halves(found: ModelSplits, split: int) -> tuple[Front, Back]:
    """The model cut at a split, counted from one."""
    row, model = found.splits[split - 1], found.model
    first, second = dict[bool, Subgraph](), dict[bool, Subgraph]()
    for training, at in ((False, row.evaluation), (True, row.training)):
        flow = found.flow(training)
        crossing = flow.crossing(at)
        first[training] = Subgraph(
            flow, list(range(flow.graph.input_count)), flow.calls_of(0, at + 1), crossing
        )
        second[training] = Subgraph(
            flow, crossing, flow.calls_of(at + 1, flow.end + 1), [], flow.changed_behind(at)
        )
    front, back = (
        Front(model.training, first, found.flags),
        Back(model.training, second, found.flags),
    )
    rooms = _Rooms(model)
    rooms.furnish(front, first.values())
    rooms.furnish(
        back,
        second.values(),
        [name for side in second.values() for name in side.graph.result_state],
    )
    rooms.put_the_rest(front if split == len(found.splits) else back, beside=(front, back))
    return front, back


class _Rooms:
    """Where everything is in a model, to be put in the same places of its halves."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._names = defaultdict[int, list[str]](list)
        for name, part in model.named_modules(remove_duplicate=False):
            self._names[id(part)].append(name)
        for name, tensor in held_tensors(model):
            self._names[id(tensor)].append(name)

    def furnish(
        self, half: nn.Module, sides: Iterable[Subgraph], besides: Iterable[str] = ()
    ) -> None:
        """Put in a half what its calls use, and these tensors besides, under all the names that it has in the model."""
        calls = [call for side in sides for call in side.calls]
        layers = dict.fromkeys(call.target for call in calls if isinstance(call.target, str))
        tensors = dict.fromkeys((*besides, *(name for call in calls for name in call.read_state)))
        for name in (
            *sorted(layers, key=lambda name: name.count(".")),
            *tensors,
        ):  # a layer brings along what is in it
            thing = get_attribute(self._model, name)
            for each in self._names[id(thing)]:
                self._put(half, each, thing)

    def put_the_rest(self, half: nn.Module, beside: tuple[nn.Module, ...]) -> None:
        """Put in a half the tensors that no call uses."""
        placed = {id(tensor) for each in beside for _, tensor in held_tensors(each)}
        for name, tensor in held_tensors(self._model):
            if id(tensor) not in placed:
                self._put(half, name, tensor)

    def _put(self, half: nn.Module, name: str, thing: nn.Module | Tensor) -> None:
        here, there = half, self._model
        *parents, last = name.split(".")
        for parent in parents:
            there = there.get_submodule(parent)
            if parent not in here._modules:
                here.add_module(parent, Part())
            here = here.get_submodule(parent)
        if (
            last in here._modules
            or last in here._parameters
            or last in here._buffers
            or last in vars(here)
        ):
            return
        if last in there._buffers and isinstance(thing, Tensor):
            here.register_buffer(
                last, thing, persistent=last not in there._non_persistent_buffers_set
            )
        else:
            setattr(here, last, thing)
