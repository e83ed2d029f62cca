"""A small vision transformer."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from airsplit.core.errors import InvalidValue, require_integer
from airsplit.models.zoo.layers import require_image_shape
from airsplit.models.zoo.registry import VIT_INPUT
from airsplit.models.zoo.transformer import Block, require_blocks


class ViT(nn.Module):
    """Images (batch, channels, height, width) to logits (batch, classes).

    The logits are read off a class token that is put before the patches.
    """

    def __init__(
        self,
        channels: int,
        patches: int,
        classes: int,
        patch: int,
        width: int,
        layers: int,
        heads: int,
        dropout: float,
    ) -> None:
        super().__init__()
        self.patches = nn.Conv2d(channels, width, kernel_size=patch, stride=patch)
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(
            nn.init.trunc_normal_(torch.empty(1, 1 + patches, width), std=0.02)
        )
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.Sequential(*(Block(width, heads, dropout) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        # (batch, width, rows, columns) -> (batch, patches, width)
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_token.expand(x.shape[0], -1, -1), x], dim=1)
        x = self.blocks(self.dropout(x + self.positions))
        # Only the class token: the outputs at the patches are not used.
        logits: Tensor = self.head(self.norm(x[:, 0]))
        return logits


def vit(
    input_shape: Sequence[int] = VIT_INPUT,
    classes: int = 10,
    patch: int = 4,
    width: int = 192,
    layers: int = 6,
    heads: int = 3,
    dropout: float = 0.0,
) -> ViT:
    """Build a vision transformer with learned positions over patches of `patch` x `patch` pixels.

    >>> model = vit(width=12, layers=2)
    >>> model.positions.shape, model(torch.zeros(2, 3, 32, 32)).shape
    (torch.Size([1, 65, 12]), torch.Size([2, 10]))
    """
    channels, image_height, image_width = require_image_shape("vit.input_shape", input_shape)
    classes = require_integer("vit.classes", classes, low=1)
    patch = require_integer("vit.patch", patch, low=1)
    if image_height % patch or image_width % patch:
        raise InvalidValue(
            f"vit.patch must divide both sides of the image, {image_height} and {image_width}, "
            f"got {patch}; take e.g. {math.gcd(image_height, image_width, patch)}"
        )
    width, layers, heads, dropout = require_blocks("vit", width, layers, heads, dropout)
    patches = (image_height // patch) * (image_width // patch)
    return ViT(channels, patches, classes, patch, width, layers, heads, dropout)
