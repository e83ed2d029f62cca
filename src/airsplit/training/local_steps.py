"""Crew: the devices at work - their data, their steps, and what is said when a step goes wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from airsplit.core.arrays import Floats, Ints
from airsplit.core.errors import Diverged
from airsplit.core.plugins import user_code
from airsplit.data.batches import Batches
from airsplit.data.datasets import Samples
from airsplit.scenario.settings import TrainingSettings
from airsplit.training.accelerator import CPU, Accelerator
from airsplit.training.memory import Halving, out_of_memory
from airsplit.training.ranks import ALONE, Ranks
from airsplit.training.replica import Replica
from airsplit.training.seeding import seeded
from airsplit.training.step import DEVICE_FORWARD, NonFinite, Tensors, is_finite

Bools = NDArray[np.bool_]
Groups = Sequence[list[int]]
Trained = TypeVar("Trained")


@dataclass(frozen=True, eq=False)
class Task:
    """What a round asks of K devices.

    Attributes:
        number: Number of the round, from one.
        splits: Split of each device.
        asked: Whether each device is asked to take part.
        iterations: Iterations of each device: all E, none if it is not asked, fewer if it drops out.
        weights: Weights in the average, with sum one; zero for devices that do not finish.
    """

    number: int
    splits: Ints
    asked: Bools
    iterations: Ints
    weights: Floats
    iterations_per_round: int

    @cached_property
    def finishing(self) -> list[int]:
        """Who runs all iterations, in order."""
        return _numbers(self.iterations == self.iterations_per_round)

    @property
    def participants(self) -> list[int]:
        """Who is asked."""
        return _numbers(self.asked)

    @property
    def dropped(self) -> list[int]:
        """Who is asked and does not finish."""
        return _numbers(self.asked & (self.iterations < self.iterations_per_round))


class Crew:
    """K devices that share one replica.

    samples      where the replica is
    names        for messages
    compression  of what crosses the cut
    obstacles    to the fast paths, as they say it; None where there is none
    made         what fast paths make once
    steps        how many of this round have been taken, each device's counted
    on_steps     is told of them
    """

    def __init__(
        self,
        replica: Replica,
        samples: Samples,
        parts: Sequence[Ints],
        settings: TrainingSettings,
        names: Sequence[str],
        compression: str = "none",
        accelerator: Accelerator = CPU,
        ranks: Ranks = ALONE,
    ) -> None:
        self.replica, self.settings, self.names, self.compression = (
            replica,
            settings,
            names,
            compression,
        )
        self.accelerator, self.ranks = accelerator, ranks
        self.obstacles: dict[tuple[object, ...], str | None] = {}
        self.made: dict[tuple[object, ...], Any] = {}
        self.steps = 0
        self.on_steps: Callable[[int], None] = lambda _: None
        self._at_once = Halving("devices")
        self._samples = samples
        self._batches = Batches(
            parts, settings.batch_size, settings.seed, settings.iterations_per_round
        )

    def batch(self, device: int, task: Task, iteration: int) -> tuple[Tensors, Tensor]:
        """What a device trains on in an iteration of a round."""
        return self.batches([device], task, iteration)

    def batches(self, devices: Sequence[int], task: Task, iteration: int) -> tuple[Tensors, Tensor]:
        """What several devices train on, one behind the other."""
        rows = [self._batches.rows_in_round(device, task.number, iteration) for device in devices]
        return self._samples.batch(
            torch.as_tensor(np.concatenate(rows)).to(self.accelerator.device)
        )

    def batch_size(self, device: int) -> int:
        """How many samples its batches have."""
        return self._batches.size(device)

    def count(self, taken: int) -> None:
        """Count steps of this round, one for each device that took one."""
        self.steps += taken
        self.on_steps(self.steps)

    def train_in_groups(
        self, divide: Callable[[int | None], Groups], train: Callable[[Groups], Trained], task: Task
    ) -> Trained:
        """Return what `train` makes of groups of devices; if memory runs out, repeat it with groups of half the size.

        divide  gives the groups, with no more devices in each than it is told
        train   must change neither state nor mean before all groups are done: it may have to begin again
        """

        def attempt(groups: Groups) -> Trained:
            self.steps = 0
            return train(groups)

        return self._at_once.run(
            divide, attempt, f"round {task.number}", self.accelerator.release_memory
        )

    def train(self, device: int, task: Task) -> float:
        """All iterations of a device, on whatever the replica has loaded: the mean loss."""
        losses = [
            self.step(device, task, iteration) for iteration in range(task.iterations_per_round)
        ]
        return sum(losses) / len(losses)

    def step(self, device: int, task: Task, iteration: int) -> float:
        """One iteration of a device: the loss before it."""
        inputs, labels = self.batch(device, task, iteration)
        try:
            with self.told(device, task, iteration):
                chance = partial(self.chance, device, task, iteration)
                with self.accelerator.autocast():
                    loss = self.replica.step(
                        int(task.splits[device]), inputs, labels, self.compression, chance
                    )
        except NonFinite as seen:
            raise self.diverged(str(seen), device, task, iteration, inputs) from None
        self.count(1)
        return loss

    @contextmanager
    def told(self, device: int, task: Task, iteration: int) -> Iterator[None]:
        """A context that adds device, round and iteration to errors raised by user code."""
        at = f"training stopped at {self._place(device, task, iteration)}"
        with user_code("the model or the loss", at=at, passing=(NonFinite,)), out_of_memory(at):
            yield

    def _place(self, device: int, task: Task, iteration: int) -> str:
        return f"device {self.names[device]}, round {task.number}, iteration {iteration + 1}"

    def chance(
        self, device: int, task: Task, iteration: int, part: str = DEVICE_FORWARD
    ) -> AbstractContextManager[None]:
        """The random numbers of one part of one step of one device."""
        return seeded(self.settings.seed, part, device, task.number, iteration)

    def diverged(
        self, seen: str, device: int, task: Task, iteration: int, inputs: Tensors
    ) -> Diverged:
        """An error that says where a number was not finite, and what the likely cause is."""
        where = self._place(device, task, iteration)
        return Diverged(
            f"training stopped at {where}: the {seen} {'is' if seen == 'loss' else 'are'} not finite; {self._cause(inputs)}"
        )

    def _cause(self, inputs: Tensors) -> str:
        if not all(is_finite(tensor) for tensor in inputs):
            return "its inputs are not finite either: look at the data of this device"
        rate = f"lower training.learning_rate, now {self.settings.learning_rate:g}"
        if not all(is_finite(tensor) for tensor in self.replica.tensors.values()):
            return f"its weights are not finite either, because an earlier step overflowed: {rate}"
        return f"its weights and inputs are finite, so the numbers overflow on their way through the model: {rate}, or normalize the data"


def _numbers(which: Bools) -> list[int]:
    return [int(k) for k in np.flatnonzero(which)]
