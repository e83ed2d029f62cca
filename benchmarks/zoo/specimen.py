"""A network of the zoo: how it is built, what it is fed, and what others say that it costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn


@dataclass(frozen=True)
class Case:
    """A model, the arguments that tell Airsplit of its input, and a batch to run it on."""

    model: nn.Module
    sample: dict[str, Any]
    batch: tuple[Tensor, ...]


@dataclass(frozen=True)
class Published:
    """What the authors of a network say that it costs, for the image size they say it for."""

    size: int
    gmacs: float
    parameters: int

    def agrees(self, matmul_macs: int) -> bool:
        """Within 1 % or half a unit of the last digit, which is a thousandth.

        >>> Published(224, 0.04, 1_366_792).agrees(40_480_000), Published(224, 0.04, 1_366_792).agrees(41_000_000)
        (True, False)
        """
        return abs(matmul_macs / 1e9 - self.gmacs) <= max(0.01 * self.gmacs, 0.0005)


@dataclass(frozen=True)
class Specimen:
    """`whole` builds it at its published size, without weights if it can; `small` builds one that trains quickly."""

    name: str
    family: str
    whole: Callable[[], Case]
    small: Callable[[], Case]
    published: Published | None = None
