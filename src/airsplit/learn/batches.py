"""Mini-batches: which of its samples a device takes in which iteration, whenever and wherever that is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from airsplit.randomness import generator
from airsplit.units import Ints


class Batches:
    """Permutations of each device's samples, keyed (seed, device, epoch), cut into consecutive blocks; a short rest is dropped.

    A device with fewer samples than a batch uses all of them in every iteration.

    >>> import numpy as np
    >>> batches = Batches([np.arange(5), np.array([8])], batch_size=2, seed=0)
    >>> epoch = np.concatenate([batches.rows(0, 0), batches.rows(0, 1)])
    >>> len(set(epoch.tolist())), batches.rows(1, 7).tolist()
    (4, [8])
    """

    def __init__(self, parts: Sequence[Ints] | Mapping[int, Ints], batch_size: int, seed: int) -> None:
        self._parts, self._size, self._seed = parts, batch_size, seed
        self._last: dict[int, tuple[int, Ints]] = {}  # of each device the epoch that it is in, and its permutation

    def rows(self, device: int, iteration: int) -> Ints:
        """The rows of the training set that a device uses in an iteration, counted from zero over all rounds."""
        part = self._parts[device]
        blocks = len(part) // self._size
        if blocks == 0:
            return part
        epoch, block = divmod(iteration, blocks)
        return self._shuffled(device, epoch)[block * self._size : (block + 1) * self._size]

    def size(self, device: int) -> int:
        """How many samples its batches have."""
        return min(self._size, len(self._parts[device]))

    def _shuffled(self, device: int, epoch: int) -> Ints:
        known = self._last.get(device)
        if known is None or known[0] != epoch:
            known = epoch, generator(self._seed, "mini-batches", device, epoch).permutation(self._parts[device])
            self._last[device] = known
        return known[1]
