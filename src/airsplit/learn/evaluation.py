"""How good the devices' models are: on the common test set, and on each device's own mix of labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from airsplit.learn.data import Samples
from airsplit.learn.losses import right_answers
from airsplit.learn.replica import Replica
from airsplit.learn.state import State
from airsplit.units import Floats

BATCH = 250


@dataclass(frozen=True, eq=False)
class Score:
    """One model on the test set: the mean loss and, where labels are classes, how many of each class there are and are right."""

    loss: float
    right: Floats
    present: Floats

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
        return float((mix[known] * self.right[known] / self.present[known]).sum() / mix[known].sum())


def summary(name: str, values: Sequence[float | None]) -> dict[str, float]:
    """The fields of a record that tell a number of several models: mean, spread and worst; none where nobody has it.

    >>> summary("own_accuracy", [0.5, None, 1.0])
    {'own_accuracy': 0.75, 'own_accuracy_spread': 0.25, 'own_accuracy_worst': 0.5}
    """
    known = [value for value in values if value is not None]
    if not known:
        return {}
    return {name: float(np.mean(known)), f"{name}_spread": float(np.std(known)), f"{name}_worst": min(known)}


def scores(replica: Replica, state: State, devices: Sequence[int], test: Samples, classes: int | None) -> list[Score]:
    """A score for each of these devices; one for all where nothing is personal."""
    if not state.personal:
        replica.load(state.common)
        return [_score(replica, test, classes)] * len(devices)
    found = []
    for k in devices:
        replica.load(state.of(k))
        found.append(_score(replica, test, classes))
    return found


def _score(replica: Replica, test: Samples, classes: int | None) -> Score:
    loss = 0.0
    right, present = torch.zeros(classes or 0), torch.zeros(classes or 0)
    replica.model.eval()
    try:
        with torch.no_grad():
            for at in range(0, len(test), BATCH):
                inputs, labels = test.batch(slice(at, at + BATCH))
                output = replica.model(*inputs)
                loss += float(replica.loss(output, labels)) * len(labels)
                hit = None if classes is None else right_answers(output, labels)
                if hit is not None:
                    right += torch.bincount(labels[hit], minlength=classes or 0)
                    present += torch.bincount(labels, minlength=classes or 0)
    finally:
        replica.model.train()
    return Score(loss / len(test), right.double().numpy(), present.double().numpy())
