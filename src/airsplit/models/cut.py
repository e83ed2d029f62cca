"""Cut a model into two halves, front and back, that share its parameters."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn

from airsplit.core.errors import InvalidValue
from airsplit.models.example_inputs import make_example_inputs
from airsplit.models.splits import ModelSplits, find_splits
from airsplit.models.tracing.graph import Call, Graph, TensorSpec
from airsplit.models.tracing.interpreter import (
    build_output,
    find_dead_slots,
    get_attribute,
    run_calls,
)
from airsplit.models.tracing.tensors import named_tensors


def cut(
    model: nn.Module,
    split: int | str,
    *,
    input_shape: Sequence[int] | None = None,
    inputs: Tensor | tuple[Tensor, ...] | None = None,
) -> tuple[Front, Back]:
    """Cut a model in two: `front` for the device, `back` for the server.

    front(*inputs) returns a tuple of all tensors that cross the cut; back(*tensors) returns what
    the model returns.

    Args:
        model: A torch.nn.Module. Both halves share its weights; nothing is copied.
        split: The name or number of a row of its profile.
        input_shape: The shape of one sample, without the batch axis. A built-in model needs none.
        inputs: Instead of a shape, a tensor or a tuple of tensors with a batch axis.

    >>> import torch
    >>> model = nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> front, back = cut(model, 2, input_shape=(8,))
    >>> x = torch.ones(5, 8)
    >>> [tensor.shape for tensor in front(x)], torch.equal(back(*front(x)), model(x))
    ([torch.Size([5, 4])], True)
    >>> list(front.state_dict()), list(back.state_dict())
    (['0.weight', '0.bias'], ['2.weight', '2.bias'])
    """
    splits = find_splits(model, make_example_inputs(model, input_shape, inputs))
    return cut_in_halves(splits, splits.profile().split_of(split))


class Subgraph:
    """The part of a graph that one half runs, in one mode.

    Attributes:
        inputs: The slots that it is given.
        outputs: The slots that it returns; those of a back are in the model's output.
        changed: The inputs that its calls change in place.
    """

    def __init__(
        self,
        graph: Graph,
        inputs: list[int],
        calls: list[Call],
        outputs: Iterable[int] = (),
        changed: Iterable[int] = (),
    ) -> None:
        self.graph = graph
        self.inputs = inputs
        self.calls = calls
        self.outputs = list(outputs)
        self.changed = changed
        # A back needs its share of the model's output in the end, whatever it returns.
        self._dead_slots = find_dead_slots(calls, (*self.outputs, *graph.output_slots))
        # A half may be cast, as by half.double(), unless a call names a type.
        self._fixes_dtype = any(
            isinstance(leaf, torch.dtype) for call in calls for leaf in call.leaves
        )
        # Index of the first input that has the batch size in its shape.
        self._batch_place = next(
            (place for place, slot in enumerate(inputs) if graph.specs[slot].has_batch_axis), None
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> Subgraph:
        # It is immutable, and holds nothing of the model: copies of a half may share it.
        return self

    def run(self, half: nn.Module, args: tuple[Tensor, ...]) -> dict[int, Tensor]:
        """Return the tensors of all slots that are needed in the end."""
        name = type(half).__name__.lower()
        are_tensors = all(isinstance(arg, Tensor) for arg in args)
        if len(args) != len(self.inputs) or not are_tensors:
            got = ", ".join(type(arg).__name__ for arg in args) or "nothing"
            raise InvalidValue(
                f"{name} must be given {len(self.inputs)} tensors, got {got}; "
                f"write {name}(*tensors)"
            )

        tensors: dict[int, Tensor] = {}
        for slot, tensor in zip(self.inputs, args, strict=True):
            spec = self.graph.specs[slot]
            self._require_match(spec, tensor)
            tensors[slot] = spec.restore_layout(tensor)
        # The sender's tensor must stay as it is, and autograd does not let a leaf be changed.
        for slot in self.changed:
            tensors[slot] = tensors[slot].clone()

        batch = 0
        if self._batch_place is not None:
            spec = self.graph.specs[self.inputs[self._batch_place]]
            batch = spec.batch_size_of(args[self._batch_place])
        run_calls(half, self.calls, self._dead_slots, tensors, batch, args[0].device)
        return tensors

    def _require_match(self, spec: TensorSpec, tensor: Tensor) -> None:
        if not spec.matches(tensor):
            raise InvalidValue(
                "tensors must have the sizes that the model was cut for, "
                f"{spec.symbolic_shape}, got {tuple(tensor.shape)}; cut it for others"
            )
        if tensor.dtype != spec.dtype and self._fixes_dtype:
            raise InvalidValue(
                "tensors must have the type that the model was cut for, "
                f"{spec.dtype}, got {tensor.dtype}; cut it again after changing its type"
            )


class Half(nn.Module):
    """One side of a cut. Its tensors are those of the model, under the same names."""

    # Attributes share a namespace with the model's submodules, so their names must be unusual.
    _airsplit_subgraphs: dict[bool, Subgraph]
    _airsplit_flags: Mapping[bool, Mapping[str, bool]]

    def __init__(
        self,
        training: bool,
        subgraphs: dict[bool, Subgraph],
        flags: Mapping[bool, Mapping[str, bool]],
    ) -> None:
        super().__init__()
        self.training = training
        self._airsplit_subgraphs = subgraphs
        self._airsplit_flags = flags

    def train(self, mode: bool = True) -> Self:
        """Set the mode of each submodule as the model's own train() would.

        Submodules that the model keeps in evaluation mode stay in it.
        """
        for path, submodule in self.named_modules():
            submodule.training = self._airsplit_flags[mode].get(path, mode)
        self.training = mode
        return self


def get_subgraph(half: Half, training: bool) -> Subgraph:
    """Return what a half runs in a mode."""
    # A method of Half could have the name of one of the model's submodules.
    return half._airsplit_subgraphs[training]


class Front(Half):
    """The first layers: from the model's inputs to all tensors that cross the cut."""

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        subgraph = get_subgraph(self, self.training)
        tensors = subgraph.run(self, inputs)
        return tuple(tensors[slot] for slot in subgraph.outputs)


