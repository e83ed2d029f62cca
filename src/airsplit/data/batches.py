"""Mini-batches: the samples that a device uses in an iteration, in any order of iterations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from airsplit.core.arrays import Ints
from airsplit.core.randomness import generator


class Batches:
    """Permutations of each device's samples, cut into consecutive batches.

    A permutation is keyed (seed, device, epoch); samples that do not fill a batch at its end are
    left out. A device with fewer samples than a batch uses all of them in every iteration.

    Args:
        parts: Rows of the training set that each device holds.
        batch_size: Samples in a batch.
        seed: Seed of the permutations.
        iterations_per_round: E, which gives an iteration of a round its number over all rounds.

    >>> import numpy as np
    >>> batches = Batches([np.arange(5), np.array([8])], batch_size=2, seed=0)
    >>> epoch = np.concatenate([batches.rows(0, 0), batches.rows(0, 1)])
    >>> len(set(epoch.tolist())), batches.rows(1, 7).tolist()
    (4, [8])
    """

    def __init__(
        self,
        parts: Sequence[Ints] | Mapping[int, Ints],
        batch_size: int,
        seed: int,
        iterations_per_round: int = 1,
    ) -> None:
        self._parts = parts
        self._batch_size = batch_size
        self._seed = seed
        self._iterations_per_round = iterations_per_round
        # The last epoch that each device asked for, and its permutation. Iterations come in order,
        # so more would only take memory.
        self._permutations: dict[int, tuple[int, Ints]] = {}

    def rows_in_round(self, device: int, round_number: int, iteration: int) -> Ints:
        """Return the rows that a device uses in an iteration of a round.

        Rounds count from one, iterations of a round from zero.

        >>> import numpy as np
        >>> batches = Batches([np.arange(99)], batch_size=9, seed=0, iterations_per_round=5)
        >>> (batches.rows_in_round(0, 2, 1) == batches.rows(0, 6)).all()
        np.True_
        """
        return self.rows(device, (round_number - 1) * self._iterations_per_round + iteration)

    def rows(self, device: int, iteration: int) -> Ints:
        """Return the rows that a device uses in an iteration, counted from zero over all rounds."""
        part = self._parts[device]
        batches_per_epoch = len(part) // self._batch_size
        if batches_per_epoch == 0:
            return part
        epoch, batch = divmod(iteration, batches_per_epoch)

        last_epoch, permutation = self._permutations.get(device, (-1, part))
        if last_epoch != epoch:
            # Keyed by its address, so that any process draws the same in whatever order it asks.
            rng = generator(self._seed, "mini-batches", device, epoch)
            permutation = rng.permutation(part)
            self._permutations[device] = (epoch, permutation)
        start = batch * self._batch_size
        return permutation[start : start + self._batch_size]

    def size(self, device: int) -> int:
        """Return the number of samples in a device's batches."""
        return min(self._batch_size, len(self._parts[device]))


def describe_short_devices(
    samples: Ints,
    batch_size: int,
    name: Callable[[int], str] = str,
    counting: str = "plan and clock count",
) -> str | None:
    """Return a warning about devices that hold fewer samples than a batch; None if there are none.

    Args:
        samples: Number of samples of each device.
        batch_size: Samples in a batch.
        name: Returns the name of a device.
        counting: Subject and verb: what assumes a whole batch for these devices.

    >>> print(describe_short_devices(np.array([71, 72]), 72))
    training.batch_size is 72, but 1 of 2 devices holds fewer samples (0: 71); it uses all of them \
in every iteration, while plan and clock count a whole batch
    """
    short = np.flatnonzero(samples < batch_size)
    if not len(short):
        return None
    examples = [f"{name(int(k))}: {samples[k]:,}" for k in short[:3]]
    if len(short) > len(examples):
        examples.append("…")
    holds, use = ("holds", "it uses") if len(short) == 1 else ("hold", "they use")
    return (
        f"training.batch_size is {batch_size:,}, but {len(short):,} of {len(samples):,} devices "
        f"{holds} fewer samples ({', '.join(examples)}); {use} all of them in every iteration, "
        f"while {counting} a whole batch"
    )


def describe_short_devices_in(plan: Mapping[str, Any]) -> str | None:
    """Return the warning for the plan.json of a run; None if the file lacks the numbers."""
    # The file may be of an older version, or edited by hand.
    samples = plan.get("samples")
    names = plan.get("device_names")
    batch_size = plan.get("batch_size")
    if not isinstance(samples, list) or not all(isinstance(count, int) for count in samples):
        return None
    if not isinstance(names, list) or len(names) != len(samples):
        return None
    if not isinstance(batch_size, int):
        return None
    return describe_short_devices(np.array(samples), batch_size, lambda k: str(names[k]))
