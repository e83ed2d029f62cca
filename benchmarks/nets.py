"""Models and data for the benchmarks of training and of the network."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

DEVICES = 20


def small_cnn() -> nn.Sequential:
    """The CNN of the paper that introduced FedAvg (McMahan et al., 2017): 1,663,370 parameters for 28 x 28 images."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64 * 7 * 7, 512), nn.ReLU(), nn.Linear(512, 10),
    )  # fmt: skip


def wide_back() -> nn.Sequential:
    """A small front and a back end of 16.8 million parameters."""
    sizes = (64, 256, 4096, 3840)
    layers = [
        layer for one, other in pairwise(sizes) for layer in (nn.Linear(one, other), nn.ReLU())
    ]
    return nn.Sequential(*layers, nn.Linear(sizes[-1], 10))


def _samples(n: int, *shape: int) -> tuple[Tensor, Tensor]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return torch.randn(n, *shape), torch.randint(0, 10, (n,))


def images() -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Noise in the shape of MNIST: time does not depend on what it shows."""
    return _samples(DEVICES * 64, 1, 28, 28), _samples(10, 1, 28, 28)


def vectors() -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    return _samples(800, 64), _samples(10, 64)


def wide_cut() -> nn.Sequential:
    """4,096 numbers of a sample cross the cut."""
    return nn.Sequential(nn.Linear(8, 4096), nn.ReLU(), nn.Linear(4096, 10))


def eights() -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    return _samples(256, 8), _samples(10, 8)


def mlp() -> nn.Sequential:
    """The multi-layer perceptron of the paper that introduced FedAvg: 199,210 parameters."""
    return nn.Sequential(
        nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, 10)
    )


def pixels() -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    return _samples(100, 784), _samples(10, 784)


def colored() -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Noise in the shape of CIFAR-10, 128 images for each of 100 devices."""
    return _samples(12_800, 3, 32, 32), _samples(10, 3, 32, 32)


def many() -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Noise in the shape of CIFAR-10, two images for each of 10,000 devices."""
    return _samples(20_000, 3, 32, 32), _samples(500, 3, 32, 32)
