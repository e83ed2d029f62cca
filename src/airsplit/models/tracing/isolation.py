"""Global state that tracing pins and restores: torch settings, random numbers, caches, modules."""

from __future__ import annotations

import functools
import gc
import random
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.distributions import Distribution

# Tracing changes how modules are called in the whole process: one thread at a time.
TRACING_LOCK = threading.RLock()


@contextmanager
def tracing_mode() -> Iterator[None]:
    """Create tensors without storage; compile, fuse and validate nothing; allow gradients."""
    fast_path = torch.backends.mha.get_fastpath_enabled()
    validates = Distribution._validate_args
    # In evaluation mode transformers take a fused path that hides their matrix products.
    torch.backends.mha.set_fastpath_enabled(False)
    # Distributions compare their arguments with bounds, but there are no values to compare.
    Distribution.set_default_validate_args(False)
    try:
        with (
            torch.inference_mode(False),
            torch.enable_grad(),
            torch.compiler.set_stance("force_eager"),
            torch.device("meta"),
        ):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast_path)
        Distribution.set_default_validate_args(validates)


class RngState:
    """Snapshot of the random number generators of Python and numpy.

    On the meta device torch itself draws nothing.
    """

    def __init__(self) -> None:
        self._python = random.getstate()
        self._numpy = np.random.get_state()  # noqa: NPY002 - models may still use it

    def restore(self) -> bool:
        """Put the generators back; return whether any number had been drawn."""
        now = np.random.get_state()  # noqa: NPY002
        is_same = random.getstate() == self._python and all(
            np.array_equal(a, b) for a, b in zip(now, self._numpy, strict=True)
        )
        random.setstate(self._python)
        np.random.set_state(self._numpy)  # noqa: NPY002
        return not is_same


class FunctionCaches:
    """All caches of functools.lru_cache.

    A function of the model may cache a tensor. One that is cached during a trace has no values, and
    must not stay in the cache.
    """

    def __init__(self) -> None:
        # Not gc.get_objects(): a reference to a tuple that another thread is still filling makes
        # CPython fail there.
        referrers: list[Any] = gc.get_referrers(functools._lru_cache_wrapper)
        self._functions = [ref for ref in referrers if type(ref) is functools._lru_cache_wrapper]
        self._sizes = self._current_sizes()

    def _current_sizes(self) -> list[int]:
        return [function.cache_info().currsize for function in self._functions]

    def clear_new_entries(self) -> None:
        """Clear each cache that has grown, except those of torch, which hold no tensors."""
        now = self._current_sizes()
        for function, before, after in zip(self._functions, self._sizes, now, strict=True):
            if after > before and not (function.__module__ or "").startswith("torch"):
                function.cache_clear()
        self._sizes = self._current_sizes()


@contextmanager
def preserve_attributes(module: nn.Module) -> Iterator[None]:
    """Undo what a forward pass changes in the attributes of modules, and in containers in them."""
    submodules = [
        submodule
        for submodule in module.modules()
        # An attribute of TorchScript is not in vars(), but in C++.
        if not isinstance(submodule, torch.jit.ScriptModule)
    ]
    before = [(submodule, dict(vars(submodule))) for submodule in submodules]
    containers = [
        value
        for _, attributes in before
        for value in attributes.values()
        if type(value) in (dict, list, set, OrderedDict)
    ]
    # Shallow copies: what is in a container belongs to the user.
    contents = [type(value)(value) for value in containers]
    try:
        yield
    finally:
        for container, content in zip(containers, contents, strict=True):
            # Most are empty: hooks, and parameters of modules that have none.
            if not container and not content:
                continue
            # In place, as others may hold the same container.
            container.clear()
            if isinstance(container, list):
                container.extend(content)
            else:
                container.update(content)
        for submodule, attributes in before:
            vars(submodule).clear()
            vars(submodule).update(attributes)
