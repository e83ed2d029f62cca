"""What the built-in networks are made of: FlatLinear, and Stack, which sizes each layer from the one before."""

from __future__ import annotations

import math
from typing import TypeVar

from torch import Tensor, nn

from airsplit.core.errors import InvalidValue
from airsplit.models.zoo.response_norm import ResponseNorm
from airsplit.models.zoo.shapes import require_image_shape
from airsplit.system.inputs import Shape

LayerT = TypeVar("LayerT", nn.Conv2d, nn.Linear)


class FlatLinear(nn.Linear):
    """A fully connected layer that flattens its input first, so that flattening is no layer of its own.

    >>> import torch
    >>> FlatLinear(12, 5)(torch.zeros(7, 3, 2, 2)).shape
    torch.Size([7, 5])
    """

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input.flatten(1))


def _begun(layer: LayerT) -> LayerT:
    """The layer with He et al.'s initial weights, which keep the variance of what passes through ReLUs.

    torch's own lose a third of it in every layer: AlexNet then learns nothing for its first hundreds of steps.
    """
    nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu")
    assert layer.bias is not None  # noqa: S101 - for the type checker
    nn.init.zeros_(layer.bias)
    return layer


class Stack:
    """Named layers in the making, for one input shape.

    >>> stack = Stack("tiny", (3, 9, 9))
    >>> stack.conv("1", filters=4, kernel=3)
    >>> stack.pool("1", kernel=3, stride=2)
    >>> stack.shape
    (4, 3, 3)
    >>> [name for name, _ in stack.sequential().named_children()]
    ['conv1', 'relu1', 'pool1']
    """

    def __init__(self, model: str, input_shape: object) -> None:
        self.model = model
        self.input_shape = require_image_shape(f"{model}.input_shape", input_shape)
        self.shape: Shape = self.input_shape
        self._layers = nn.Sequential()

    def conv(
        self,
        name: str,
        filters: int,
        kernel: int,
        *,
        stride: int = 1,
        padding: int = 0,
        groups: int = 1,
    ) -> None:
        """A convolution and its activation."""
        layer = _begun(nn.Conv2d(self.shape[0], filters, kernel, stride, padding, groups=groups))
        self._add(
            f"conv{name}", layer, (filters, *self._slide(f"conv{name}", kernel, stride, padding))
        )
        self._add(f"relu{name}", nn.ReLU(), self.shape)

    def norm(self, name: str) -> None:
        """Local response normalization with the constants of the AlexNet paper."""
        self._add(f"norm{name}", ResponseNorm(5, 1e-4, 0.75, 2.0), self.shape)

    def pool(self, name: str, *, kernel: int, stride: int) -> None:
        """Max pooling."""
        sizes = self._slide(f"pool{name}", kernel, stride, 0)
        self._add(f"pool{name}", nn.MaxPool2d(kernel, stride), (self.shape[0], *sizes))

    def fc(self, name: str, features: int, *, last: bool = False) -> None:
        """A fully connected layer and, unless it is the last, its activation."""
        self._add(f"fc{name}", _begun(FlatLinear(math.prod(self.shape), features)), (features,))
        if not last:
            self._add(f"relu{name}", nn.ReLU(), self.shape)

    def sequential(self) -> nn.Sequential:
        """The finished network."""
        return self._layers

    def _add(self, name: str, layer: nn.Module, shape: Shape) -> None:
        self._layers.add_module(name, layer)
        self.shape = shape

    def _slide(self, name: str, kernel: int, stride: int, padding: int) -> Shape:
        sizes = tuple((size + 2 * padding - kernel) // stride + 1 for size in self.shape[1:])
        if min(sizes) < 1:
            raise InvalidValue(
                f"{self.model}.input_shape must be large enough for all layers, got {self.input_shape}, "
                f"of which nothing is left at {name}; give a larger image"
            )
        return sizes
