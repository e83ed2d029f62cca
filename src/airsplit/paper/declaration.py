"""Figure: what one figure of the paper declares."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure as Canvas

from airsplit.paper.sweeps import Progress, Scale

Data = dict[str, Any]
"""A figure's numbers and settings, ready for JSON; a drawing reads nothing else."""


@dataclass(frozen=True)
class Figure:
    """A figure: its number in the paper (12 and above are ours), how its numbers are made, and how they are drawn.

    trains   whether its numbers come from trainings, which at the scale of the paper take a GPU
    """

    number: int
    title: str
    compute: Callable[[Scale, Progress], Data]
    draw: Callable[[Data], Canvas]
    trains: bool = False

    @property
    def stem(self) -> str:
        """What its files are called: fig03, fig12."""
        return f"fig{self.number:02d}"
