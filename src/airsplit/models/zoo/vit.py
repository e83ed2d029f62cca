"""A small vision transformer."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from airsplit.core.errors import InvalidValue, require_integer
from airsplit.models.zoo.shapes import VIT_INPUT, require_image_shape
from airsplit.models.zoo.transformer import Block, require_blocks


class ViT(nn.Module):
    """Images (batch, channels, height, width) to logits (batch, classes), read off a class token put before the patches."""

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
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_token.expand(x.shape[0], -1, -1), x], dim=1)
        x = self.blocks(self.dropout(x + self.positions))
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
    """A vision transformer with learned positions that sees the image in squares of `patch` x `patch` pixels.

    >>> model = vit(width=12, layers=2)
    >>> model.positions.shape, model(torch.zeros(2, 3, 32, 32)).shape
    (torch.Size([1, 65, 12]), torch.Size([2, 10]))
    """
    channels, height, breadth = require_image_shape("vit.input_shape", input_shape)
    classes, patch = (
        require_integer("vit.classes", classes, low=1),
        require_integer("vit.patch", patch, low=1),
    )
    if height % patch or breadth % patch:
        fits = math.gcd(height, breadth, patch)
        raise InvalidValue(
            f"vit.patch must divide both sides of the image, {height} and {breadth}, got {patch}; take e.g. {fits}"
        )
    width, layers, heads, dropout = require_blocks("vit", width, layers, heads, dropout)
    return ViT(
        channels,
        (height // patch) * (breadth // patch),
        classes,
        patch,
        width,
        layers,
        heads,
        dropout,
    )
