"""What holds around a model while it is looked at, and is put back afterwards."""

from __future__ import annotations

import functools
import gc
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.distributions import Distribution

LOCK = threading.RLock()
"""Recording changes how modules are called in the whole process: one thread at a time."""


@contextmanager
def on_the_meta_device() -> Iterator[None]:
    """Tensors are made without storage; nothing is compiled, fused or validated by value; gradients may flow."""
    fast, validates = torch.backends.mha.get_fastpath_enabled(), Distribution._validate_args
    torch.backends.mha.set_fastpath_enabled(False)
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
        torch.backends.mha.set_fastpath_enabled(fast)
        Distribution.set_default_validate_args(validates)


class RngState:
    """The random numbers of Python and numpy: whether the model drew any, and their state as it was."""

    def __init__(self) -> None:
        self._python, self._numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 - models may still use it

    def drawn(self) -> bool:
        """Whether any were drawn; they are put back."""
        now = np.random.get_state()  # noqa: NPY002
        same = all(np.array_equal(one, other) for one, other in zip(now, self._numpy, strict=True))
        drawn = random.getstate() != self._python or not same
        random.setstate(self._python)
        np.random.set_state(self._numpy)  # noqa: NPY002
        return drawn


class Caches:
    """Functions that remember their results: what they learn without values must not be remembered."""

    def __init__(self) -> None:
        # not gc.get_objects(): to hold another thread's half-made tuple makes CPython fail there
        referrers: list[Any] = gc.get_referrers(functools._lru_cache_wrapper)
        self._found = [each for each in referrers if type(each) is functools._lru_cache_wrapper]
        self._sizes = self._now()

    def _now(self) -> list[int]:
        return [each.cache_info().currsize for each in self._found]

    def forget_what_is_new(self) -> None:
        for each, before, now in zip(self._found, self._sizes, self._now(), strict=True):
            if now > before and not (each.__module__ or "").startswith("torch"):
                each.cache_clear()
        self._sizes = self._now()
