"""What the server trains: the layers behind each device's split.

All devices train at once, so that each has a copy of them during a round: O(K × back end).  With one iteration a round and
an optimizer whose mean step is its step on the mean gradient, one copy is enough, and gradients are added up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call

from airsplit.scenario.settings import TrainingSettings
from airsplit.training.losses import right_answers
from airsplit.training.replica import MODEL, Replica, key, kind_and_name
from airsplit.training.state import Mean
from airsplit.training.step import Tensors, server_step

Named = dict[str, Tensor]


@dataclass
class BackEnds:
    """The server's state between rounds.

    common   the layers deeper than the deepest split, and what the optimizer remembers of them
    own      of each device the layers between its split and the deepest
    """

    replica: Replica
    splits: list[int]
    common: Named = field(default_factory=dict)
    own: list[Named] = field(default_factory=list)

    @classmethod
    def begun(cls, replica: Replica, splits: Sequence[int]) -> BackEnds:
        """Every device with the same tensors; with no splits all is common, as in federated averaging."""
        made = cls(replica, list(splits))
        made.common = {name: replica.tensors[name].clone() for name in made.common_names()}
        made.own = [
            {name: replica.tensors[name].clone() for name in made.own_names(k)}
            for k in range(len(splits))
        ]
        return made

    @property
    def boundary(self) -> int:
        """The deepest split; 0 where nothing is cut."""
        return max(self.splits, default=0)

    def common_names(self) -> list[str]:
        personal = set(self.replica.front_keys(self.boundary))
        return [name for name in self.replica.tensors if name not in personal]

    def own_names(self, device: int) -> list[str]:
        """What the server has of one device alone."""
        front = set(self.replica.front_keys(self.splits[device]))
        return [name for name in self.replica.front_keys(self.boundary) if name not in front]

    def of(self, device: int) -> Named:
        """Everything behind a device's split."""
        return self.common | self.own[device]

    def merge(
        self, trained: Mapping[int, Named], weights: Sequence[float], devices: Sequence[int]
    ) -> None:
        """Keep what devices have trained, and average what is common: in the order of their numbers, whenever they came."""
        mean = Mean()
        for k, weight in zip(devices, weights, strict=True):
            if self.own:
                self.own[k] = {name: trained[k][name].detach().clone() for name in self.own[k]}
            mean.add({name: trained[k][name] for name in self.common if name in trained[k]}, weight)
        mean.into(self.common)

    def move(
        self, splits: Sequence[int], arrived: Sequence[Named], weights: Sequence[float]
    ) -> None:
        """Cut elsewhere: `arrived` has, of each device, the layers that it has handed over.

        Layers that become common start from the mean of the devices' copies; those that are no longer from the common value.
        """
        everything = [self.of(k) | arrived[k] for k in range(len(splits))]
        before = set(self.common)
        self.splits = list(splits)
        names = self.common_names()
        mean = Mean()
        for k, weight in enumerate(weights):
            mean.add({name: everything[k][name] for name in names if name not in before}, weight)
        like = {name: self.replica.tensors[name] for name in names}
        self.common = {name: self.common[name] for name in names if name in before} | mean.result(
            like
        )
        self.common = {name: self.common[name] for name in names}
        self.own = [
            {name: everything[k][name].clone() for name in self.own_names(k)}
            for k in range(len(splits))
        ]


class BackEnd:
    """One device's copy of the layers behind its split: it is trained with what the device sends."""

    def __init__(self, replica: Replica, split: int, tensors: Named) -> None:
        self.tensors = {name: tensor.detach().clone() for name, tensor in tensors.items()}
        self._replica, self._back = replica, replica.halves(split)[1]
        self._model = _of_the_model(self.tensors)
        self._leaves = {
            name: tensor.requires_grad_()
            for name, tensor in self._model.items()
            if name in replica.trained
        }

    def step(self, arrived: Tensors, labels: Tensor) -> tuple[float, list[Tensor | None]]:
        """One iteration: the loss before it, and the gradient of each tensor that arrived."""
        for leaf in self._leaves.values():
            leaf.grad = None
        value, gradients = server_step(self._run, self._replica.loss, arrived, labels)
        descend(self._replica, _gradients(self._leaves), self.tensors)
        return value, gradients

    def _run(self, *arrived: Tensor) -> Any:
        return functional_call(self._back, self._model, arrived)

    def trained(self) -> Named:
        """The tensors as they are now, without their graph."""
        return {name: tensor.detach() for name, tensor in self.tensors.items()}


