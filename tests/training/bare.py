"""Training written down a second time, with nothing but torch: a whole copy of the model for each device, and no cut at all.

Nothing here is fast, and nothing here is airsplit's but the mini-batches, which have tests of their own.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from airsplit.core.randomness import generator
from airsplit.data.batches import Batches

Pairs = list[tuple[Tensor, Tensor]]
Make = Callable[[list[nn.Parameter]], torch.optim.Optimizer]


class Data:
    """What each device holds, and its batches."""

    def __init__(
        self, pairs: Pairs, batch_size: int = 4, seed: int = 0, kind: torch.dtype = torch.float64
    ) -> None:
        ends = np.cumsum([len(labels) for _, labels in pairs])
        self.sizes = np.array([len(labels) for _, labels in pairs])
        self._inputs = torch.cat([inputs for inputs, _ in pairs]).to(kind)
        self._labels = torch.cat([labels for _, labels in pairs])
        self._batches = Batches(
            [np.arange(end - n, end) for end, n in zip(ends, self.sizes, strict=True)],
            batch_size,
            seed,
        )

    def batch(self, device: int, since_start: int) -> tuple[Tensor, Tensor]:
        rows = torch.as_tensor(self._batches.rows(device, since_start))
        return self._inputs[rows], self._labels[rows]


def step(
    model: nn.Module, optimizer: torch.optim.Optimizer, inputs: Tensor, labels: Tensor
) -> float:
    optimizer.zero_grad()
    loss = F.cross_entropy(model(inputs), labels)
    loss.backward()
    optimizer.step()
    return loss.item()


def trained(model: nn.Module) -> list[nn.Parameter]:
    return [p for p in model.parameters() if p.requires_grad]


class Copies:
    """A model and an optimizer for each device."""

    def __init__(self, model: nn.Module, make: Make, devices: int) -> None:
        self.models = [copy.deepcopy(model).train() for _ in range(devices)]
        self.optimizers = [make(trained(each)) for each in self.models]

    def average(
        self, names: Sequence[str], weights: dict[int, float], to: Sequence[int] | None = None
    ) -> None:
        """Give the mean over some devices of these tensors, and of what the optimizer remembers of them, to all, or to these."""
        for name in names:
            tensors = [model.state_dict(keep_vars=True)[name] for model in self.models]
            self._average(tensors, weights, to)
            states = [
                optimizer.state[tensor]
                for optimizer, tensor in zip(self.optimizers, tensors, strict=True)
            ]
            for kept in {key for k in weights for key in states[k]}:
                for state in states:
                    state.setdefault(
                        kept, torch.zeros_like(next(s[kept] for s in states if kept in s))
                    )
                self._average([state[kept] for state in states], weights, to)

    def _average(
        self, tensors: list[Any], weights: dict[int, float], to: Sequence[int] | None
    ) -> None:
        with torch.no_grad():
            if tensors[0].is_floating_point():
                mean = sum(weight * tensors[k].double() for k, weight in weights.items())
            else:
                mean = tensors[min(weights)].clone()
            for k in range(len(tensors)) if to is None else to:
                tensors[k].copy_(mean)


def names_behind(model: nn.Module, layer: int) -> list[str]:
    """What belongs to the layers of an nn.Sequential behind the first `layer` ones."""
    return [name for name in model.state_dict() if int(name.split(".")[0]) >= layer]


def weights_of(data: Data, finishing: Sequence[int], by_samples: bool) -> dict[int, float]:
    counts = {k: float(data.sizes[k]) if by_samples else 1.0 for k in finishing}
    return {k: count / sum(counts.values()) for k, count in counts.items()}


def side_by_side(
    model: nn.Module,
    make: Make,
    data: Data,
    rounds: int,
    E: int,
    common: list[str],
    by_samples: bool = False,
) -> tuple[Copies, list[float]]:
    """Every device trains its own copy; after each round these tensors are averaged.  The models, and the loss of each round."""
    K = len(data.sizes)
    copies, losses = Copies(model, make, K), []
    for number in range(rounds):
        weights, loss = weights_of(data, range(K), by_samples), 0.0
        for k in range(K):
            for e in range(E):
                loss += (
                    weights[k]
                    / E
                    * step(copies.models[k], copies.optimizers[k], *data.batch(k, number * E + e))
                )
        copies.average(common, weights)
        losses.append(loss)
    return copies, losses


def one_after_the_other(model: nn.Module, make: Make, data: Data, rounds: int, E: int) -> nn.Module:
    """Split learning: one model."""
    model = copy.deepcopy(model).train()
    optimizer = make(trained(model))
    for number in range(rounds):
        for k in range(len(data.sizes)):
            for e in range(E):
                step(model, optimizer, *data.batch(k, number * E + e))
    return model


def one_server(
    model: nn.Module,
    make: Make,
    data: Data,
    rounds: int,
    E: int,
    of_server: list[str],
    by_samples: bool,
    seed: int,
) -> nn.Module:
    """SplitFed V2: after every step of a device the others' copies of the server's tensors become those of that device."""
    K = len(data.sizes)
    copies = Copies(model, make, K)
    fronts = [name for name in model.state_dict() if name not in of_server]
    for number in range(1, rounds + 1):
        for e in range(E):
            for k in generator(seed, "server order", number, e).permutation(K).tolist():
                step(copies.models[k], copies.optimizers[k], *data.batch(k, (number - 1) * E + e))
                copies.average(of_server, {k: 1.0})
        copies.average(fronts, weights_of(data, range(K), by_samples))
    return copies.models[0]
