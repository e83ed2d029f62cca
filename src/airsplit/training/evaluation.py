"""How good the devices' models are: on the common test set, and on each device's own mix of labels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from airsplit.core.arrays import Floats
from airsplit.core.plugins import user_code
from airsplit.data.datasets import Samples, Tensors
from airsplit.training.accelerator import CPU, Accelerator
from airsplit.training.losses import IGNORED_LABEL, right_answers
from airsplit.training.memory import Halving, out_of_memory
from airsplit.training.ranks import ALONE, Ranks
from airsplit.training.replica import Replica
from airsplit.training.state import State

BATCH = 250
BATCH_ON_GPU = 2000

# The first columns of a row of sums: loss and metric.
SUMS = 2


@dataclass(frozen=True, eq=False)
class Score:
    """One model on the test set: the mean loss, how many labels there are and are right, and the mean metric of the user's own.

    Labels are counted for each class if a sample has one label, all together if it has several, and not at all if they are floats.
    """

    loss: float
    right: Floats
    present: Floats
    metric: float | None = None

    @property
    def accuracy(self) -> float | None:
        total = self.present.sum()
        return float(self.right.sum() / total) if total else None

    def accuracy_on(self, mix: Floats) -> float | None:
        """With classes weighted by a mix; those that the test set does not have count for nothing.

        >>> import numpy as np
        >>> Score(0.0, np.array([9.0, 1.0]), np.array([10.0, 10.0])).accuracy_on(np.array([0.5, 0.5]))
        0.5
        """
        known = (self.present > 0) & (mix > 0)
        if not known.any():
            return None
        return float(
            (mix[known] * self.right[known] / self.present[known]).sum() / mix[known].sum()
        )


def summary(
    name: str, values: Sequence[float | None], worst: Callable[[Sequence[float]], float] = min
) -> dict[str, float]:
    """The fields of a record that tell a number of several models: mean, spread and worst; none where nobody has it.

    >>> summary("own_accuracy", [0.5, None, 1.0])
    {'own_accuracy': 0.75, 'own_accuracy_spread': 0.25, 'own_accuracy_worst': 0.5}
    """
    known = [value for value in values if value is not None]
    if not known:
        return {}
    # Of equal numbers numpy's standard deviation may be 1e-17, and a report would draw a worst model.
    spread = float(np.std(known)) if max(known) > min(known) else 0.0
    return {name: float(np.mean(known)), f"{name}_spread": spread, f"{name}_worst": worst(known)}


def label_kinds(labels: Tensor, classes: int | None) -> int:
    """Return how many kinds of labels are counted apart: each class, or all together if a sample has several labels."""
    if labels.is_floating_point():
        return 0
    return 1 if labels.dim() > 1 else classes or 0


@dataclass(frozen=True, eq=False)
class Evaluation:
    """How models are evaluated, beside what they are.

    tell    is told now and then which part of this process's work is done
    chance  a context with the random numbers of models that draw some
    when    for notes
    at_once limits the samples that go at once, when memory has run out
    """

    accelerator: Accelerator = CPU
    ranks: Ranks = ALONE
    tell: Callable[[float], None] = lambda _: None
    chance: Callable[[], AbstractContextManager[None]] = nullcontext
    when: str = "the evaluation"
    at_once: Halving = field(default_factory=lambda: Halving("test samples"))


def scores(
    replica: Replica,
    state: State,
    devices: Sequence[int],
    test: Samples,
    classes: int | None,
    how: Evaluation | None = None,
) -> list[Score]:
    """A score for each of these devices; one for all where nothing is personal."""
    how = how or Evaluation()
    ranks, accelerator = how.ranks, how.accelerator
    # Processes share the devices' models where there are several, and else the samples.
    here = range(len(test)) if state.personal else ranks.share(len(test))
    rows = torch.zeros(
        len(devices) if state.personal else 1,
        SUMS + 2 * label_kinds(test.labels, classes),
        dtype=torch.float64,
        device=accelerator.device,
    )

    def divide(limit: int | None) -> list[range]:
        most = BATCH if accelerator.device.type == "cpu" else BATCH_ON_GPU
        fitting = min(most, accelerator.room(replica.passing_bytes, on_cpu=most))
        size = fitting if limit is None else min(fitting, limit)
        return [here[at : at + size] for at in range(0, len(here), size)]

    def count(batches: Sequence[range]) -> None:
        rows.zero_()
        if state.personal:
            models = [
                (row, state.of(k)) for row, k in zip(rows, devices, strict=True) if k in state.held
            ]
        else:
            models = [(rows[0], state.common)]
        with how.chance():
            for number, (row, tensors) in enumerate(models):
                replica.load(tensors)
                for done, batch in enumerate(batches, start=1):
                    _count(replica, test.batch(slice(batch.start, batch.stop)), row, accelerator)
                    how.tell((number + done / len(batches)) / len(models))

    with ranks.together(), torch.no_grad(), evaluating(replica.model):
        how.at_once.run(divide, count, how.when, accelerator.release_memory)
    ranks.add_up([rows])
    found = [_score(row, len(test), replica.metric is not None) for row in rows.cpu().numpy()]
    return found if state.personal else found * len(devices)


def _score(row: Floats, samples: int, has_metric: bool) -> Score:
    """Return the score that the sums of a row come to."""
    loss, metric = (row[:SUMS] / samples).tolist()
    right, present = np.split(row[SUMS:], 2)
    return Score(loss, right, present, metric if has_metric else None)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """A context with a model in evaluation mode; afterwards it is in training mode."""
    model.eval()
    try:
        yield
    finally:
        model.train()


def _count(
    replica: Replica, batch: tuple[Tensors, Tensor], row: Tensor, accelerator: Accelerator
) -> None:
    """Add a batch to a row: the sums of loss and metric over its samples, and how many labels of each kind are right and there."""
    inputs, labels = batch
    right, present = row[SUMS:].tensor_split(2)
    at = "evaluation on the test set stopped"
    with user_code("the model or the loss", at=at), out_of_memory(at):
        # autocast remembers weights in the lower precision until its end: so it ends before they change
        with accelerator.autocast():
            output = replica.model(*inputs)
            row[0] += replica.loss(output, labels).reshape(()).double() * len(labels)
        hit = right_answers(output, labels) if len(present) else None
        if hit is not None and labels.dim() > 1:
            right += hit.sum()
            present += (labels != IGNORED_LABEL).sum()
        elif hit is not None:
            right.index_add_(0, labels, hit.double())
            present.index_add_(0, labels, torch.ones_like(hit, dtype=torch.float64))
        if (
            replica.metric is not None
        ):  # last: a function of the user's own may change what it is given
            row[1] += replica.metric(output, labels) * len(labels)
