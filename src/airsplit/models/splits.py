"""Find all legal splits of a model: what each costs, and which calls are on each side.

A model is traced on the meta device in evaluation and in training mode, each with three batch
sizes. Work and data are those of evaluation mode, as in published figures; saved tensors are those
of training mode.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, nn

from airsplit.core.arrays import Ints
from airsplit.core.errors import InvalidValue, show
from airsplit.models.data_flow import DataFlow
from airsplit.models.example_inputs import get_input_names
from airsplit.models.legality import find_obstacles
from airsplit.models.raw_inputs import RawInputs
from airsplit.models.tracing.batch_sizes import LARGE_BATCH, merge_batch_sizes
from airsplit.models.tracing.costs import CostCounter
from airsplit.models.tracing.graph import FIRST_BATCH, NO_GROUP, Graph
from airsplit.models.tracing.isolation import TRACING_LOCK, FunctionCaches, preserve_attributes
from airsplit.models.tracing.meta_copy import copy_to_meta
from airsplit.models.tracing.tracer import trace
from airsplit.models.tracing.untraceable import DataDependent, DrawsRandomNumbers
from airsplit.system.profile import Profile

# Attempts at a model that seems to draw random numbers: other threads may have drawn them.
MAX_ATTEMPTS = 5

# Beyond this the sums of a profile could overflow an int64.
MOST_MACS = 2**61


@dataclass(frozen=True)
class IllegalSplit:
    """A layer after which the model cannot be cut, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class SplitCandidate:
    """A place where the model could be cut.

    Attributes:
        name: The layer before it.
        evaluation: Its position in evaluation mode.
        training: Its position in training mode.
        obstacle: Why a cut there is illegal; None if it is legal.
    """

    name: str
    evaluation: int
    training: int
    obstacle: str | None


