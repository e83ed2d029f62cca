"""Building blocks of AlexNet and VGG: FlatLinear, and Stack, which sizes each layer by the last."""

from __future__ import annotations

import math
from typing import TypeVar

from torch import Tensor, nn

from airsplit.core.errors import InvalidValue, show
from airsplit.models.zoo.response_norm import ResponseNorm
from airsplit.system.inputs import Shape, require_shape

LayerT = TypeVar("LayerT", nn.Conv2d, nn.Linear)


class FlatLinear(nn.Linear):
    """A fully connected layer that flattens its input, so that flattening is not a layer.

    >>> import torch
    >>> FlatLinear(12, 5)(torch.zeros(7, 3, 2, 2)).shape
    torch.Size([7, 5])
    """

    # torch's name of the argument: callers may pass it by keyword.
    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input.flatten(1))


class Stack:
    """A sequential network under construction; each layer takes its input size from the last.

    Attributes:
        shape: Shape of one sample after the last layer.
        layers: The network so far.

    >>> stack = Stack("tiny", (3, 9, 9))
    >>> stack.conv("1", filters=4, kernel=3)
    >>> stack.pool("1", kernel=3, stride=2)
    >>> stack.shape
    (4, 3, 3)
    >>> [name for name, _ in stack.layers.named_children()]
    ['conv1', 'relu1', 'pool1']
    """

    def __init__(self, model: str, input_shape: object) -> None:
        self.model = model
        self.input_shape = require_image_shape(f"{model}.input_shape", input_shape)
        self.shape: Shape = self.input_shape
        self.layers = nn.Sequential()

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
        """Add a convolution and its ReLU."""
        layer = nn.Conv2d(self.shape[0], filters, kernel, stride, padding, groups=groups)
        sizes = self._slide(f"conv{name}", kernel, stride, padding)
        self._add(f"conv{name}", _initialize(layer), (filters, *sizes))
        self._add(f"relu{name}", nn.ReLU(), self.shape)

    def norm(self, name: str) -> None:
        """Add local response normalization with the constants of the AlexNet paper."""
        self._add(f"norm{name}", ResponseNorm(5, 1e-4, 0.75, 2.0), self.shape)

    def pool(self, name: str, *, kernel: int, stride: int) -> None:
        """Add max pooling."""
        sizes = self._slide(f"pool{name}", kernel, stride, 0)
        self._add(f"pool{name}", nn.MaxPool2d(kernel, stride), (self.shape[0], *sizes))

    def fc(self, name: str, features: int, *, last: bool = False) -> None:
        """Add a fully connected layer and, unless it is the last one, its ReLU."""
        layer = FlatLinear(math.prod(self.shape), features)
        self._add(f"fc{name}", _initialize(layer), (features,))
        if not last:
            self._add(f"relu{name}", nn.ReLU(), self.shape)

    def _add(self, name: str, layer: nn.Module, shape: Shape) -> None:
        self.layers.add_module(name, layer)
        self.shape = shape

    def _slide(self, name: str, kernel: int, stride: int, padding: int) -> Shape:
        """Return height and width after a sliding window; reject an image that is too small."""
        sizes = tuple((size + 2 * padding - kernel) // stride + 1 for size in self.shape[1:])
        if min(sizes) < 1:
            raise InvalidValue(
                f"{self.model}.input_shape must be large enough for all layers, got "
                f"{self.input_shape}, which is used up at {name}; give a larger image"
            )
        return sizes


def require_image_shape(field: str, shape: object) -> tuple[int, int, int]:
    """Return channels, height and width.

    >>> require_image_shape("alexnet.input_shape", (3, 227, 227))
    (3, 227, 227)
    """
    sizes = require_shape(field, shape)
    if len(sizes) != 3:
        raise InvalidValue(
            f"{field} must be channels, height and width, got {show(shape)}; "
            "write e.g. 3x32x32, in Python (3, 32, 32)"
        )
    return sizes[0], sizes[1], sizes[2]


def _initialize(layer: LayerT) -> LayerT:
    """Give a layer the initial weights of He et al., which keep the variance through ReLUs."""
    # torch's own lose a third of the variance in every layer: AlexNet then learns nothing for
    # its first hundreds of steps.
    nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu")
    assert layer.bias is not None  # noqa: S101 - for the type checker
    nn.init.zeros_(layer.bias)
    return layer
