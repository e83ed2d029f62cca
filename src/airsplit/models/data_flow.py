"""The data flow of a graph: in which order calls must run, and what each cut sends.

Calls that depend on the data keep their order, and a cut is a prefix of it. Other calls, which make
masks, positions and tables from shapes alone, have no place in it: each side of a cut runs those
that it needs, so their results are never sent.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from torch import nn

from airsplit.models.tracing.costs import float32_equivalents
from airsplit.models.tracing.graph import NO_GROUP, Call, Graph, Slot
from airsplit.models.tracing.source_location import Location
from airsplit.models.tracing.tensors import named_tensors, storage_id

# The position of the model's inputs: before the first call.
BEFORE = -1


@dataclass(frozen=True, eq=False)
class DataFlow:
    """A graph and the model that it was traced from.

    Calls are identified by their number in the graph. A position is a place among the ordered
    calls; a cut at a position comes right behind it.
    """

    graph: Graph
    model: nn.Module

    @cached_property
    def ordered_calls(self) -> list[int]:
        """The calls that depend on the data, draw random numbers or change the model's state."""
        return [number for number, is_ordered in enumerate(self._is_ordered) if is_ordered]

    @cached_property
    def _is_ordered(self) -> list[bool]:
        calls = self.graph.calls
        is_ordered = [call.is_random or bool(call.written_state) for call in calls]
        data = set(range(self.graph.input_count))
        storages = set[int]()
        # A call that creates a buffer becomes ordered by a later one that writes data into it, and
        # then all calls that read the buffer do: repeat until nothing changes.
        while True:
            before = (sum(is_ordered), len(storages))
            for number, call in enumerate(calls):
                shares = not storages.isdisjoint(self.storages_of(call.outputs))
                reads_data = not data.isdisjoint(call.read_slots)
                is_ordered[number] = is_ordered[number] or shares or reads_data
                if is_ordered[number]:
                    data.update(call.outputs)
                    storages.update(self.storages_of(call.written_slots))
            if before == (sum(is_ordered), len(storages)):
                return is_ordered

    @cached_property
    def data_calls(self) -> set[int]:
        """The calls with an argument that is made from the model's inputs.

        Unlike the ordered calls they leave out those that only draw or count.
        """
        storages = self.storages_of(range(self.graph.input_count))
        data_calls = set[int]()
        for number in self.ordered_calls:
            call = self.graph.calls[number]
            if not storages.isdisjoint(self.storages_of(call.read_slots)):
                storages |= self.storages_of((*call.outputs, *call.written_slots))
                data_calls.add(number)
        return data_calls

    def storages_of(self, slots: Iterable[int]) -> set[int]:
        return {self.graph.specs[slot].storage for slot in slots}

    @property
    def end(self) -> int:
        """The position of the last call."""
        return len(self.ordered_calls) - 1

    def call_at(self, position: int) -> Call:
        return self.graph.calls[self.ordered_calls[position]]

    @cached_property
    def signatures(self) -> list[tuple[str, Location]]:
        """Name and source line of each ordered call, which are the same in another mode."""
        calls = (self.graph.calls[number] for number in self.ordered_calls)
        return [(call.base_name, call.location) for call in calls]

    def end_of_group(self, position: int) -> int:
        """Return the last position of the group that a position is in."""
        group = self.call_at(position).group
        if group != NO_GROUP:
            while position < self.end and self.call_at(position + 1).group == group:
                position += 1
        return position

    @cached_property
    def positions(self) -> dict[int, int]:
        """The position at which each slot is filled, for slots that depend on the data."""
        positions = dict.fromkeys(range(self.graph.input_count), BEFORE)
        for position, number in enumerate(self.ordered_calls):
            positions.update(dict.fromkeys(self.graph.calls[number].outputs, position))
        return positions

    @cached_property
    def _required_calls(self) -> list[frozenset[int]]:
        """For each position, and last for the output, the unordered calls that it needs."""
        producers: dict[int, int] = {}
        writers = defaultdict[int, list[int]](list)  # by storage
        for number, call in enumerate(self.graph.calls):
            producers.update(dict.fromkeys(call.outputs, number))
            if not self._is_ordered[number]:
                for storage in self.storages_of(call.written_slots):
                    writers[storage].append(number)

        def list_producers(slots: Iterable[int]) -> frozenset[int]:
            numbers = set[int]()
            pending = list(slots)
            while pending:
                slot = pending.pop()
                # A mask may be created by one call and filled by others.
                for number in (producers[slot], *writers[self.graph.specs[slot].storage]):
                    if number not in numbers:
                        numbers.add(number)
                        pending.extend(self.graph.calls[number].read_slots)
            return frozenset(numbers)

        # Most calls need none, or the same as others, such as one mask for all layers.
        known: dict[frozenset[int], frozenset[int]] = {}
        required = []
        reads = [self.graph.calls[number].read_slots for number in self.ordered_calls]
        for read in (*reads, self.graph.output_slots):
            unordered = read.difference(self.positions)
            if unordered not in known:
                known[unordered] = list_producers(unordered)
            required.append(known[unordered])
        return required

    def calls_between(self, start: int, stop: int) -> list[Call]:
        """Return the calls from one position up to another, and the unordered ones they need.

        Past the end lies the output, which may need unordered calls, too.
        """
        if stop > self.end:
            required = self._required_calls[start:]
        else:
            required = self._required_calls[start:stop]
        numbers = set(self.ordered_calls[start:stop]).union(*required)
        return [self.graph.calls[number] for number in sorted(numbers)]

    def _uses(self) -> Iterator[tuple[int, Call]]:
        """Yield each call with every position that needs it, by position; the output is last."""
        for position, required in enumerate(self._required_calls):
            for number in (*self.ordered_calls[position : position + 1], *required):
                yield position, self.graph.calls[number]

    @cached_property
    def last_use(self) -> dict[int, int]:
        """The last position that reads each slot; the output reads past the end."""
        last: dict[int, int] = {}
        for position, call in self._uses():
            # Later positions overwrite earlier ones.
            last.update(dict.fromkeys(call.read_slots, position))
        return last | dict.fromkeys(self.graph.output_slots, self.end + 1)

    @cached_property
    def state_uses(self) -> dict[str, tuple[int, int]]:
        """First and last position that uses each model tensor, by its canonical name."""
        uses: dict[str, tuple[int, int]] = {}

        def add(name: str, position: int) -> None:
            name = self.canonical_names[name]
            first, _ = uses.get(name, (position, position))
            uses[name] = (first, position)

        for position, call in self._uses():
            for name in (*call.read_state, *self._layer_state.get(call.target, ())):
                add(name, position)
        for name in self.graph.output_state:
            add(name, self.end + 1)
        return uses

    @cached_property
    def canonical_names(self) -> dict[str, str]:
        """The first of the names of each model tensor, or of all in the same memory."""
        names: dict[str, str] = {}
        first: dict[Hashable, str] = {}
        for name, tensor in named_tensors(self.model):
            memory: Hashable = (storage_id(tensor), tensor.storage_offset())
            if not tensor.numel():
                # All empty tensors may begin at the same place.
                memory = id(tensor)
            names[name] = first.setdefault(memory, name)
        return names

    @cached_property
    def _layer_state(self) -> dict[Hashable, tuple[str, ...]]:
        """For each call target that is a layer, the names of its tensors."""
        states: dict[Hashable, tuple[str, ...]] = {}
        for call in self.graph.calls:
            path = call.target
            if isinstance(path, str) and path not in states:
                tensors = named_tensors(self.model.get_submodule(path))
                states[path] = tuple(f"{path}.{name}" for name, _ in tensors)
        return states

    @cached_property
    def indivisible_state(self) -> set[str]:
        """The model tensors that one side must hold alone, by their canonical names.

        These are parameters, the tensors of layers, and what is changed in place. A constant buffer
        may be on both sides.
        """
        names = {
            name
            for name, tensor in named_tensors(self.model)
            if isinstance(tensor, nn.Parameter) or tensor.requires_grad
        }
        for call in self.graph.calls:
            names.update(call.written_state, self._layer_state.get(call.target, ()))
        return {self.canonical_names[name] for name in names}

    @cached_property
    def crossings(self) -> list[list[int]]:
        """For each position, the slots that a cut sends, in the order in which they are filled.

        They are filled up to the position and read behind it.
        """
        starts = defaultdict[int, list[int]](list)
        stops = defaultdict[int, list[int]](list)
        for slot, last in self.last_use.items():
            filled = self.positions.get(slot)
            if filled is not None and last > filled:
                # Inputs are there before position 0, where the first cut is.
                starts[max(filled, 0)].append(slot)
                stops[last].append(slot)

        live = set[int]()
        crossings = []
        for position in range(self.end + 1):
            # The call at its last use is in front of the cut, so the slot need not cross.
            live.difference_update(stops[position])
            live.update(slot for slot in starts[position] if self.last_use[slot] > position)
            crossings.append(sorted(live))
        return crossings

    def sent_elements(self, position: int) -> int:
        """Return the elements per sample that a cut sends."""
        return sum(self.graph.specs[slot].sent_elements for slot in self.crossings[position])

    def gradient_elements(self, position: int) -> int:
        """Return the elements per sample whose gradients a cut sends back.

        These depend on a trained parameter in the front, and the backward pass of the back reaches
        them.
        """
        _, reached = self._backward_pass
        specs = self.graph.specs
        return sum(
            specs[slot].sent_elements
            for slot in self.crossings[position]
            if specs[slot].requires_grad and slot in reached
        )

    @property
    def backward_calls(self) -> set[int]:
        """The calls that the backward pass goes through."""
        return self._backward_pass[0]

    @cached_property
    def _backward_pass(self) -> tuple[set[int], set[int]]:
        """The calls that the backward pass goes through, and the slots that it reaches."""
        backward_calls = set[int]()
        slots = set(self.graph.output_slots)
        for number in reversed(range(len(self.graph.calls))):
            call = self.graph.calls[number]
            requires_grad = self.graph.costs[number].requires_grad
            is_reached = any(
                needed and output in slots
                for output, needed in zip(call.outputs, requires_grad, strict=True)
            )
            # A write may be reached through other slots in the same memory: assume that it is.
            if is_reached or (call.writes and call.grad_enabled):
                backward_calls.add(number)
                slots |= call.read_slots
        return backward_calls, slots

    def slots_changed_behind(self, position: int) -> set[int]:
        """Return the slots that a cut sends and a call behind it changes in place."""
        storages = {storage for storage, last in self.last_writes.items() if last > position}
        crossing = self.crossings[position]
        return {slot for slot in crossing if self.graph.specs[slot].storage in storages}

    @cached_property
    def last_writes(self) -> dict[int, int]:
        """The last position that changes each storage in place."""
        last: dict[int, int] = {}
        for position, number in enumerate(self.ordered_calls):
            storages = self.storages_of(self.graph.calls[number].written_slots)
            last.update(dict.fromkeys(storages, position))
        return last

    def saved_elements(self) -> list[int]:
        """Return for each position what a front saves for the backward pass, per sample.

        These are the inputs, and what autograd saves for the calls up to the position. What several
        calls save counts once.
        """
        inputs = [self._saved_size(slot) for slot in range(self.graph.input_count)]
        seen = {self.graph.specs[slot].storage: size for slot, size in enumerate(inputs)}
        saved = []
        for number, (call, costs) in enumerate(
            zip(self.graph.calls, self.graph.costs, strict=True)
        ):
            if number not in self.backward_calls:
                saved.append(0)
                continue
            args = [call.tensor_args[place] for place in costs.saved_args]
            slots = [arg.number for arg in args if isinstance(arg, Slot)]
            slots += [call.outputs[place] for place in costs.saved_results]
            new = costs.saved_extra
            for slot in slots:
                # Views of different sizes may share a storage: the largest counts.
                storage = self.graph.specs[slot].storage
                size = self._saved_size(slot)
                new += max(0, size - seen.get(storage, 0))
                seen[storage] = max(size, seen.get(storage, 0))
            saved.append(new)
        return [sum(inputs) + total for total in self.cumulate(saved)]

    def _saved_size(self, slot: int) -> int:
        spec = self.graph.specs[slot]
        return math.ceil(spec.elements * float32_equivalents(spec.dtype))

    def cumulate(self, values: list[int]) -> list[int]:
        """Return running sums over positions of a number per call.

        An unordered call counts at the first position that needs it.
        """
        counted = set[int]()
        per_position = []
        # Both sides may run an unordered call, but in the whole model it runs once.
        for position, number in enumerate(self.ordered_calls):
            new = ({number} | self._required_calls[position]) - counted
            counted |= new
            per_position.append(sum(values[call] for call in new))
        return list(accumulate(per_position))
