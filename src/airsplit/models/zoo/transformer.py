"""Building blocks of the transformers: Attention, and Block, with residual attention and MLP."""

from __future__ import annotations

import math

import torch.nn.functional as F
from torch import Tensor, nn

from airsplit.core.errors import InvalidValue, require_integer, require_number


class Attention(nn.Module):
    """Multi-head self-attention over (batch, time, width); if causal, without the future.

    >>> import torch
    >>> Attention(width=12, heads=3)(torch.zeros(2, 5, 12)).shape
    torch.Size([2, 5, 12])
    """

    def __init__(self, width: int, heads: int, dropout: float = 0.0, causal: bool = False) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.causal = causal
        self.qkv = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        # (batch, time, 3 · width) -> three of (batch, heads, time, width / heads)
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind()
        # Unlike nn.Dropout, the function does not know the mode.
        dropout = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=self.causal)
        out: Tensor = self.projection(mixed.transpose(1, 2).flatten(2))
        return out


class Block(nn.Module):
    """A pre-norm block: attention, then an MLP of four times the width, each added to its input.

    >>> import torch
    >>> Block(width=12, heads=3, causal=True)(torch.zeros(2, 5, 12)).shape
    torch.Size([2, 5, 12])
    """

    def __init__(self, width: int, heads: int, dropout: float = 0.0, causal: bool = False) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads, dropout, causal)
        self.dropout = nn.Dropout(dropout)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(dropout)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.dropout(self.attention(self.norm1(x)))
        out: Tensor = x + self.mlp(self.norm2(x))
        return out


def require_blocks(
    model: str, width: object, layers: object, heads: object, dropout: object
) -> tuple[int, int, int, float]:
    """Return width, layers, heads and dropout of a model's blocks, checked.

    >>> require_blocks("gpt", 128, 4, 4, 0)
    (128, 4, 4, 0.0)
    """
    width = require_integer(f"{model}.width", width, low=1)
    heads = require_integer(f"{model}.heads", heads, low=1)
    if width % heads:
        raise InvalidValue(
            f"{model}.heads must divide {model}.width, {width}, got {heads}; "
            f"take e.g. {math.gcd(width, heads)}"
        )
    layers = require_integer(f"{model}.layers", layers, low=1)
    dropout = require_number(f"{model}.dropout", dropout, low=0, below=1)
    return width, layers, heads, dropout
