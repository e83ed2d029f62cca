"""The residual networks of He et al. for small images."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from torch import Tensor, nn

from airsplit.core.errors import InvalidValue, require_integer
from airsplit.models.zoo.layers import require_image_shape
from airsplit.models.zoo.registry import RESNET20_INPUT


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions added to their input.

    If the shapes differ, a 1 x 1 convolution projects the input first.

    >>> import torch
    >>> BasicBlock(4, 8, stride=2)(torch.zeros(1, 4, 6, 6)).shape
    torch.Size([1, 8, 3, 3])
    """

    def __init__(self, channels: int, filters: int, stride: int = 1) -> None:
        super().__init__()
        # No bias: the batch normalization behind it would subtract it again.
        self.conv1 = nn.Conv2d(channels, filters, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(filters)
        self.relu1 = nn.ReLU()
        self.conv2 = nn.Conv2d(filters, filters, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(filters)
        self.shortcut: nn.Module = nn.Identity()
        # The paper's option B; its option A, zero padding, is not a layer.
        if stride != 1 or channels != filters:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels, filters, 1, stride, bias=False), nn.BatchNorm2d(filters)
            )
        self.relu2 = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu1(self.bn1(self.conv1(x)))
        out: Tensor = self.relu2(self.bn2(self.conv2(y)) + self.shortcut(x))
        return out


def resnet20(
    input_shape: Sequence[int] = RESNET20_INPUT,
    classes: int = 10,
    layers: int = 20,
    width: int = 16,
) -> nn.Sequential:
    """Build the CIFAR ResNet of 6n + 2 layers: three stages of n blocks.

    The stages have `width`, 2 `width` and 4 `width` filters. The second and third begin with a
    1 x 1 projection with its own normalization; the paper's networks for CIFAR pad with zeros
    instead.

    >>> import torch
    >>> resnet20(width=4)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """
    channels, *_ = require_image_shape("resnet20.input_shape", input_shape)
    classes = require_integer("resnet20.classes", classes, low=1)
    width = require_integer("resnet20.width", width, low=1)
    blocks, remainder = divmod(require_integer("resnet20.layers", layers, low=8) - 2, 6)
    if remainder:
        raise InvalidValue(
            f"resnet20.layers must be 6n + 2, got {layers}; "
            f"take e.g. {6 * blocks + 2} or {6 * blocks + 8}"
        )
    return nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(channels, width, 3, padding=1, bias=False),
            bn1=nn.BatchNorm2d(width),
            relu=nn.ReLU(),
            stage1=_build_stage(blocks, width, width, stride=1),
            stage2=_build_stage(blocks, width, 2 * width, stride=2),
            stage3=_build_stage(blocks, 2 * width, 4 * width, stride=2),
            pool=nn.AdaptiveAvgPool2d(1),
            flatten=nn.Flatten(),
            fc=nn.Linear(4 * width, classes),
        )
    )


def _build_stage(blocks: int, channels: int, filters: int, stride: int) -> nn.Sequential:
    """Return blocks of equal width; the first one changes width and resolution."""
    return nn.Sequential(
        BasicBlock(channels, filters, stride),
        *(BasicBlock(filters, filters) for _ in range(blocks - 1)),
    )
