"""The paper's figures, three of our own, and the table of claims.

A figure is a declaration: what varies, what is plotted, for which claims. Figures 9, 10 and 14 show
accuracy and need training: on the built-in digits at the scale "smoke", on MNIST and CIFAR-10 at
the scale "paper".
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from airsplit.core.errors import FileProblem, UnknownName, require_choice, show
from airsplit.core.files import write_bytes, write_text
from airsplit.paper import (
    fig03,
    fig04_05,
    fig06,
    fig07_08,
    fig09,
    fig10,
    fig11,
    fig12,
    fig13,
    fig14,
)
from airsplit.paper.claims import Claim, judge_claims
from airsplit.paper.declaration import Data, Figure
from airsplit.paper.sweeps import SCALES, Scale, tidy
from airsplit.plots import style

__all__ = ["FIGURES", "SCALES", "Claim", "Figure", "Scale", "draw", "draw_one"]

FIGURES: dict[int, Figure] = {
    figure.number: figure
    for figure in (
        fig03.FIGURE,
        fig04_05.FIGURE_4,
        fig04_05.FIGURE_5,
        fig06.FIGURE,
        fig07_08.FIGURE_7,
        fig07_08.FIGURE_8,
        fig09.FIGURE,
        fig10.FIGURE,
        fig11.FIGURE,
        fig12.FIGURE,
        fig13.FIGURE,
        fig14.FIGURE,
    )
}


def draw(
    numbers: Sequence[int] | None,
    out: Path,
    scale: str,
    progress: Callable[[str], None],
    *,
    data: str | os.PathLike[str] | None = None,
) -> list[Claim]:
    """Write figNN.json, figNN.svg and figNN.png of each figure, then claims.json.

    Args:
        numbers: Figures to draw (default: all; at the scale "paper", all that need no GPU).
        out: Folder for the files.
        scale: "smoke" (20 random fleets, small trainings) or "paper" (200 fleets; trainings are
            kept in runs.jsonl and not repeated).
        progress: Called with a line of progress.
        data: Folder with data sets; None for the default.
    """
    effort = SCALES[require_choice("scale", scale, SCALES)]
    for number in numbers or ():
        if number not in FIGURES:
            known = ", ".join(str(n) for n in FIGURES)
            raise UnknownName(f"figure {show(number)} is not known. Known: {known}")

    # At the scale "paper" training needs a GPU, so it never starts unasked.
    affordable = [n for n, figure in FIGURES.items() if scale == "smoke" or not figure.trains]
    figures = [FIGURES[number] for number in sorted(set(numbers or affordable))]
    try:
        # A folder that cannot be written is reported now, not after minutes of planning.
        Path(out).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileProblem(
            f"cannot create the folder {str(out)!r} for figures: {error.strerror}"
        ) from None

    # The trainings lie beside the figures, so that a later call for the same folder finds them.
    effort = replace(
        effort,
        trainings=Path(out) / "runs.jsonl",
        data=None if data is None else os.fspath(data),
    )
    numbers_drawn = {
        figure.number: draw_one(figure, Path(out), effort, progress) for figure in figures
    }
    claims = judge_claims(numbers_drawn)
    write_text(Path(out) / "claims.json", _to_json([asdict(claim) for claim in claims]))
    return claims


def draw_one(figure: Figure, folder: Path, scale: Scale, progress: Callable[[str], None]) -> Data:
    """Compute a figure, write its three files, and return its numbers as in the JSON."""

    def report(text: str) -> None:
        progress(f"figure {figure.number}: {text}")

    report(figure.title)
    head = {"figure": figure.number, "title": figure.title, "scale": scale.name}
    # Rounded before drawing: the same JSON then always gives the same picture.
    data: Data = tidy(head | figure.compute(scale, report))
    with style.plot_style():
        # matplotlib reads its settings when it draws, so both files are rendered in here.
        canvas = figure.draw(data)
        svg = style.render_svg(canvas)
        png = style.render_png(canvas)
    write_text(folder / f"{figure.stem}.json", _to_json(data))
    write_text(folder / f"{figure.stem}.svg", svg)
    write_bytes(folder / f"{figure.stem}.png", png)
    return data


def _to_json(content: Any) -> str:
    # JSON has no NaN; Python would write one that no other reader accepts.
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
