"""The one FedAvg job that all simulators are given: the same weights, data, order of batches and rate."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import nets
from airsplit.data.batches import Batches
from peers.workloads import given

CLASSES = 10
COMPARED = 2
"""Weights are compared after so many rounds: later, rounding has grown in some models, and says nothing about the job."""
SHAPES = {"small_cnn": (1, 28, 28), "mlp": (784,)}


def model() -> nn.Module:
    """With the same weights wherever it is made."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        made: nn.Module = getattr(nets, given()["model"])()
    return made


@cache
def samples() -> tuple[Tensor, Tensor]:
    """All clients' data, one client after the other: ten patterns under noise, which can be learned."""
    asked = given()
    shape, count = SHAPES[asked["model"]], asked["clients"] * asked["samples"]
    rng = torch.Generator().manual_seed(0)
    patterns = torch.randn(CLASSES, *shape, generator=rng)
    labels = torch.randint(0, CLASSES, (count,), generator=rng)
    return patterns[labels] + 2 * torch.randn(count, *shape, generator=rng), labels


def of_client(client: int) -> tuple[Tensor, Tensor]:
    size = given()["samples"]
    inputs, labels = samples()
    return inputs[client * size : (client + 1) * size], labels[client * size : (client + 1) * size]


def dealt() -> tuple[list[tuple[Tensor, Tensor]], tuple[Tensor, Tensor]]:
    """The same as Airsplit takes it: a pair for each client, and one to test on."""
    return [of_client(client) for client in range(given()["clients"])], of_client(0)


@cache
def _batches() -> Batches:
    asked = given()
    return Batches([np.arange(asked["samples"])] * asked["clients"], asked["batch"], seed=0)


def in_order(client: int, number: int) -> tuple[Tensor, Tensor]:
    """What a client trains on in a round, counted from one, as one long batch."""
    steps = given()["steps"]
    rows = np.concatenate(
        [_batches().rows(client, (number - 1) * steps + step) for step in range(steps)]
    )
    inputs, labels = of_client(client)
    return inputs[rows], labels[rows]


class Laps:
    """When each round ended, and the weights after the second."""

    def __init__(self) -> None:
        self._ends: list[float] = []
        self._early: dict[str, Any] = {}

    def round(self, weights: Callable[[], dict[str, Tensor]]) -> None:
        self._ends.append(time.time())
        if len(self._ends) == COMPARED:
            self._early = {
                name: tensor.detach().numpy().copy() for name, tensor in weights().items()
            }

    def told(self) -> dict[str, Any]:
        """The median of a round without the first; what came before the end of the first, less a round.  Early weights go to a file."""
        np.savez(given()["weights"], **self._early)
        usual = float(np.median(np.diff(self._ends)))
        return {
            "round_s": usual,
            "start_s": self._ends[0] - float(os.environ["PEERS_STARTED"]) - usual,
            "rounds": len(self._ends),
        }


@torch.no_grad()
def outcome(weights: dict[str, Tensor]) -> dict[str, Any]:
    """The loss over all data."""
    whole = model()
    whole.load_state_dict(weights)
    inputs, labels = samples()
    return {"loss": nn.functional.cross_entropy(whole(inputs), labels).item()}
