"""Models and data for the benchmarks of training and of the network.

Data is noise in the shape of real data, since times do not depend on its values.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

DEVICES = 20
Samples = tuple[Tensor, Tensor]


def small_cnn() -> nn.Sequential:
    """The CNN of the FedAvg paper (McMahan et al., 2017).

    It has 1,663,370 parameters and takes images of 28 x 28.
    """
    return nn.Sequential(
        nn.Conv2d(1, 32, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 7 * 7, 512),
        nn.ReLU(),
        nn.Linear(512, 10),
    )


def mlp() -> nn.Sequential:
    """The multi-layer perceptron of the FedAvg paper: 199,210 parameters."""
    return nn.Sequential(
        nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, 10)
    )


def wide_back() -> nn.Sequential:
    """A small front and a back end of 16.8 million parameters."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise((64, 256, 4096, 3840)):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(3840, 10))


def wide_cut() -> nn.Sequential:
    """A model whose cut after the first layer sends 4,096 numbers for each sample."""
    return nn.Sequential(nn.Linear(8, 4096), nn.ReLU(), nn.Linear(4096, 10))


def images() -> tuple[Samples, Samples]:
    """Noise in the shape of MNIST, 64 images for each of 20 devices."""
    return _noise(DEVICES * 64, 1, 28, 28), _noise(10, 1, 28, 28)


def pixels() -> tuple[Samples, Samples]:
    """Noise in the shape of MNIST, flattened."""
    return _noise(100, 784), _noise(10, 784)


def color_images() -> tuple[Samples, Samples]:
    """Noise in the shape of CIFAR-10, 128 images for each of 100 devices."""
    return _noise(12_800, 3, 32, 32), _noise(10, 3, 32, 32)


def many_images() -> tuple[Samples, Samples]:
    """Noise in the shape of CIFAR-10, two images for each of 10,000 devices."""
    return _noise(20_000, 3, 32, 32), _noise(500, 3, 32, 32)


def vectors() -> tuple[Samples, Samples]:
    """Noise for `wide_back`."""
    return _noise(800, 64), _noise(10, 64)


def short_vectors() -> tuple[Samples, Samples]:
    """Noise for `wide_cut`."""
    return _noise(256, 8), _noise(10, 8)


def _noise(n: int, *shape: int) -> Samples:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return torch.randn(n, *shape), torch.randint(0, 10, (n,))
