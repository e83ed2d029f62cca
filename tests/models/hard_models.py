"""Models that are hard to cut, because not everything they do is a layer."""

import functools
from collections import namedtuple
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


class Net(nn.Module):
    """Two linear layers, for models that do something between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.second = nn.Linear(8, 3)


class InPlaceShortcut(Net):
    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.first(x), inplace=True)
        g = 2 * h
        g += h
        return self.second(h.clone().clamp_(max=0.5) * g.sigmoid_())


class DropoutByHand(Net):
    def forward(self, x: Tensor) -> Tensor:
        h = F.dropout(self.first(x).relu(), 0.5, self.training)
        return self.second(h.view(x.size(0), 2, -1).flatten(1) + h)


class AuxiliaryHead(Net):
    """Returns more in training mode."""

    def forward(self, x: Tensor) -> Any:
        h = self.first(x)
        out = self.second(h.tanh())
        return (
            {"out": out, "aux": self.second(h), "rest": [None, "text", 3]}
            if self.training
            else {"out": out}
        )


class NoGradients(Net):
    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        with torch.no_grad():
            gate = h.sigmoid()
        return self.second(h * gate + h.detach())


class StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.sign()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return 3 * gradient


class CustomGradient(Net):
    def forward(self, x: Tensor) -> Tensor:
        return self.second(StraightThrough.apply(self.first(x)))


class FilledByParts(Net):
    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        out = h.new_zeros(x.shape[0], 8)
        out[:, :4] = h[:, 4:]
        return self.second(out)


class Counting(Net):
    """Buffers that forward changes, directly and through a view."""

    count: Tensor
    history: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1))
        self.register_buffer("history", torch.zeros(4), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        self.history[0:2] += 1
        return self.second(self.first(x) * self.count)


class Masked(nn.Module):
    """Token ids, a mask that is filled in place, positions, and a parameter used in part."""

    triangle: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(11, 8)
        self.head = nn.Linear(8, 3)
        self.positions = nn.Parameter(torch.randn(1, 9, 8))
        self.register_buffer("triangle", torch.ones(6, 6).tril())

    def forward(self, ids: Tensor) -> Tensor:
        mask = torch.zeros(6, 6, device=ids.device)
        mask[self.triangle == 0] = float("-inf") if mask.sum() == 0 else 0.0
        x = self.tokens(ids) + self.positions[:, : ids.shape[1]]
        return self.head((x @ x.mT + mask).softmax(-1) @ x)


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.image = nn.Linear(8, 6)
        self.text = nn.Embedding(5, 6)

    def forward(self, x: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
        return self.image(x).relu(), self.text(ids).mean(1)


class StochasticDepth(Net):
    """Random numbers that do not depend on the data, drawn in one order."""

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        if self.training:
            h = h * torch.empty(len(x), 1, dtype=x.dtype).bernoulli_(0.5) / 0.5
        return self.second(h + torch.rand(x.shape[0], 8))


class Checkpointed(Net):
    def forward(self, x: Tensor) -> Tensor:
        h = checkpoint(self.first, x, use_reentrant=False)
        return checkpoint(self.second, h.relu(), use_reentrant=True)


class Frozen(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.Linear(8, 3))
        self[0].requires_grad_(False)


class LoopOverTime(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(8, 6)
        self.head = nn.Linear(6, 3)
        self.dropout = nn.Dropout(0.3)

    def forward(self, x: Tensor) -> Tensor:
        h = x.new_zeros(x.shape[0], 6)
        for step in x.unbind(1):
            h = self.cell(step, h)
        return self.head(self.dropout(h))


class SwapsAxes(Net):
    """Sends a tensor whose batch is not its first axis, or shares an axis with time."""

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x.transpose(0, 1)).reshape(-1, 8).tanh()
        return self.second(h).reshape(x.shape[1], x.shape[0], 3).transpose(0, 1)


class Spectrum(Net):
    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.fft.ifft(torch.fft.fft(self.first(x))).real)


Pair = namedtuple("Pair", "mean spread")


class NamedResult(Net):
    def forward(self, x: Tensor) -> Pair:
        h = self.first(x)
        return Pair(self.second(h), h.var(1, keepdim=True))


@functools.lru_cache
def triangle(size: int) -> Tensor:
    return torch.ones(size, size).tril()


class Caching(Net):
    """Caches tensors: in a function, and in a dictionary of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[int, Tensor] = {}

    def forward(self, x: Tensor) -> Tensor:
        if 8 not in self.kept:
            self.kept[8] = torch.arange(8.0)
        return self.second(self.first(x) @ triangle(8) + self.kept[8])


HARD: dict[type[nn.Module], tuple[Tensor, ...]] = {
    InPlaceShortcut: (torch.randn(3, 8),),
    DropoutByHand: (torch.randn(3, 8),),
    AuxiliaryHead: (torch.randn(3, 8),),
    NoGradients: (torch.randn(3, 8),),
    CustomGradient: (torch.randn(3, 8),),
    FilledByParts: (torch.randn(3, 8),),
    Counting: (torch.randn(3, 8),),
    Masked: (torch.randint(0, 11, (3, 6)),),
    TwoInputs: (torch.randn(3, 8), torch.randint(0, 5, (3, 4))),
    StochasticDepth: (torch.randn(3, 8),),
    Checkpointed: (torch.randn(3, 8),),
    Frozen: (torch.randn(3, 8),),
    LoopOverTime: (torch.randn(3, 4, 8),),
    SwapsAxes: (torch.randn(3, 5, 8),),
    Spectrum: (torch.randn(3, 8),),
    NamedResult: (torch.randn(3, 8),),
}
