"""Mini-batches: which of its samples a device takes in which iteration, whenever and wherever that is asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from airsplit.core.arrays import Ints
from airsplit.core.randomness import generator


class Batches:
    """Permutations of each device's samples, keyed (seed, device, epoch), cut into consecutive blocks; a short rest is dropped.

    A device with fewer samples than a batch uses all of them in every iteration.

    >>> import numpy as np
    >>> batches = Batches([np.arange(5), np.array([8])], batch_size=2, seed=0)
    >>> epoch = np.concatenate([batches.rows(0, 0), batches.rows(0, 1)])
    >>> len(set(epoch.tolist())), batches.rows(1, 7).tolist()
    (4, [8])
    """

    def __init__(
        self, parts: Sequence[Ints] | Mapping[int, Ints], batch_size: int, seed: int
    ) -> None:
        self._parts, self._size, self._seed = parts, batch_size, seed
        self._last: dict[
            int, tuple[int, Ints]
        ] = {}  # of each device the epoch that it is in, and its permutation

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
            known = (
                epoch,
                generator(self._seed, "mini-batches", device, epoch).permutation(
                    self._parts[device]
                ),
            )
            self._last[device] = known
        return known[1]


def describe_short_devices(
    samples: Ints,
    batch_size: int,
    name: Callable[[int], str] = str,
    counted: str = "plan and clock count",
) -> str | None:
    """Return what is to be said of devices that hold fewer samples than a batch; None if there is none.

    >>> describe_short_devices(np.array([71, 72]), 72)
    'training.batch_size is 72, but 1 of 2 devices holds fewer samples (0: 71); it uses all of them in every iteration, \
while plan and clock count a whole batch'
    """
    short = np.flatnonzero(samples < batch_size)
    if not len(short):
        return None
    some = [f"{name(int(k))}: {samples[k]:,}" for k in short[:3]]
    if len(short) > len(some):
        some.append("…")
    holds, use = ("holds", "it uses") if len(short) == 1 else ("hold", "they use")
    return (
        f"training.batch_size is {batch_size:,}, but {len(short):,} of {len(samples):,} devices {holds} fewer samples "
        f"({', '.join(some)}); {use} all of them in every iteration, while {counted} a whole batch"
    )


def short_devices_in(plan: Mapping[str, Any]) -> str | None:
    """Return the same of the devices in the plan.json of a run; None if it does not say what they hold."""
    samples, names, batch_size = (
        plan.get(key) for key in ("samples", "device_names", "batch_size")
    )
    if (
        not isinstance(samples, list)
        or not isinstance(names, list)
        or not isinstance(batch_size, int)
    ):
        return None
    if len(samples) != len(names) or not all(isinstance(count, int) for count in samples):
        return None
    return describe_short_devices(np.array(samples), batch_size, lambda k: str(names[k]))
