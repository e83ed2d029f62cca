"""AlexNet in 20 layers, at its own input size and adapted to small images.

The names are the paper's: splits 4, 10 and 15 are pool1, relu3 and pool5 in both.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from airsplit.core.errors import InvalidValue, require_integer, require_number
from airsplit.models.zoo.layers import Stack
from airsplit.models.zoo.registry import ALEXNET32_INPUT, ALEXNET_INPUT


def alexnet(
    input_shape: Sequence[int] = ALEXNET_INPUT, classes: int = 1000, groups: int = 1
) -> nn.Sequential:
    """AlexNet as the paper counts it: response normalization, overlapping pooling, no dropout.

    Args:
        input_shape: Channels, height and width.
        classes: Number of outputs.
        groups: Groups of conv2, conv4 and conv5. The original, split over two GPUs, has 2.

    >>> import torch
    >>> with torch.device("meta"):
    ...     model = alexnet()
    >>> len(model), model.conv1(torch.empty(1, 3, 227, 227, device="meta")).shape
    (20, torch.Size([1, 96, 55, 55]))
    """
    # The greatest common divisor of 96, 256 and 384 is 32.
    if 32 % require_integer("alexnet.groups", groups, low=1):
        raise InvalidValue(
            f"alexnet.groups must divide 96, 256 and 384, got {groups}; take 1, 2, 4, 8, 16 or 32"
        )
    stack = Stack("alexnet", input_shape)
    stack.conv("1", 96, kernel=11, stride=4)
    _add_remaining_layers(stack, require_integer("alexnet.classes", classes, low=1), groups=groups)
    return stack.layers


def alexnet32(
    input_shape: Sequence[int] | None = None,
    channels: int = 3,
    classes: int = 10,
    width: float = 1.0,
) -> nn.Sequential:
    """AlexNet for images of about 32 x 32: the same 20 layers, but conv1 is 5x5 with stride 1.

    Args:
        input_shape: Channels, height and width (default: channels, 32, 32).
        channels: Channels of the default input; ignored if `input_shape` is given.
        classes: Number of outputs.
        width: Factor on the width of every inner layer.

    >>> import torch
    >>> alexnet32(channels=1, width=0.25)(torch.zeros(2, 1, 32, 32)).shape
    torch.Size([2, 10])
    """
    width = require_number("alexnet32.width", width, above=0, high=64)
    channels = require_integer("alexnet32.channels", channels, low=1)
    if input_shape is None:
        input_shape = (channels, *ALEXNET32_INPUT[1:])
    stack = Stack("alexnet32", input_shape)
    stack.conv("1", _scale(96, width), kernel=5, padding=2)
    _add_remaining_layers(stack, require_integer("alexnet32.classes", classes, low=1), width=width)
    return stack.layers


def _add_remaining_layers(
    stack: Stack, classes: int, *, groups: int = 1, width: float = 1.0
) -> None:
    """Add everything after the first convolution, which is common to both networks."""
    stack.norm("1")
    stack.pool("1", kernel=3, stride=2)
    stack.conv("2", _scale(256, width), kernel=5, padding=2, groups=groups)
    stack.norm("2")
    stack.pool("2", kernel=3, stride=2)
    stack.conv("3", _scale(384, width), kernel=3, padding=1)
    stack.conv("4", _scale(384, width), kernel=3, padding=1, groups=groups)
    stack.conv("5", _scale(256, width), kernel=3, padding=1, groups=groups)
    stack.pool("5", kernel=3, stride=2)
    stack.fc("6", _scale(4096, width))
    stack.fc("7", _scale(4096, width))
    stack.fc("8", classes, last=True)


def _scale(filters: int, width: float) -> int:
    """Return a layer's width times a factor, at least 1.

    >>> _scale(96, 0.25), _scale(96, 0.001)
    (24, 1)
    """
    return max(1, round(filters * width))
