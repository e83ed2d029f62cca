"""A network of the zoo: how it is built, its input, and its published costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn


@dataclass(frozen=True)
class Case:
    """A model and its input.

    Attributes:
        sample: Arguments that describe the input to Airsplit.
        batch: A batch to run the model on.
    """

    model: nn.Module
    sample: dict[str, Any]
    batch: tuple[Tensor, ...]


@dataclass(frozen=True)
class Published:
    """Costs that the authors of a network publish, for images of one size."""

    size: int
    gmacs: float
    parameters: int

    def agrees(self, matmul_macs: int) -> bool:
        """Return whether a count is within 1 % or half a unit of the last digit, a thousandth.

        >>> published = Published(224, 0.04, 1_366_792)
        >>> published.agrees(40_480_000), published.agrees(41_000_000)
        (True, False)
        """
        return abs(matmul_macs / 1e9 - self.gmacs) <= max(0.01 * self.gmacs, 0.0005)


@dataclass(frozen=True)
class Specimen:
    """A network of the zoo.

    Attributes:
        whole: Builds it at its published size, without weights if it can.
        small: Builds one that trains quickly.
    """

    name: str
    family: str
    whole: Callable[[], Case]
    small: Callable[[], Case]
    published: Published | None = None
