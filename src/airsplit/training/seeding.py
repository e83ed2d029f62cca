"""torch's random numbers, addressed: what is drawn inside depends on (seed, purpose, address) and on nothing else."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from airsplit.core.randomness import generator

_LOCK = threading.RLock()  # there is one generator for all threads


@contextmanager
def seeded(seed: int, purpose: str, *address: int) -> Iterator[None]:
    """A context with torch's generators at an address; afterwards they are where they were.

    Layers such as dropout read torch's global generators only, which is why there is one.  One thread at a time is inside.

    >>> with seeded(0, "dropout", 3):
    ...     one = torch.rand(2)
    >>> with seeded(0, "dropout", 3):
    ...     same = torch.rand(2)
    >>> torch.equal(one, same)
    True
    """
    # not torch.manual_seed, which takes a millisecond: it formats a stack trace for every kind of device that is not there
    number = int(generator(seed, purpose, *address).integers(2**63))
    more = torch.cuda.default_generators if torch.cuda.is_initialized() else ()  # type: ignore[no-untyped-call]
    generators = [torch.default_generator, *more]
    with _LOCK:
        states = [each.get_state() for each in generators]
        try:
            for each in generators:
                each.manual_seed(number)
            yield
        finally:
            for each, state in zip(generators, states, strict=True):
                each.set_state(state)
