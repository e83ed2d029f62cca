"""Tensors in values, in modules and in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn
from torch.utils._pytree import tree_leaves


def list_tensors(value: Any) -> list[Tensor]:
    """Return all tensors in tuples, lists and dictionaries, in order."""
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]


def named_tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield all tensors of a module with their dotted names.

    Besides parameters and buffers these are plain attributes, and a shared tensor comes once under
    each of its names.
    """
    for path, submodule in module.named_modules(remove_duplicate=False):
        attributes = {**submodule._parameters, **submodule._buffers, **vars(submodule)}
        for name, value in attributes.items():
            if isinstance(value, Tensor):
                yield f"{path}.{name}".lstrip("."), value


def storage_id(tensor: Tensor) -> int:
    """Return a number that is equal for tensors in the same memory, as long as they live."""
    # Not data_ptr(), which is 0 for every tensor on the meta device.
    return int(tensor.untyped_storage()._cdata)
