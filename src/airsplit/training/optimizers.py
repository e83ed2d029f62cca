"""Optimizers as plain arithmetic on lists of tensors.  What they remember is named, so that it can be averaged and saved.

The same numbers as torch.optim.SGD and torch.optim.Adam; what is remembered begins at zero.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from airsplit.scenario.settings import TrainingSettings


class Optimizer(Protocol):
    """One step on parameters, given their gradients and what is remembered of each.

    slots   what is remembered: a tensor like the parameter, or where the name is in `counters` one number
    linear  whether a step on a mean of gradients is the mean of the steps on each
    """

    @property
    def slots(self) -> tuple[str, ...]: ...
    @property
    def counters(self) -> tuple[str, ...]: ...
    @property
    def linear(self) -> bool: ...
    def step(
        self,
        parameters: list[Tensor],
        gradients: list[Tensor],
        remembered: Mapping[str, list[Tensor]],
    ) -> None: ...


@dataclass(frozen=True)
class Sgd:
    """w ← w - η v with v ← μ v + ∇ + λ w.

    >>> w, v = torch.tensor([1.0]), torch.tensor([0.0])
    >>> Sgd(0.1, momentum=0.5).step([w], [torch.tensor([2.0])], {"momentum": [v]})
    >>> w, v
    (tensor([0.8000]), tensor([2.]))
    """

    learning_rate: float
    momentum: float = 0.0
    weight_decay: float = 0.0
    counters: tuple[str, ...] = ()
    linear: bool = True

    @property
    def slots(self) -> tuple[str, ...]:
        return ("momentum",) if self.momentum else ()

    def step(
        self,
        parameters: list[Tensor],
        gradients: list[Tensor],
        remembered: Mapping[str, list[Tensor]],
    ) -> None:
        with torch.no_grad():
            if self.weight_decay:
                gradients = list(torch._foreach_add(gradients, parameters, alpha=self.weight_decay))
            if self.momentum:
                velocity = remembered["momentum"]
                for (
                    each
                ) in velocity:  # torch._foreach_mul_ rounds its factor to the type of the tensors
                    each.mul_(self.momentum)
                torch._foreach_add_(velocity, gradients)
                gradients = velocity
            torch._foreach_add_(parameters, gradients, alpha=-self.learning_rate)


@dataclass(frozen=True)
class Adam:
    """w ← w - η m̂ / (√v̂ + 1e-8), with first and second moments decaying by 0.9 and 0.999."""

    learning_rate: float
    weight_decay: float = 0.0
    slots: tuple[str, ...] = ("first", "second", "steps")
    counters: tuple[str, ...] = ("steps",)
    linear: bool = False

    def step(
        self,
        parameters: list[Tensor],
        gradients: list[Tensor],
        remembered: Mapping[str, list[Tensor]],
    ) -> None:
        lists = (remembered[slot] for slot in self.slots)
        with torch.no_grad():
            for each in zip(parameters, gradients, *lists, strict=True):
                self._step(*each)

    def _step(
        self, w: Tensor, gradient: Tensor, first: Tensor, second: Tensor, steps: Tensor
    ) -> None:
        if self.weight_decay:
            gradient = gradient.add(w, alpha=self.weight_decay)
        steps.add_(1)
        first.lerp_(gradient, 1 - 0.9)
        second.mul_(0.999).addcmul_(gradient, gradient, value=1 - 0.999)
        if steps.dim():  # of many devices, stacked: each has its own
            several = steps.view(-1, *[1] * (w.dim() - 1))
            spread = (second.sqrt() / (1 - 0.999**several).sqrt().to(w.dtype)).add_(1e-8)
            w.sub_(first / spread * (self.learning_rate / (1 - 0.9**several)).to(w.dtype))
        else:
            t = float(steps)
            spread = (second.sqrt() / math.sqrt(1 - 0.999**t)).add_(1e-8)
            w.addcdiv_(first, spread, value=-self.learning_rate / (1 - 0.9**t))


def optimizer_of(settings: TrainingSettings) -> Optimizer:
    """The optimizer of a scenario.

    >>> optimizer_of(TrainingSettings(momentum=0.9)).slots
    ('momentum',)
    """
    if settings.optimizer == "adam":
        return Adam(settings.learning_rate, settings.weight_decay)
    return Sgd(settings.learning_rate, settings.momentum or 0.0, settings.weight_decay)
