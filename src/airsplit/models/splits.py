"""Outline: every legal split of a model, what it costs, and the calls on each side of it.

A model is recorded on the meta device in training and in evaluation mode, each for three batch sizes.  Work and data are those of
evaluation mode, as published figures are; what is kept for the backward pass is that of training mode.
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
from airsplit.models.costs import CostCounter
from airsplit.models.data_flow import DataFlow
from airsplit.models.inputs import get_input_names
from airsplit.models.tracing.batching import LARGE_BATCH, for_any_batch
from airsplit.models.tracing.graph import ALONE, FIRST_BATCH, Graph
from airsplit.models.tracing.isolation import LOCK, Caches
from airsplit.models.tracing.meta_copy import copy_to_meta, left_alone
from airsplit.models.tracing.tracer import ChangedByData, DrawsNumbers, trace
from airsplit.system.profile import Profile

TRIES = 5
"""So often a model is looked at that seems to draw random numbers while other threads run, which may have drawn them."""


@dataclass(frozen=True)
class IllegalSplit:
    """A place where the model cannot be cut: after which layer, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class SplitCandidate:
    """A place where the model could be cut: its name, and its position in evaluation and in training mode."""

    name: str
    evaluation: int
    training: int
    refusal: str | None


@dataclass(frozen=True, eq=False)
class ModelSplits:
    """A model's flow in both modes."""

    model: nn.Module
    evaluation: DataFlow
    training: DataFlow
    flags: Mapping[
        bool, Mapping[str, bool]
    ]  # in each mode, the mode of each part, as the model's own train() sets it

    def flow(self, training: bool) -> DataFlow:
        return self.training if training else self.evaluation

    # ---- where it can be cut -----------------------------------------------------------------------------------------------
    @cached_property
    def splits(self) -> list[SplitCandidate]:
        """The legal splits, in order."""
        return [row for row in self.rows if row.refusal is None]

    @property
    def illegal_splits(self) -> list[IllegalSplit]:
        return [IllegalSplit(row.name, row.refusal) for row in self.rows if row.refusal is not None]

    @cached_property
    def rows(self) -> list[SplitCandidate]:
        places = _places(self.evaluation)
        rows = [self._row(name, at, self._in_training.get(at)) for name, at in places[:-1]]
        return [*rows, SplitCandidate(places[-1][0], self.evaluation.end, self.training.end, None)]

    @cached_property
    def _in_training(self) -> dict[int, int]:
        """For each position in evaluation mode, the one of the same call in training mode."""
        one, other = self.evaluation.in_words, self.training.in_words
        if one == other:
            return {at: at for at in range(len(one))}
        blocks = SequenceMatcher(None, one, other, autojunk=False).get_matching_blocks()
        matched = {block.a + step: block.b + step for block in blocks for step in range(block.size)}
        return {at: self.training.end_of_group(there) for at, there in matched.items()}

    def _row(self, name: str, evaluation: int, training: int | None) -> SplitCandidate:
        if training is None:
            return SplitCandidate(name, evaluation, 0, "it does not run in training mode")
        refusal = (
            self.evaluation.refusal(evaluation)
            or self.training.refusal(training)
            or self._moved(evaluation, training)
        )
        return SplitCandidate(name, evaluation, training, refusal)

    def _moved(self, evaluation: int, training: int) -> str | None:
        """Why a cut that is legal in each mode is not legal in both: a parameter changes sides."""
        names, evaluated, trained = self._first_uses
        moved = np.flatnonzero((evaluated <= evaluation) != (trained <= training))
        return (
            f"{names[moved[0]]} is before the cut in one mode and behind it in the other"
            if len(moved)
            else None
        )

    @cached_property
    def _first_uses(self) -> tuple[list[str], Ints, Ints]:
        """The tensors that are used in both modes, and the position of their first use in each."""
        evaluated, trained = self.evaluation.state_uses, self.training.state_uses
        names = [name for name in evaluated if name in trained]
        return (
            names,
            np.array([evaluated[name][0] for name in names]),
            np.array([trained[name][0] for name in names]),
        )

    # ---- what it costs -----------------------------------------------------------------------------------------------------
    def profile(self) -> Profile:
        """One row per legal split; work and parameters of places that are not legal count for the next one that is."""
        flow, at = self.evaluation, [row.evaluation for row in self.splits]
        work, (passed, _) = flow.graph.work, flow.backward_pass

        def so_far(values: list[int]) -> Any:
            sums = flow.running(values)
            if sums[-1] > 2**61:
                raise InvalidValue(
                    f"model must take at most {2**61} MAC a sample, got {sums[-1]}; are its sizes right?"
                )
            return np.array(sums, dtype=np.int64)[at]

        kept = self.training.kept_elements()
        names = get_input_names(self.model, flow.graph.input_count)
        raw = self.evaluation.raw_data | self.training.raw_data
        # A mode in which an input crosses is enough: the server sees it then.
        crossing_inputs = [
            flow.crossing_inputs(row.evaluation) | self.training.crossing_inputs(row.training)
            for row in self.splits
        ]
        return Profile(
            names=[row.name for row in self.splits],
            layer_macs=np.diff(so_far([each.products + each.light for each in work]), prepend=0),
            matmul_macs=so_far([each.products for each in work]),
            activation_elements=np.array([flow.sent_elements(position) for position in at]),
            parameters=self._parameters(trained_only=False),
            stored_elements=np.array([kept[row.training] for row in self.splits]),
            backward_macs=so_far(
                [each.backward if number in passed else 0 for number, each in enumerate(work)]
            ),
            gradient_elements=np.array([flow.gradient_elements(position) for position in at]),
            trainable_parameters=self._parameters(trained_only=True),
            model=type(self.model).__name__,
            input_names=names,
            raw_inputs=[
                [names[at] for at in sorted(crossing & raw)] for crossing in crossing_inputs
            ],
            other_inputs=[
                [names[at] for at in sorted(crossing - raw)] for crossing in crossing_inputs
            ],
        )

    def _parameters(self, *, trained_only: bool) -> Any:
        """Parameters between each split and the one before; those that are never used belong to the last."""
        counts = np.zeros(len(self.splits), dtype=np.int64)
        for name, parameter in self.model.named_parameters():
            if parameter.requires_grad or not trained_only:
                counts[self.split_holding(name)] += parameter.numel()
        return counts

    @cached_property
    def _holders(self) -> dict[str, int]:
        holders: dict[str, int] = {}
        for training in (False, True):
            places = np.array([row.training if training else row.evaluation for row in self.splits])
            for name, (first, _) in self.flow(training).state_uses.items():
                index = int(np.searchsorted(places, first))
                holders.setdefault(name, min(index, len(self.splits) - 1))
        return holders

    def split_holding(self, name: str) -> int:
        """The first split whose front holds a tensor of the model, counted from zero."""
        return self._holders.get(self.evaluation.canonical[name], len(self.splits) - 1)


