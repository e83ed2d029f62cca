"""Follow the values that a call only copies: from which of its arguments to which of its results.

Views, copies, casts, slices, permutations, padding, gathering and concatenation copy values, and so
do functions and layers that are made of them. Arithmetic does not: `x / 255` and `relu(x)` compute
new values. Pooling counts as arithmetic, although its results are values of `x`, or means of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from airsplit.models.tracing.tensors import list_tensors, storage_id

# Operations of torch that copy values, without the final underscore of those that work in place.
# fmt: off
VIEWS = {
    "_conj", "_reshape_alias", "_unsafe_view", "alias", "as_strided", "detach", "diagonal",
    "expand", "lift_fresh", "permute", "reshape", "select", "slice", "split", "split_with_sizes",
    "squeeze", "t", "transpose", "unbind", "unfold", "unsqueeze", "view", "view_as_complex",
    "view_as_real",
}
COPIES = {
    "_pack_padded_sequence", "_to_copy", "_upsample_nearest_exact1d", "_upsample_nearest_exact2d",
    "_upsample_nearest_exact3d", "block_diag", "cat", "clone", "complex", "constant_pad_nd",
    "contiguous", "copy", "diag_embed", "lift", "lift_fresh_copy", "reflection_pad1d",
    "reflection_pad2d", "reflection_pad3d", "repeat", "replication_pad1d", "replication_pad2d",
    "replication_pad3d", "resolve_conj", "split_with_sizes_copy", "stack", "unsafe_split",
    "unsafe_split_with_sizes", "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d",
}
REARRANGEMENTS = {
    "channel_shuffle", "flip", "im2col", "native_channel_shuffle", "pixel_shuffle",
    "pixel_unshuffle", "roll", "rot90", "sort", "topk", "tril", "triu",
}
SELECTIONS = {
    "_unsafe_index", "as_strided_scatter", "diagonal_scatter", "gather", "index", "index_copy",
    "index_put", "index_select", "masked_fill", "masked_scatter", "masked_select", "scatter",
    "select_scatter", "slice_scatter", "take", "where",
}
# fmt: on
COPYING = VIEWS | COPIES | REARRANGEMENTS | SELECTIONS

# Only their first result has the numbers; the second has their positions.
FIRST_RESULT_ONLY = {"sort", "topk"}

# These arguments say which values are copied, and are not copied themselves.
SELECTORS = {"condition", "index", "indices", "mask"}

# Operations that look up rows of a table, and the argument that is the table.
LOOKUPS = {
    "embedding": "weight",
    "_embedding_bag": "weight",
    "_embedding_bag_forward_only": "weight",
}
LOOKUPS |= dict.fromkeys(("gather", "index", "index_select", "take", "_unsafe_index"), "self")


class CopiedValues:
    """Follows the tensor arguments of one call through the operations of torch in it.

    Arguments are identified by their places among the call's tensor arguments.

    Attributes:
        lookups: Pairs of an index and the tables that it looks up. The table of a layer has no
            place, as it is no argument.
    """

    def __init__(self, args: Sequence[Tensor]) -> None:
        self.lookups = set[tuple[int, frozenset[int]]]()
        # By memory and not by tensor: autograd makes views without any operation that is seen here.
        self._sources: dict[int, frozenset[int]] = {}
        self._written = set[int]()
        # Another tensor could get the memory of one that is gone.
        self._alive = list(args)
        for place, tensor in enumerate(args):
            self._add(tensor, frozenset({place}))

    def sources_of(self, tensor: Tensor) -> frozenset[int]:
        """Return the arguments whose values are in a tensor."""
        return self._sources.get(storage_id(tensor), frozenset())

    def written_sources_of(self, tensor: Tensor) -> frozenset[int]:
        """Return the arguments whose values are in a tensor, if it was changed in place."""
        if storage_id(tensor) in self._written:
            return self.sources_of(tensor)
        return frozenset()

    def follow(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Follow one operation of torch, after it has run."""
        name = func._overloadpacket.__name__
        if not name.startswith("_"):
            name = name.rstrip("_")
        # The tensors that the operation is given, each with its argument in the schema.
        tensor_args: list[tuple[Any, Tensor]] = []
        for place, argument in enumerate(func._schema.arguments):
            value = args[place] if place < len(args) else kwargs.get(argument.name)
            tensor_args += [(argument, tensor) for tensor in list_tensors(value)]

        if name in LOOKUPS:
            tables = frozenset[int]()
            for argument, tensor in tensor_args:
                if argument.name == LOOKUPS[name]:
                    tables |= self.sources_of(tensor)
            for argument, tensor in tensor_args:
                if argument.name in SELECTORS:
                    self.lookups.update((place, tables) for place in self.sources_of(tensor))

        copied = frozenset[int]()
        if name in COPYING:
            for argument, tensor in tensor_args:
                if argument.name not in SELECTORS:
                    copied |= self.sources_of(tensor)
        for argument, tensor in tensor_args:
            if argument.is_write:
                self._write(tensor, copied)

        if copied:
            results = list_tensors(result)
            if name in FIRST_RESULT_ONLY:
                results = results[:1]
            for tensor in results:
                self._add(tensor, copied)

    def _add(self, tensor: Tensor, sources: frozenset[int]) -> None:
        self._alive.append(tensor)
        self._sources[storage_id(tensor)] = self.sources_of(tensor) | sources

    def _write(self, tensor: Tensor, copied: frozenset[int]) -> None:
        self._written.add(storage_id(tensor))
        # Only a write that covers all of the memory replaces what was there.
        if tensor.numel() * tensor.element_size() >= tensor.untyped_storage().nbytes():
            self._sources.pop(storage_id(tensor), None)
        self._add(tensor, copied)
