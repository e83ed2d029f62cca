"""The FedAvg job of all simulators: the same weights, data, order of batches and rate."""

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
from peers.workloads import get_arguments

CLASSES = 10
# Weights are compared after this round. Later, rounding has grown in some models, and a difference
# says nothing about the job.
COMPARED_ROUND = 2
SHAPES = {"small_cnn": (1, 28, 28), "mlp": (784,)}


def make_model() -> nn.Module:
    """Return the model, with the same weights in every process."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model: nn.Module = getattr(nets, get_arguments()["model"])()
    return model


@cache
def make_samples() -> tuple[Tensor, Tensor]:
    """Return all clients' data, one client after the other.

    It is ten patterns under noise, which can be learned.
    """
    arguments = get_arguments()
    shape = SHAPES[arguments["model"]]
    count = arguments["clients"] * arguments["samples"]
    rng = torch.Generator().manual_seed(0)
    patterns = torch.randn(CLASSES, *shape, generator=rng)
    labels = torch.randint(0, CLASSES, (count,), generator=rng)
    return patterns[labels] + 2 * torch.randn(count, *shape, generator=rng), labels


def client_samples(client: int) -> tuple[Tensor, Tensor]:
    """Return the data of one client."""
    size = get_arguments()["samples"]
    inputs, labels = make_samples()
    rows = slice(client * size, (client + 1) * size)
    return inputs[rows], labels[rows]


def partition() -> tuple[list[tuple[Tensor, Tensor]], tuple[Tensor, Tensor]]:
    """Return the data as Airsplit takes it: that of each client, and some to test on."""
    clients = range(get_arguments()["clients"])
    return [client_samples(client) for client in clients], client_samples(0)


@cache
def _batches() -> Batches:
    arguments = get_arguments()
    rows = np.arange(arguments["samples"])
    return Batches([rows] * arguments["clients"], arguments["batch"], seed=0)


def round_batch(client: int, number: int) -> tuple[Tensor, Tensor]:
    """Return the batches of a client in a round, counted from one, as one long batch."""
    steps = get_arguments()["steps"]
    first = (number - 1) * steps
    rows = np.concatenate([_batches().rows(client, first + step) for step in range(steps)])
    inputs, labels = client_samples(client)
    return inputs[rows], labels[rows]


class Rounds:
    """Record when each round ends, and the weights after the second."""

    def __init__(self) -> None:
        self._ends: list[float] = []
        self._weights: dict[str, Any] = {}

    def add(self, get_weights: Callable[[], dict[str, Tensor]]) -> None:
        """Record the end of a round."""
        self._ends.append(time.time())
        if len(self._ends) == COMPARED_ROUND:
            self._weights = {
                name: tensor.detach().numpy().copy() for name, tensor in get_weights().items()
            }

    def summarize(self) -> dict[str, Any]:
        """Return the times, and write the weights to the driver's file.

        A round is the median without the first. The start is the time to the end of the first
        round, less a round.
        """
        np.savez(get_arguments()["weights"], **self._weights)
        round_s = float(np.median(np.diff(self._ends)))
        return {
            "round_s": round_s,
            "start_s": self._ends[0] - float(os.environ["PEERS_START"]) - round_s,
            "rounds": len(self._ends),
        }


@torch.no_grad()
def evaluate(weights: dict[str, Tensor]) -> dict[str, Any]:
    """Return the loss over all data."""
    model = make_model()
    model.load_state_dict(weights)
    inputs, labels = make_samples()
    return {"loss": nn.functional.cross_entropy(model(inputs), labels).item()}