def find_splits(model: nn.Module, inputs: Sequence[Tensor]) -> ModelSplits:
    """Look at a model on the meta device; it is neither run nor moved nor changed."""
    if not inputs or inputs[0].dim() == 0:
        raise InvalidValue(
            f"inputs must be one tensor or more, the first with a batch axis, got {show(inputs)}; add one with [None]"
        )
    with LOCK:
        try:
            return _undisturbed(model, inputs)
        except ChangedByData as error:
            # many models have a branch for those who look at them without data, as torch.export does
            with patch.object(torch.compiler, "_is_compiling_flag", True):
                try:
                    return _undisturbed(model, inputs)
                except InvalidValue:
                    raise error from None


def _undisturbed(model: nn.Module, inputs: Sequence[Tensor]) -> ModelSplits:
    """The same, once more where another thread may have drawn the random numbers that the model seems to draw."""
    for _ in range(TRIES - 1):
        try:
            return _outline(model, inputs)
        except DrawsNumbers:
            if threading.active_count() == 1:
                raise
    return _outline(model, inputs)


def _outline(model: nn.Module, inputs: Sequence[Tensor]) -> ModelSplits:
    twin, bench, caches = copy_to_meta(model), CostCounter(), Caches()
    brief = bench.without_gradients()
    flags = {mode: _flags(twin.train(mode)) for mode in (not model.training, model.training)}
    if all(type(part).train is nn.Module.train for part in model.modules()):
        flags[model.training] = _flags(model)  # parts may have been put into another mode by hand

    def graph(training: bool, batch: int) -> Graph:
        for path, part in twin.named_modules():
            part.training = flags[training][path]
        try:
            with left_alone(twin):
                samples = [_resized(tensor, batch, len(inputs[0])) for tensor in inputs]
                found = trace(
                    twin, samples, model, brief if batch == LARGE_BATCH else bench
                )  # that one only bears the others out
                if batch == FIRST_BATCH:
                    _require_no_memory(found, lambda: trace(twin, samples, model, bench))
                return found
        finally:
            caches.forget_what_is_new()

    def flow(training: bool) -> DataFlow:
        return DataFlow(for_any_batch(lambda batch: graph(training, batch)), model)

    return ModelSplits(model, flow(training=False), flow(training=True), flags)


def _require_no_memory(graph: Graph, again: Callable[[], Graph]) -> None:
    """Raise where the model uses what a pass over other data left in it."""
    if not graph.left:
        return
    made_of_data = {
        slot
        for number in DataFlow(graph, nn.Module()).on_data
        for slot in graph.calls[number].outputs
    }
    left = {name for name, slot in graph.left.items() if slot in made_of_data}
    used = {
        name for call in (again().calls if left else ()) for name in call.read_state if name in left
    }
    if used:
        why = "which cannot be followed; keep it in a buffer and change that in place"
        raise InvalidValue(f"model keeps {min(used)} from one forward pass for the next, {why}")


def _flags(module: nn.Module) -> dict[str, bool]:
    return {path: part.training for path, part in module.named_modules(remove_duplicate=False)}


def _resized(tensor: Tensor, batch: int, given: int) -> Tensor:
    """An input for another batch; one whose first axis is not as long as the batch that was given has no batch axis."""
    batched = tensor.dim() > 0 and len(tensor) == given
    return torch.empty(
        (batch, *tensor.shape[1:]) if batched else tensor.shape, dtype=tensor.dtype, device="meta"
    )


def _places(flow: DataFlow) -> list[tuple[str, int]]:
    """Where a model could be cut: after each layer, after each module without layers, and after each function that does work.

    A function that only moves data is a place of its own where it leaves less to send.
    """
    places: list[tuple[str, int]] = []
    work = [each.products + each.light for each in flow.graph.work]
    least = sum(meta.elements for meta in flow.graph.specs[: flow.graph.input_count])
    for position, number in enumerate(flow.in_order):
        call = flow.graph.calls[number]
        if number not in flow.on_data or flow.end_of_group(position) > position:
            continue
        sent = flow.sent_elements(position)
        if call.group != ALONE or work[number] or sent < least:
            places.append((call.row, position))
            least = sent
    if flow.end < 0:
        raise InvalidValue("model must have at least one layer that works on its input, got none")
    if not places:
        places.append((flow.graph.calls[flow.in_order[-1]].row, flow.end))
    return places
