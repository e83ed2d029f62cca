"""The figures at a tiny scale, and what their drawings show."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.legend import Legend

from airsplit.paper import fig10, fig13, fig14, studies
from airsplit.paper.figures import FIGURES, Scale, draw_one
from airsplit.plots import style

TINY = Scale("tiny", 2, 1)
TRAINING_FIGURES = (9, 10, 14)


def ignore_progress(_: str) -> None:
    """Progress that nobody reads."""


def draw_all(folder: Path) -> None:
    """Draw every figure, with small trainings and few certificates."""
    base = {
        "model.arguments.width": 0.02,
        "training.rounds": 2,
        "training.iterations_per_round": 1,
        "training.batch_size": 2,
        "training.evaluate_devices": 1,
    }
    with pytest.MonkeyPatch.context() as patch:
        # A certificate takes seconds.
        patch.setattr(fig13, "DISTANCES_M", (100, 400))
        patch.setattr(studies, "BASE", base)
        patch.setattr(studies, "SEEDS", 2)
        patch.setattr(studies, "JOBS", 1)
        patch.setattr(studies, "SMOKE", replace(studies.SMOKE, devices=(2, 3), limits=(4, 15)))
        for figure in (fig10, fig14):
            patch.setattr(figure, "DEVICES", 3)
        for figure in FIGURES.values():
            draw_one(figure, folder, TINY, ignore_progress)


def read_numbers(folder: Path, number: int) -> dict[str, Any]:
    """Return the numbers of a figure."""
    return json.loads((folder / f"{FIGURES[number].stem}.json").read_text(encoding="utf-8"))


def redraw(data: dict[str, Any]) -> Canvas:
    """Draw a figure from its numbers, with its final layout."""
    with style.plot_style():
        figure = FIGURES[data["figure"]].draw(data)
        figure.draw_without_rendering()
    return figure


def read_caption(figure: Canvas) -> str:
    """Return the caption of a drawing on one line."""
    return " ".join(figure.get_supxlabel().split())


def list_legends(figure: Canvas) -> list[Legend]:
    """Return the legends of a drawing and its panels."""
    return [*figure.legends, *filter(None, map(Axes.get_legend, figure.axes))]


def list_legend_labels(figure: Canvas) -> list[str]:
    """Return the labels in all legends of a drawing."""
    return [text.get_text() for legend in list_legends(figure) for text in legend.get_texts()]