@dataclass(frozen=True, eq=False)
class ModelSplits:
    """A model's data flow in both modes, and its splits.

    Attributes:
        flags: For each mode, which submodules are in training mode. A model with its own train()
            may keep some of them in evaluation mode.
    """

    model: nn.Module
    evaluation: DataFlow
    training: DataFlow
    flags: Mapping[bool, Mapping[str, bool]]

    def flow(self, training: bool) -> DataFlow:
        return self.training if training else self.evaluation

    @cached_property
    def splits(self) -> list[SplitCandidate]:
        """The legal splits, in order."""
        return [candidate for candidate in self.candidates if candidate.obstacle is None]

    @property
    def illegal_splits(self) -> list[IllegalSplit]:
        return [
            IllegalSplit(candidate.name, candidate.obstacle)
            for candidate in self.candidates
            if candidate.obstacle is not None
        ]

    @cached_property
    def candidates(self) -> list[SplitCandidate]:
        """All places where the model could be cut, in order, legal or not."""
        places = list_places(self.evaluation)
        evaluation_obstacles = find_obstacles(self.evaluation)
        training_obstacles = find_obstacles(self.training)
        candidates = []
        for name, position in places[:-1]:
            training = self.training_positions.get(position)
            if training is None:
                # For example a softmax that only evaluation needs.
                obstacle: str | None = "it does not run in training mode"
                training = 0
            else:
                obstacle = (
                    evaluation_obstacles[position]
                    or training_obstacles[training]
                    or self._check_sides(position, training)
                )
            candidates.append(SplitCandidate(name, position, training, obstacle))

        # The whole model on the device is always legal.
        last_name, _ = places[-1]
        candidates.append(SplitCandidate(last_name, self.evaluation.end, self.training.end, None))
        return candidates

    @cached_property
    def training_positions(self) -> dict[int, int]:
        """For each position in evaluation mode, that of the same call in training mode."""
        evaluation = self.evaluation.signatures
        training = self.training.signatures
        if evaluation == training:
            return {position: position for position in range(len(evaluation))}
        # autojunk ignores frequent calls, such as those of a layer in a loop.
        matcher = SequenceMatcher(None, evaluation, training, autojunk=False)
        positions: dict[int, int] = {}
        for block in matcher.get_matching_blocks():
            for step in range(block.size):
                positions[block.a + step] = self.training.end_of_group(block.b + step)
        return positions

    def _check_sides(self, evaluation: int, training: int) -> str | None:
        """Reject cuts with a model tensor on another side in the other mode."""
        names, evaluation_uses, training_uses = self._first_uses
        swapped = np.flatnonzero((evaluation_uses <= evaluation) != (training_uses <= training))
        if not len(swapped):
            return None
        return f"{names[swapped[0]]} is before the cut in one mode and after it in the other"

    @cached_property
    def _first_uses(self) -> tuple[list[str], Ints, Ints]:
        """The model tensors used in both modes, and the position of their first use in each."""
        evaluation_uses = self.evaluation.state_uses
        training_uses = self.training.state_uses
        names = [name for name in evaluation_uses if name in training_uses]
        return (
            names,
            np.array([evaluation_uses[name][0] for name in names]),
            np.array([training_uses[name][0] for name in names]),
        )

    def profile(self) -> Profile:
        """Return a profile with one row per legal split.

        Work and parameters between illegal places count for the next legal split.
        """
        flow = self.evaluation
        costs = flow.graph.costs
        positions = [split.evaluation for split in self.splits]

        def cumulate(values: list[int]) -> Any:
            sums = flow.cumulate(values)
            if sums[-1] > MOST_MACS:
                raise InvalidValue(
                    f"model must take at most {MOST_MACS} MAC a sample, got {sums[-1]}; "
                    "are its sizes right?"
                )
            return np.array(sums, dtype=np.int64)[positions]

        backward_macs = [
            call.backward_macs if number in flow.backward_calls else 0
            for number, call in enumerate(costs)
        ]
        saved = self.training.saved_elements()
        names = get_input_names(self.model, flow.graph.input_count)
        raw, other = self.crossing_inputs()
        return Profile(
            names=[split.name for split in self.splits],
            layer_macs=np.diff(cumulate([call.macs for call in costs]), prepend=0),
            matmul_macs=cumulate([call.matmul_macs for call in costs]),
            activation_elements=np.array([flow.sent_elements(at) for at in positions]),
            parameters=self._count_parameters(trained_only=False),
            stored_elements=np.array([saved[split.training] for split in self.splits]),
            backward_macs=cumulate(backward_macs),
            gradient_elements=np.array([flow.gradient_elements(at) for at in positions]),
            trainable_parameters=self._count_parameters(trained_only=True),
            model=type(self.model).__name__,
            input_names=names,
            raw_inputs=[[names[number] for number in numbers] for numbers in raw],
            other_inputs=[[names[number] for number in numbers] for numbers in other],
        )

    def crossing_inputs(self) -> tuple[list[list[int]], list[list[int]]]:
        """Return for each split the raw inputs that it sends unchanged, and other such inputs."""
        evaluation = RawInputs(self.evaluation)
        training = RawInputs(self.training)
        raw_data = evaluation.raw | training.raw
        raw = []
        other = []
        for split in self.splits:
            # One mode in which an input crosses is enough: the server sees it then.
            crossing = evaluation.crossing(split.evaluation) | training.crossing(split.training)
            raw.append(sorted(crossing & raw_data))
            other.append(sorted(crossing - raw_data))
        return raw, other

    def _count_parameters(self, *, trained_only: bool) -> Any:
        """Return the parameters between each split and the one before.

        Parameters that are never used belong to the last.
        """
        counts = np.zeros(len(self.splits), dtype=np.int64)
        for name, parameter in self.model.named_parameters():
            if parameter.requires_grad or not trained_only:
                canonical = self.evaluation.canonical_names[name]
                counts[self.holders.get(canonical, len(self.splits) - 1)] += parameter.numel()
        return counts

    @cached_property
    def holders(self) -> dict[str, int]:
        """For each model tensor that is used, the first split with it in front, from zero."""
        holders: dict[str, int] = {}
        for training in (False, True):
            places = np.array(
                [split.training if training else split.evaluation for split in self.splits]
            )
            for name, (first, _) in self.flow(training).state_uses.items():
                # The first split at or behind the use. The output is past the end: use the last.
                index = int(np.searchsorted(places, first))
                holders.setdefault(name, min(index, len(self.splits) - 1))
        return holders


def find_splits(model: nn.Module, inputs: Sequence[Tensor]) -> ModelSplits:
    """Find the splits of a model on the meta device; the model itself is not run or changed.

    Args:
        inputs: Example inputs, the first with a batch axis.
    """
    if not inputs or inputs[0].dim() == 0:
        raise InvalidValue(
            "inputs must be one tensor or more, the first with a batch axis, "
            f"got {show(inputs)}; add one with [None]"
        )
    with TRACING_LOCK:
        try:
            return _find_splits_with_retries(model, inputs)
        except DataDependent as error:
            # Many models skip checks of their data while torch.export or torch.compile trace them.
            with patch.object(torch.compiler, "_is_compiling_flag", True):
                try:
                    return _find_splits_with_retries(model, inputs)
                except InvalidValue:
                    raise error from None


