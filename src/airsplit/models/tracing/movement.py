"""What a call moves: which of the tensors that it is given are, number by number, in its results.

A number is moved by views, copies, casts, slices, permutations, padding, gathering and concatenation, whatever function
or layer is made of them. Arithmetic is the other side of the line: `x / 255` and `relu(x)` compute new numbers. So does
pooling, although its results are numbers of `x`, or means of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_leaves

from airsplit.models.tracing.graph import storage_of

# Operations of torch that move numbers, without the underscore of those that work in place.
# fmt: off
VIEWS = {
    "_conj", "_reshape_alias", "_unsafe_view", "alias", "as_strided", "detach", "diagonal", "expand", "lift_fresh", "permute",
    "reshape", "select", "slice", "split", "split_with_sizes", "squeeze", "t", "transpose", "unbind", "unfold", "unsqueeze",
    "view", "view_as_complex", "view_as_real",
}
COPIES = {
    "_pack_padded_sequence", "_to_copy", "_upsample_nearest_exact1d", "_upsample_nearest_exact2d",
    "_upsample_nearest_exact3d", "block_diag", "cat", "clone", "complex", "constant_pad_nd", "contiguous", "copy", "diag_embed", "lift",
    "lift_fresh_copy", "reflection_pad1d", "reflection_pad2d", "reflection_pad3d", "repeat", "replication_pad1d",
    "replication_pad2d", "replication_pad3d", "resolve_conj", "split_with_sizes_copy", "stack", "unsafe_split",
    "unsafe_split_with_sizes", "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d",
}
REARRANGEMENTS = {
    "channel_shuffle", "flip", "im2col", "native_channel_shuffle", "pixel_shuffle", "pixel_unshuffle", "roll", "rot90", "sort",
    "topk", "tril", "triu",
}
SELECTIONS = {
    "_unsafe_index", "as_strided_scatter", "diagonal_scatter", "gather", "index", "index_copy", "index_put", "index_select",
    "masked_fill", "masked_scatter", "masked_select", "scatter", "select_scatter", "slice_scatter", "take", "where",
}
# fmt: on
MOVES = VIEWS | COPIES | REARRANGEMENTS | SELECTIONS
# Of these only the first result has the numbers; the second has their places.
FIRST_RESULT_ONLY = {"sort", "topk"}
# These arguments say which numbers are moved, and are not moved themselves.
SELECTORS = {"condition", "index", "indices", "mask"}
# Operations that look rows up in a table, and the argument that is the table.
LOOKUPS = {
    "embedding": "weight",
    "_embedding_bag": "weight",
    "_embedding_bag_forward_only": "weight",
}
LOOKUPS |= dict.fromkeys(("gather", "index", "index_select", "take", "_unsafe_index"), "self")


class Movement:
    """Follows the tensors that one call is given through the operations of torch in it.

    Attributes:
        lookups: Pairs of places among the given tensors: an index, and the tables that it looks up. A layer's own table
            has no place.
    """

    def __init__(self, given: Sequence[Tensor]) -> None:
        self.lookups = set[tuple[int, frozenset[int]]]()
        # Views share memory and are made behind our back, so numbers are followed by memory and not by tensor.
        self._sources: dict[int, frozenset[int]] = {}
        self._written = set[int]()
        self._alive = list(given)  # or another tensor could get the same memory
        for place, tensor in enumerate(given):
            self._add(tensor, frozenset({place}))

    def held_by(self, tensor: Tensor) -> frozenset[int]:
        """Return the places of the given tensors whose numbers are in a tensor."""
        return self._sources.get(storage_of(tensor), frozenset())

    def written_into(self, tensor: Tensor) -> frozenset[int]:
        """Return the same for a tensor that was changed in place; nothing for others."""
        return self.held_by(tensor) if storage_of(tensor) in self._written else frozenset()

    def follow(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Take note of one operation of torch, after it was done."""
        name = func._overloadpacket.__name__
        name = name if name.startswith("_") else name.rstrip("_")
        arguments = list(_named_tensors(func, args, kwargs))
        if name in LOOKUPS:
            self._look_up(arguments, LOOKUPS[name])
        moved = frozenset[int]()
        if name in MOVES:
            moved = moved.union(
                *(
                    self.held_by(tensor)
                    for argument, tensor in arguments
                    if argument.name not in SELECTORS
                )
            )
        for argument, tensor in arguments:
            if argument.is_write:
                self._write(tensor, moved)
        if moved:
            results = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
            for tensor in results[:1] if name in FIRST_RESULT_ONLY else results:
                self._add(tensor, moved)

    def _add(self, tensor: Tensor, sources: frozenset[int]) -> None:
        self._alive.append(tensor)
        self._sources[storage_of(tensor)] = self.held_by(tensor) | sources

    def _write(self, tensor: Tensor, moved: frozenset[int]) -> None:
        """Something was written into a tensor; where it covers all of its memory, nothing else is left there."""
        self._written.add(storage_of(tensor))
        if tensor.numel() * tensor.element_size() >= tensor.untyped_storage().nbytes():
            self._sources.pop(storage_of(tensor), None)
        self._add(tensor, moved)

    def _look_up(self, arguments: list[tuple[Any, Tensor]], table: str) -> None:
        tables = frozenset[int]().union(
            *(self.held_by(tensor) for argument, tensor in arguments if argument.name == table)
        )
        for argument, tensor in arguments:
            if argument.name in SELECTORS:
                self.lookups.update((place, tables) for place in self.held_by(tensor))


def _named_tensors(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Iterator[tuple[Any, Tensor]]:
    """Return the tensors that an operation is given, each with its argument in the operation's schema."""
    for at, argument in enumerate(func._schema.arguments):
        value = args[at] if at < len(args) else kwargs.get(argument.name)
        for leaf in tree_leaves(value) if isinstance(value, list | tuple) else (value,):
            if isinstance(leaf, Tensor):
                yield argument, leaf
