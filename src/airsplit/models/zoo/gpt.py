"""A small GPT: next-token logits from token ids."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from airsplit.core.errors import InvalidValue, require_integer, show
from airsplit.models.zoo.registry import GPT_INPUT
from airsplit.models.zoo.transformer import Block, require_blocks
from airsplit.system.inputs import require_shape


class GPT(nn.Module):
    """Token ids (batch, time) to logits (batch, time, vocabulary)."""

    def __init__(
        self,
        context: int,
        vocabulary: int,
        width: int,
        layers: int,
        heads: int,
        dropout: float,
        tied: bool,
    ) -> None:
        super().__init__()
        self.tokens = _build_embedding(vocabulary, width)
        self.positions = _build_embedding(context, width)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.Sequential(
            *(Block(width, heads, dropout, causal=True) for _ in range(layers))
        )
        self.norm = nn.LayerNorm(width)
        # No bias, as in GPT-2: a tied head has only the weight of the embedding.
        self.head = nn.Linear(width, vocabulary, bias=False)
        if tied:
            self.head.weight = self.tokens.weight

    def forward(self, ids: Tensor) -> Tensor:
        # A shorter text than the context uses the first positions.
        times = torch.arange(ids.shape[1], device=ids.device)
        x = self.dropout(self.tokens(ids) + self.positions(times))
        logits: Tensor = self.head(self.norm(self.blocks(x)))
        return logits


def gpt(
    input_shape: Sequence[int] = GPT_INPUT,
    vocabulary: int = 256,
    width: int = 128,
    layers: int = 4,
    heads: int = 4,
    dropout: float = 0.0,
    tied: bool = False,
) -> GPT:
    """Build a GPT-2-style decoder for up to `input_shape[0]` tokens.

    If `tied`, the head and the token embedding share one weight.

    >>> gpt(width=12, layers=2)(torch.zeros(3, 10, dtype=torch.int64)).shape
    torch.Size([3, 10, 256])
    """
    shape = require_shape("gpt.input_shape", input_shape)
    if len(shape) != 1:
        raise InvalidValue(
            f"gpt.input_shape must be the longest context alone, got {show(input_shape)}; "
            "write e.g. (64,)"
        )
    vocabulary = require_integer("gpt.vocabulary", vocabulary, low=1)
    width, layers, heads, dropout = require_blocks("gpt", width, layers, heads, dropout)
    if not isinstance(tied, bool):
        raise InvalidValue(f"gpt.tied must be True or False, got {show(tied)}")
    return GPT(shape[0], vocabulary, width, layers, heads, dropout, tied)


def _build_embedding(rows: int, width: int) -> nn.Embedding:
    """Return an embedding with weights from N(0, 0.02²), as in GPT-2."""
    # From torch's own N(0, 1), a tied head would start out confidently wrong.
    weight = nn.init.trunc_normal_(torch.empty(rows, width), std=0.02)
    return nn.Embedding.from_pretrained(  # type: ignore[no-untyped-call, no-any-return]
        weight, freeze=False
    )