class Back(Half):
    """The other layers: from the tensors that cross the cut to the model's output."""

    def forward(self, *crossing: Tensor) -> Any:
        subgraph = get_subgraph(self, self.training)
        return build_output(subgraph.graph, self, subgraph.run(self, crossing))


class PartialModule(nn.Module):
    """Stands in a half for a module of the model that is on both sides."""

    # It only has children: the half runs calls of the graph, and never this module.


def cut_in_halves(splits: ModelSplits, split: int) -> tuple[Front, Back]:
    """Return the halves of a model at a split, counted from one."""
    model = splits.model
    candidate = splits.splits[split - 1]
    front_subgraphs: dict[bool, Subgraph] = {}
    back_subgraphs: dict[bool, Subgraph] = {}
    for training, position in ((False, candidate.evaluation), (True, candidate.training)):
        flow = splits.flow(training)
        inputs = list(range(flow.graph.input_count))
        crossing = flow.crossings[position]
        front_subgraphs[training] = Subgraph(
            flow.graph, inputs, flow.calls_between(0, position + 1), outputs=crossing
        )
        back_subgraphs[training] = Subgraph(
            flow.graph,
            crossing,
            flow.calls_between(position + 1, flow.end + 1),
            changed=flow.slots_changed_behind(position),
        )

    front = Front(model.training, front_subgraphs, splits.flags)
    back = Back(model.training, back_subgraphs, splits.flags)
    builder = _HalfBuilder(model)
    builder.add_used(front, front_subgraphs.values())
    builder.add_used(back, back_subgraphs.values(), with_output=True)
    # At the last split the device has the whole model, and the back is the identity.
    rest: Half = back
    if split == len(splits.splits):
        rest = front
    builder.add_unused(rest, halves=(front, back))
    return front, back


class _HalfBuilder:
    """Puts modules and tensors of a model into its halves, under the names they have in it."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._names = defaultdict[int, list[str]](list)
        for name, submodule in model.named_modules(remove_duplicate=False):
            self._names[id(submodule)].append(name)
        for name, tensor in named_tensors(model):
            self._names[id(tensor)].append(name)

    def add_used(
        self, half: nn.Module, subgraphs: Collection[Subgraph], *, with_output: bool = False
    ) -> None:
        """Add layers and tensors that subgraphs use, or return as a part of the model's output."""
        layers: dict[str, None] = {}
        tensors: dict[str, None] = {}
        if with_output:
            for subgraph in subgraphs:
                tensors.update(dict.fromkeys(subgraph.graph.output_state))
        for call in (call for subgraph in subgraphs for call in subgraph.calls):
            tensors.update(dict.fromkeys(call.read_state))
            if isinstance(call.target, str):
                layers[call.target] = None
        # Outer layers first: they bring their submodules with them.
        by_depth = sorted(layers, key=lambda name: name.count("."))
        for name in (*by_depth, *tensors):
            value = get_attribute(self._model, name)
            for alias in self._names[id(value)]:
                self._attach(half, alias, value)

    def add_unused(self, half: nn.Module, *, halves: tuple[nn.Module, ...]) -> None:
        """Add the tensors that are in neither of the halves, as no call uses them."""
        used = {id(tensor) for user in halves for _, tensor in named_tensors(user)}
        for name, tensor in named_tensors(self._model):
            if id(tensor) not in used:
                self._attach(half, name, tensor)

    def _attach(self, half: nn.Module, name: str, value: nn.Module | Tensor) -> None:
        target = half
        source = self._model
        *parents, last = name.split(".")
        for parent in parents:
            source = source.get_submodule(parent)
            if parent not in target._modules:
                target.add_module(parent, PartialModule())
            target = target.get_submodule(parent)

        # It came with an outer layer, or under another name of the same module.
        registries = (target._modules, target._parameters, target._buffers, vars(target))
        if any(last in registry for registry in registries):
            return
        # setattr would make a plain attribute of it, which state_dict() and to() leave out.
        if last in source._buffers and isinstance(value, Tensor):
            persistent = last not in source._non_persistent_buffers_set
            target.register_buffer(last, value, persistent=persistent)
        else:
            setattr(target, last, value)
