"""DataFlow: what a graph's cuts would send and tear apart.

Calls that depend on the data keep their order, and a cut is a prefix of it.  The others - masks, positions, tables made of
shapes alone - have no place in it: each side that needs them makes them itself, so they are never sent.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import torch
from torch import Tensor, nn

from airsplit.models.costs import float32s
from airsplit.models.tracing.graph import ALONE, Call, Graph, Slot, storage_of
from airsplit.models.tracing.source_location import Location, format_location
from airsplit.models.tracing.values import held_tensors

_HELD = -1
"""In the place of a slot: a tensor that the model holds, or a constant."""

BEFORE = -1
"""The position of the model's inputs: before the first call."""


@dataclass(frozen=True, eq=False)
class DataFlow:
    """A graph and the model that it was recorded from.  A position is a place among the calls in order."""

    graph: Graph
    model: nn.Module

    # ---- the order ---------------------------------------------------------------------------------------------------------
    @cached_property
    def in_order(self) -> list[int]:
        """The calls that depend on the data, draw random numbers or change the model's state, by their number on the graph."""
        return [number for number, fixed in enumerate(self._fixed) if fixed]

    @cached_property
    def _fixed(self) -> list[bool]:
        calls, metas = self.graph.calls, self.graph.specs
        fixed = [call.is_random or bool(call.written_state) for call in calls]
        data, memory = set(range(self.graph.input_count)), set[int]()
        while True:
            before = (sum(fixed), len(memory))
            for number, call in enumerate(calls):
                shares = any(metas[output].storage in memory for output in call.outputs)
                fixed[number] = fixed[number] or shares or not data.isdisjoint(call.read_slots)
                if fixed[number]:
                    data.update(call.outputs)
                    memory.update(self._memory(call.written_slots))
            if before == (sum(fixed), len(memory)):
                return fixed

    @cached_property
    def on_data(self) -> set[int]:
        """The calls that are given something made of the model's inputs."""
        memory, calls = self._memory(range(self.graph.input_count)), set[int]()
        for number in self.in_order:
            call = self.graph.calls[number]
            if not memory.isdisjoint(self._memory(call.read_slots)):
                memory |= self._memory((*call.outputs, *call.written_slots))
                calls.add(number)
        return calls

    def _memory(self, slots: Iterable[int]) -> set[int]:
        """The storages of slots."""
        return {self.graph.specs[slot].storage for slot in slots}

    @cached_property
    def end(self) -> int:
        """The position of the last call."""
        return len(self.in_order) - 1

    @cached_property
    def in_words(self) -> list[tuple[str, Location]]:
        """What the calls in order are, and where in the model's code: the same for the same calls in another mode."""
        return [
            (self.graph.calls[number].stem, self.graph.calls[number].where)
            for number in self.in_order
        ]

    def end_of_group(self, position: int) -> int:
        """The last position of the module call that is one row with this one."""
        group = self.graph.calls[self.in_order[position]].group
        while (
            group != ALONE
            and position < self.end
            and self.graph.calls[self.in_order[position + 1]].group == group
        ):
            position += 1
        return position

    @cached_property
    def position(self) -> dict[int, int]:
        """Where each slot of the data is made."""
        made = dict.fromkeys(range(self.graph.input_count), BEFORE)
        for position, number in enumerate(self.in_order):
            made.update(dict.fromkeys(self.graph.calls[number].outputs, position))
        return made

    # ---- what is made where it is needed -----------------------------------------------------------------------------------
    @cached_property
    def _maker(self) -> dict[int, int]:
        return {
            output: number
            for number, call in enumerate(self.graph.calls)
            for output in call.outputs
        }

    @cached_property
    def _free_writers(self) -> dict[int, list[int]]:
        """The calls out of order that change a storage in place."""
        writers = defaultdict(list)
        for number, call in enumerate(self.graph.calls):
            if not self._fixed[number]:
                for storage in self._memory(call.written_slots):
                    writers[storage].append(number)
        return writers

    def _makers(self, loose: Iterable[int]) -> set[int]:
        """The calls out of order that are needed to make these slots, which they return."""
        needed, waiting = set[int](), list(loose)
        while waiting:
            slot = waiting.pop()
            for number in (self._maker[slot], *self._free_writers[self.graph.specs[slot].storage]):
                if number not in needed:
                    needed.add(number)
                    waiting.extend(self.graph.calls[number].read_slots)
        return needed

    @cached_property
    def _needs(self) -> list[frozenset[int]]:
        """For each position, the calls out of order that it needs; last, those that the output needs."""
        known: dict[frozenset[int], frozenset[int]] = {}
        needs = []
        for read in (
            *(self.graph.calls[number].read_slots for number in self.in_order),
            self.graph.result_slots,
        ):
            loose = read.difference(self.position)
            if loose not in known:
                known[loose] = frozenset(self._makers(loose))
            needs.append(known[loose])
        return needs

    def calls_of(self, start: int, stop: int) -> list[Call]:
        """The calls from one position up to another, with what they need made before them; past the end lies the output."""
        numbers = set(self.in_order[start:stop]).union(
            *self._needs[start : stop + (stop > self.end)]
        )
        return [self.graph.calls[number] for number in sorted(numbers)]

    # ---- what is used where ------------------------------------------------------------------------------------------------
    def _users(self) -> Iterator[tuple[int, Call]]:
        """Every call with each position that it is made for; those that the output needs are past the end."""
        for position, needed in enumerate(self._needs):
            for number in (*self.in_order[position : position + 1], *needed):
                yield position, self.graph.calls[number]

    @cached_property
    def last_use(self) -> dict[int, int]:
        """The last position that reads each slot of the data; the output reads past the end."""
        last: dict[int, int] = {}
        for position, call in self._users():  # positions do not fall
            last.update(dict.fromkeys(call.read_slots, position))
        return last | dict.fromkeys(self.graph.result_slots, self.end + 1)

    @cached_property
    def state_uses(self) -> dict[str, tuple[int, int]]:
        """First and last position that uses each tensor of the model, under the first of its names."""
        uses: dict[str, tuple[int, int]] = {}
        used = (
            (position, (*call.read_state, *self._held_by(call))) for position, call in self._users()
        )
        for position, names in (
            *used,
            (self.end + 1, self.graph.result_state),
        ):  # positions do not fall
            for name in map(self.canonical.__getitem__, names):
                uses[name] = (uses[name][0] if name in uses else position, position)
        return uses

    @cached_property
    def canonical(self) -> dict[str, str]:
        """The first of the names of each tensor of the model, or of those that lie in the same memory."""
        first: dict[Hashable, str] = {}
        return {
            name: first.setdefault(_memory(tensor), name)
            for name, tensor in held_tensors(self.model)
        }

    def _held_by(self, call: Call) -> tuple[str, ...]:
        """The names of the tensors that a call's layer holds."""
        return self._held_by_layers[call.target] if isinstance(call.target, str) else ()

    @cached_property
    def _held_by_layers(self) -> dict[str, tuple[str, ...]]:
        paths = {call.target for call in self.graph.calls if isinstance(call.target, str)}
        held = {path: held_tensors(self.model.get_submodule(path)) for path in paths}
        return {
            path: tuple(f"{path}.{name}" for name, _ in tensors) for path, tensors in held.items()
        }

    @cached_property
    def whole_state(self) -> set[str]:
        """The tensors that must be on one side: parameters, what layers hold, and what is changed in place."""
        names = {
            name
            for name, tensor in held_tensors(self.model)
            if isinstance(tensor, nn.Parameter) or tensor.requires_grad
        }
        names.update(*((*call.written_state, *self._held_by(call)) for call in self.graph.calls))
        return {self.canonical[name] for name in names}

    # ---- cuts ----------------------------------------------------------------------------------------------------------------
    @cached_property
    def _crossings(self) -> list[list[int]]:
        """For each position, the slots that are made up to it and used behind it."""
        starts, stops = defaultdict(list), defaultdict(list)
        for slot, last in self.last_use.items():
            made = self.position.get(slot)
            if made is not None and last > made:
                starts[max(made, 0)].append(slot)
                stops[last].append(slot)
        live: dict[int, None] = {}
        crossings = []
        for position in range(self.end + 1):
            for slot in stops[position]:
                live.pop(slot, None)
            live.update(
                dict.fromkeys(slot for slot in starts[position] if self.last_use[slot] > position)
            )
            crossings.append(sorted(live))
        return crossings

    def crossing(self, position: int) -> list[int]:
        """The slots that a cut behind a position sends, in the order in which they are made."""
        return self._crossings[position]

    def sent_elements(self, position: int) -> int:
        """Elements per sample of what crosses."""
        return sum(self.graph.specs[slot].sent_elements for slot in self.crossing(position))

    def gradient_elements(self, position: int) -> int:
        """Elements per sample that come back: of what crosses, leads to a parameter that is trained, and gets a gradient."""
        metas, (_, reached) = self.graph.specs, self.backward_pass
        return sum(
            metas[slot].sent_elements
            for slot in self.crossing(position)
            if metas[slot].requires_grad and slot in reached
        )

    @cached_property
    def backward_pass(self) -> tuple[set[int], set[int]]:
        """The calls that the backward pass goes through, and the slots that it reaches, from the output to the parameters."""
        calls, slots = set[int](), set(self.graph.result_slots)
        for number in reversed(range(len(self.graph.calls))):
            call, work = self.graph.calls[number], self.graph.work[number]
            gives = any(
                flows and output in slots
                for output, flows in zip(call.outputs, work.requires_grad, strict=True)
            )
            if gives or (call.writes and call.grad):
                calls.add(number)
                slots |= call.read_slots
        return calls, slots

    def changed_behind(self, position: int) -> set[int]:
        """The crossing slots whose memory a call behind the cut changes in place."""
        storages = {storage for storage, last in self._last_write.items() if last > position}
        return {
            slot for slot in self.crossing(position) if self.graph.specs[slot].storage in storages
        }

    @cached_property
    def _last_write(self) -> dict[int, int]:
        writes: dict[int, int] = {}
        for position, number in enumerate(self.in_order):
            writes.update(
                dict.fromkeys(self._memory(self.graph.calls[number].written_slots), position)
            )
        return writes

    # ---- inputs that cross as they are -------------------------------------------------------------------------------------
    def crossing_inputs(self, position: int) -> set[int]:
        """Return the inputs that a cut behind a position sends unchanged, whole or in part, alone or beside other numbers.

        Unchanged means moved: by views, copies, casts, slices, permutations, padding and concatenation (`movement`).
        A part of a concatenation counts for all that was concatenated.
        """
        inputs = set[int]()
        for slot in self.crossing(position):
            inputs |= self._inputs_in[slot]
        return inputs

    @cached_property
    def _inputs_in(self) -> dict[int, frozenset[int]]:
        """For each slot, the inputs whose numbers are in it unchanged."""
        metas = self.graph.specs
        inputs_in = defaultdict[int, frozenset[int]](frozenset)
        in_memory = defaultdict[int, list[int]](list)  # the slots made so far, by storage

        def enter(slot: int, inputs: frozenset[int]) -> None:
            inputs_in[slot] |= inputs
            in_memory[metas[slot].storage].append(slot)

        for slot in range(self.graph.input_count):
            enter(slot, frozenset({slot}))
        for call, work in zip(self.graph.calls, self.graph.work, strict=True):
            given = [
                inputs_in[each.number] if isinstance(each, Slot) else frozenset[int]()
                for each in call.given
            ]
            for slot, sources in zip(call.outputs, work.moved, strict=True):
                enter(slot, frozenset().union(*(given[place] for place in sources)))
            for written, sources in zip(call.given, work.moved_into, strict=False):
                if isinstance(written, Slot):
                    moved = frozenset[int]().union(*(given[place] for place in sources))
                    for slot in in_memory[metas[written.number].storage]:
                        inputs_in[slot] |= moved
        return inputs_in

    @cached_property
    def raw_data(self) -> set[int]:
        """The inputs that are raw data: floating-point numbers, and integers that look up rows of a table the model holds."""
        metas = self.graph.specs
        floating = {
            slot
            for slot in range(self.graph.input_count)
            if metas[slot].dtype.is_floating_point or metas[slot].dtype.is_complex
        }
        return floating | self._looked_up

    @cached_property
    def _looked_up(self) -> set[int]:
        """The integer inputs from which, by way of integers alone, an index into a table is made."""
        integers = {slot for slot, meta in enumerate(self.graph.specs) if _is_integer(meta.dtype)}
        # What is moved may also be written into a tensor, as where tokens are shifted by one.
        made_of = defaultdict(set, {slot: integers & self._inputs_in[slot] for slot in integers})
        on_data = set(range(self.graph.input_count)).union(
            *(self.graph.calls[number].outputs for number in self.on_data)
        )
        found = set[int]()
        for call, work in zip(self.graph.calls, self.graph.work, strict=True):
            given = [each.number if isinstance(each, Slot) else _HELD for each in call.given]
            for index, tables in work.lookups:
                if not any(given[table] in on_data for table in tables):
                    found |= made_of[given[index]]
            sources = set().union(*(made_of[slot] for slot in given))
            for slot in integers.intersection(call.outputs):
                made_of[slot] |= sources
        return found

    # ---- what is not legal ---------------------------------------------------------------------------------------------------
    def refusal(self, position: int) -> str | None:
        """Why the model cannot be cut behind a position; None where it can."""
        return (
            self._raw(position)
            or self._torn[position]
            or self._without_batch(position)
            or self._seen_by_both(position)
        )

    def _raw(self, position: int) -> str | None:
        """A cut that sends every input as it is, before any parameter is used, is no split: the data would leave the device."""
        all_sent = set(range(self.graph.input_count)) <= set(self.crossing(position))
        return (
            "it would send the data itself, untouched by any parameter"
            if all_sent and position < self._first_parameter
            else None
        )

    @cached_property
    def _first_parameter(self) -> int:
        names = {self.canonical[name] for name, _ in self.model.named_parameters()}
        return min(
            (first for name, (first, _) in self.state_uses.items() if name in names),
            default=self.end + 1,
        )

    @cached_property
    def _torn(self) -> list[str | None]:
        torn: list[str | None] = [None] * (self.end + 1)
        for name, (first, last) in self.state_uses.items():
            if name in self.whole_state and first < last:
                why = (
                    f"{name} is used on both sides, by {self._row(first)} and by {self._row(last)}"
                )
                for position in range(first, min(last, self.end + 1)):
                    torn[position] = torn[position] or why
        return torn

    def _row(self, position: int) -> str:
        return (
            self.graph.calls[self.in_order[position]].row if position <= self.end else "the output"
        )

    def _without_batch(self, position: int) -> str | None:
        for slot in self.crossing(position):
            meta = self.graph.specs[slot]
            made = self.position[slot]
            it = f"what {self._row(made)} returns" if made > BEFORE else f"input {slot + 1}"
            if not meta.has_batch_axis:
                return f"{it} changes from batch to batch but has no batch axis, so it cannot be sent sample by sample"
            if not meta.is_per_sample:
                return f"{it} grows with the batch, but not sample by sample"
        return None

    def _seen_by_both(self, position: int) -> str | None:
        changed = self.changed_behind(position)
        storages = [self.graph.specs[slot].storage for slot in changed]
        if len(set(storages)) == len(storages):
            return None
        twice = next(storage for storage in storages if storages.count(storage) > 1)
        number = self.in_order[self._last_write[twice]]
        call = self.graph.calls[number]
        return f"{call.row} changes a tensor in place that is also needed as it was made before, at {format_location(call.where)}"

    def kept_elements(self) -> list[int]:
        """For each position, what the inputs take and the calls up to it keep for the backward pass, in elements per sample."""
        inputs = [self._kept_size(slot) for slot in range(self.graph.input_count)]
        seen = {self.graph.specs[slot].storage: size for slot, size in enumerate(inputs)}
        kept = []
        passed, _ = self.backward_pass
        for number, (call, work) in enumerate(zip(self.graph.calls, self.graph.work, strict=True)):
            if number not in passed:
                kept.append(0)
                continue
            references = (
                *(call.given[at] for at in work.kept_given),
                *(Slot(call.outputs[at]) for at in work.kept_results),
            )
            new = work.kept_besides
            for slot in (each.number for each in references if isinstance(each, Slot)):
                storage, size = self.graph.specs[slot].storage, self._kept_size(slot)
                new += max(0, size - seen.get(storage, 0))
                seen[storage] = max(size, seen.get(storage, 0))
            kept.append(new)
        return [sum(inputs) + so_far for so_far in self.running(kept)]

    def _kept_size(self, slot: int) -> int:
        meta = self.graph.specs[slot]
        return math.ceil(meta.elements * float32s(meta.dtype))

    def running(self, values: list[int]) -> list[int]:
        """Running sums, over positions, of a number per call of the graph; what a position needs made counts at its first use."""
        counted: set[int] = set()
        per_position = []
        for position, number in enumerate(self.in_order):
            new = ({number} | self._needs[position]) - counted
            counted |= new
            per_position.append(sum(values[each] for each in new))
        return list(accumulate(per_position))


def _is_integer(dtype: torch.dtype) -> bool:
    return not (dtype.is_floating_point or dtype.is_complex or dtype == torch.bool)


def _memory(tensor: Tensor) -> Hashable:
    """Equal for tensors that are one and the same, or lie in the same memory."""
    return (storage_of(tensor), tensor.storage_offset()) if tensor.numel() else id(tensor)