@dataclass(frozen=True, eq=False)
class BatchScore:
    """How good a device's model is on a batch.

    Attributes:
        right: Whether each label's class has the highest score; None where labels are no classes.
        metric: The server's own metric; None without one.
    """

    loss: float
    right: Tensor | None
    metric: float | None


def score(
    replica: Replica, split: int, tensors: Named, arrived: Tensors, labels: Tensor
) -> BatchScore:
    """Return how good a device's model is on a batch of what its front sends."""
    back = replica.halves(split)[1]
    back.eval()
    try:
        with torch.no_grad():
            output = functional_call(back, _of_the_model(tensors), arrived)
            loss = float(replica.loss(output, labels))
            right = None if labels.is_floating_point() else right_answers(output, labels)
            return BatchScore(
                loss, right, None if replica.metric is None else replica.metric(output, labels)
            )
    finally:
        back.train()


class OneCopy:
    """The common layers of all devices in a round of one iteration: one copy, and the sum of the devices' gradients.

    A device counts once its step is made, also if it does not finish the round.
    """

    def __init__(self) -> None:
        self._sums, self._weight = dict[str, Tensor](), 0.0

    def add(self, gradients: Mapping[str, Tensor], weight: float) -> None:
        """Another device's gradients of the common layers."""
        self._weight += weight
        for name, gradient in gradients.items():
            if name in self._sums:
                self._sums[name].add_(gradient, alpha=weight)
            else:
                self._sums[name] = gradient * weight

    def descend(self, replica: Replica, common: Named) -> None:
        """One step of the common layers on the mean gradient."""
        descend(replica, {name: total / self._weight for name, total in self._sums.items()}, common)


def one_copy_is_enough(replica: Replica, common: Sequence[str], settings: TrainingSettings) -> bool:
    """Whether it gives the same: one step, by an optimizer that is linear, and no common statistics to be averaged."""
    statistics = any(name in replica.statistics for name in common)
    return (
        settings.fast_paths
        and settings.iterations_per_round == 1
        and replica.optimizer.linear
        and not statistics
    )


class SharingBackEnd(BackEnd):
    """A device's back end of which only what is its own is a copy; gradients of the common layers are kept for the mean."""

    def __init__(self, replica: Replica, split: int, common: Named, own: Named) -> None:
        super().__init__(replica, split, own)
        named = _of_the_model(common)
        self._shared = {
            name: tensor.detach().requires_grad_()
            for name, tensor in named.items()
            if name in replica.trained
        }
        self._model |= named | self._shared
        self.gradients: Named = {}

    def step(self, arrived: Tensors, labels: Tensor) -> tuple[float, list[Tensor | None]]:
        for leaf in self._shared.values():
            leaf.grad = None
        value, gradients = super().step(arrived, labels)
        self.gradients = _gradients(self._shared)
        return value, gradients


def _of_the_model(tensors: Named) -> Named:
    """The model's own among these, by their names in the model; what the optimizer remembers is left out."""
    named = ((*kind_and_name(each), tensor) for each, tensor in tensors.items())
    return {name: tensor for kind, name, tensor in named if kind == MODEL}


def _gradients(leaves: Named) -> Named:
    return {name: leaf.grad for name, leaf in leaves.items() if leaf.grad is not None}


def descend(replica: Replica, gradients: Mapping[str, Tensor], tensors: Named) -> None:
    """The optimizer's step on some parameters, by name, and on what it remembers of them."""
    if gradients:
        names = list(gradients)
        parameters = [tensors[key(MODEL, name)] for name in names]
        remembered = {
            slot: [tensors[key(slot, name)] for name in names] for slot in replica.optimizer.slots
        }
        replica.optimizer.step(parameters, list(gradients.values()), remembered)


def bytes_of(tensors: Mapping[str, Tensor]) -> int:
    """Memory of these tensors."""
    return sum(tensor.numel() * tensor.dtype.itemsize for tensor in tensors.values())