def _find_splits_with_retries(model: nn.Module, inputs: Sequence[Tensor]) -> ModelSplits:
    """Find splits; retry if another thread may have drawn the random numbers."""
    for _ in range(MAX_ATTEMPTS - 1):
        try:
            return _trace_modes(model, inputs)
        except DrawsRandomNumbers:
            if threading.active_count() == 1:
                raise
    return _trace_modes(model, inputs)


def _trace_modes(model: nn.Module, inputs: Sequence[Tensor]) -> ModelSplits:
    copied = copy_to_meta(model)
    counter = CostCounter()
    # The large batch only confirms the others: its gradients are not needed.
    quick_counter = counter.without_gradients()
    caches = FunctionCaches()

    # The model's own mode last, so that the copy ends in it.
    flags = {}
    for mode in (not model.training, model.training):
        flags[mode] = _training_flags(copied.train(mode))
    if all(type(submodule).train is nn.Module.train for submodule in model.modules()):
        # The user may have put submodules into another mode by hand.
        flags[model.training] = _training_flags(model)

    def trace_batch(training: bool, batch: int) -> Graph:
        for path, submodule in copied.named_modules():
            submodule.training = flags[training][path]
        samples = []
        for tensor in inputs:
            shape = tensor.shape
            # An input whose first axis is not as long as the example batch has no batch axis.
            if tensor.dim() > 0 and len(tensor) == len(inputs[0]):
                shape = torch.Size((batch, *shape[1:]))
            samples.append(torch.empty(shape, dtype=tensor.dtype, device="meta"))
        try:
            with preserve_attributes(copied):
                if batch == LARGE_BATCH:
                    return trace(copied, samples, model, quick_counter)
                graph = trace(copied, samples, model, counter)
                if batch == FIRST_BATCH:
                    require_stateless(graph, lambda: trace(copied, samples, model, counter))
                return graph
        finally:
            caches.clear_new_entries()

    def find_flow(training: bool) -> DataFlow:
        return DataFlow(merge_batch_sizes(lambda batch: trace_batch(training, batch)), model)

    return ModelSplits(model, find_flow(training=False), find_flow(training=True), flags)


def require_stateless(graph: Graph, trace_again: Callable[[], Graph]) -> None:
    """Raise if a second forward pass reads a plain attribute that the first made from data.

    Args:
        graph: The first pass.
        trace_again: Traces a second one, with the attributes that the first has set.
    """
    if not graph.assigned_slots:
        return
    data_slots = {
        slot
        for number in DataFlow(graph, nn.Module()).data_calls
        for slot in graph.calls[number].outputs
    }
    # An attribute without data, such as a cached mask, is the same in each pass.
    suspects = {name for name, slot in graph.assigned_slots.items() if slot in data_slots}
    if not suspects:
        return
    used = {name for call in trace_again().calls for name in call.read_state if name in suspects}
    if used:
        raise InvalidValue(
            f"model keeps {min(used)} from one forward pass to the next, "
            "which cannot be traced; keep it in a buffer and change that in place"
        )


def _training_flags(module: nn.Module) -> dict[str, bool]:
    modules = module.named_modules(remove_duplicate=False)
    return {path: submodule.training for path, submodule in modules}


def list_places(flow: DataFlow) -> list[tuple[str, int]]:
    """Return names and positions of all places where a model could be cut.

    A place is behind a layer, a module without layers, or a function that does work. A function
    that only moves data is one if it leaves less to send.
    """
    places: list[tuple[str, int]] = []
    specs = flow.graph.specs[: flow.graph.input_count]
    least_sent = sum(spec.elements for spec in specs)
    for position, number in enumerate(flow.ordered_calls):
        call = flow.graph.calls[number]
        if number not in flow.data_calls or flow.end_of_group(position) > position:
            continue
        sent = flow.sent_elements(position)
        is_module_call = call.group != NO_GROUP
        if is_module_call or flow.graph.costs[number].macs or sent < least_sent:
            places.append((call.name, position))
            least_sent = sent
    if flow.end < 0:
        raise InvalidValue("model must have at least one layer that works on its input, got none")
    if not places:
        places.append((flow.call_at(flow.end).name, flow.end))
    return places
