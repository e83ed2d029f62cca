"""The declaration of one figure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure as Canvas

from airsplit.paper.sweeps import Progress, Scale

# Numbers and settings of a figure, ready for JSON. Drawing reads nothing else, so a figure can be
# drawn again from its file.
Data = dict[str, Any]


@dataclass(frozen=True)
class Figure:
    """A figure of the paper, or one of ours.

    Attributes:
        number: Number in the paper; 12 and above are ours.
        title: Title in the table of figures.
        compute: Computes the numbers.
        draw: Draws them.
        trains: Whether the numbers come from training, which needs a GPU at the paper's scale.
    """

    number: int
    title: str
    compute: Callable[[Scale, Progress], Data]
    draw: Callable[[Data], Canvas]
    trains: bool = False

    @property
    def stem(self) -> str:
        """Name of the figure's files, as fig03."""
        return f"fig{self.number:02d}"
