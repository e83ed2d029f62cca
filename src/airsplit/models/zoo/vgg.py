"""VGG16 in 36 layers."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from airsplit.core.errors import require_integer
from airsplit.models.zoo.layers import Stack
from airsplit.models.zoo.registry import VGG16_INPUT

# Filters and number of the 3 x 3 convolutions before each pooling.
_BLOCKS = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))


def vgg16(input_shape: Sequence[int] = VGG16_INPUT, classes: int = 1000) -> nn.Sequential:
    """VGG16 (configuration D): 13 convolutions, 5 poolings, 3 fully connected layers.

    >>> import torch
    >>> with torch.device("meta"):
    ...     model = vgg16()
    >>> len(model), sum(p.numel() for p in model.parameters())
    (36, 138357544)
    """
    stack = Stack("vgg16", input_shape)
    for block, (filters, convolutions) in enumerate(_BLOCKS, start=1):
        for layer in range(1, convolutions + 1):
            stack.conv(f"{block}_{layer}", filters, kernel=3, padding=1)
        stack.pool(f"{block}", kernel=2, stride=2)
    stack.fc("6", 4096)
    stack.fc("7", 4096)
    stack.fc("8", require_integer("vgg16.classes", classes, low=1), last=True)
    return stack.layers
