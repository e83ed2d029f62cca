"""torch's random numbers, addressed: what is drawn inside depends on (seed, purpose, address) and on nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from airsplit.randomness import generator


@contextmanager
def seeded(seed: int, purpose: str, *address: int) -> Iterator[None]:
    """A context with torch's generators at an address; afterwards they are where they were.

    Layers such as dropout read torch's global generator only, which is why there is one.

    >>> with seeded(0, "dropout", 3):
    ...     one = torch.rand(2)
    >>> with seeded(0, "dropout", 3):
    ...     same = torch.rand(2)
    >>> torch.equal(one, same)
    True
    """
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(int(generator(seed, purpose, *address).integers(2**63)))
        yield
