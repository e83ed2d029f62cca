"""Find which inputs of a model a cut sends unchanged."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property

import torch

from airsplit.models.data_flow import DataFlow
from airsplit.models.tracing.graph import Slot

# In the place of a slot: a tensor of the model, or a constant.
_NO_SLOT = -1


@dataclass(frozen=True, eq=False)
class RawInputs:
    """Follows a model's inputs, known by their numbers, through its graph.

    An input is unchanged if its values are only copied: by views, casts, slices, permutations,
    padding and concatenation (`copied_values`). A part of a concatenation counts for all that was
    concatenated.
    """

    flow: DataFlow

    def crossing(self, position: int) -> set[int]:
        """Return the inputs that a cut sends unchanged, in whole or in part."""
        slots = self.flow.crossings[position]
        return set[int]().union(*(self._inputs_in[slot] for slot in slots))

    @cached_property
    def _inputs_in(self) -> dict[int, frozenset[int]]:
        """For each slot, the inputs whose values are in it unchanged."""
        graph = self.flow.graph
        inputs_in = defaultdict[int, frozenset[int]](frozenset)
        filled_slots = defaultdict[int, list[int]](list)  # by storage

        def fill(slot: int, inputs: frozenset[int]) -> None:
            inputs_in[slot] |= inputs
            filled_slots[graph.specs[slot].storage].append(slot)

        for slot in range(graph.input_count):
            fill(slot, frozenset({slot}))
        for call, costs in zip(graph.calls, graph.costs, strict=True):
            arg_inputs = [
                inputs_in[arg.number] if isinstance(arg, Slot) else frozenset[int]()
                for arg in call.tensor_args
            ]
            for slot, sources in zip(call.outputs, costs.copied, strict=True):
                fill(slot, frozenset().union(*(arg_inputs[place] for place in sources)))
            # A write through a view is in every slot of the same memory.
            for arg, sources in zip(call.tensor_args, costs.copied_into, strict=False):
                if isinstance(arg, Slot):
                    copied = frozenset[int]().union(*(arg_inputs[place] for place in sources))
                    for slot in filled_slots[graph.specs[arg.number].storage]:
                        inputs_in[slot] |= copied
        return inputs_in

    @cached_property
    def raw(self) -> set[int]:
        """The inputs that are raw data.

        These are floating-point numbers, and integers that look up rows of a table of the model,
        such as token ids. Masks and lengths are not.
        """
        specs = self.flow.graph.specs
        floating = {
            slot
            for slot in range(self.flow.graph.input_count)
            if specs[slot].dtype.is_floating_point or specs[slot].dtype.is_complex
        }
        return floating | self.looked_up

    @cached_property
    def looked_up(self) -> set[int]:
        """The integer inputs of which integer operations alone make an index into a table."""
        graph = self.flow.graph
        integers = set[int]()
        for slot, spec in enumerate(graph.specs):
            dtype = spec.dtype
            # Not bool: a mask may select rows, but its numbers do not look them up.
            if not (dtype.is_floating_point or dtype.is_complex or dtype == torch.bool):
                integers.add(slot)
        # Not only by calls: tokens that are shifted by one are written into a new tensor.
        made_from = defaultdict(set, {slot: integers & self._inputs_in[slot] for slot in integers})
        data_slots = set(range(graph.input_count)).union(
            *(graph.calls[number].outputs for number in self.flow.data_calls)
        )

        looked_up = set[int]()
        for call, costs in zip(graph.calls, graph.costs, strict=True):
            slots = [arg.number if isinstance(arg, Slot) else _NO_SLOT for arg in call.tensor_args]
            for index, tables in costs.lookups:
                # An index into the data itself, such as a length, reveals no row of a table.
                if not any(slots[table] in data_slots for table in tables):
                    looked_up |= made_from[slots[index]]
            sources = set().union(*(made_from[slot] for slot in slots))
            for slot in integers.intersection(call.outputs):
                made_from[slot] |= sources
        return looked_up
