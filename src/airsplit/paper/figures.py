"""The paper's figures, three of our own, and the table of claims.

A figure is a declaration: what varies, what is plotted, which claim it carries.  `draw` computes, writes and judges.
Figures 9, 10 and 14 show accuracy: they train, at the scale "smoke" on the built-in digits, at "paper" on MNIST and CIFAR-10.
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
    fig04,
    fig05,
    fig06,
    fig07,
    fig08,
    fig09,
    fig10,
    fig11,
    fig12,
    fig13,
    fig14,
)
from airsplit.paper.claims import Claim, judged
from airsplit.paper.declaration import Data, Figure
from airsplit.paper.sweeps import SCALES, Scale, tidy
from airsplit.plots import style

__all__ = ["FIGURES", "SCALES", "Claim", "Figure", "Scale", "draw", "draw_one"]

_MODULES = (fig03, fig04, fig05, fig06, fig07, fig08, fig09, fig10, fig11, fig12, fig13, fig14)
FIGURES: dict[int, Figure] = {module.FIGURE.number: module.FIGURE for module in _MODULES}


def draw(
    numbers: Sequence[int] | None,
    out: Path,
    scale: str,
    progress: Callable[[str], None],
    *,
    data: str | os.PathLike[str] | None = None,
) -> list[Claim]:
    """Write figNN.json, figNN.svg and figNN.png of each figure, then claims.json.

    numbers   none given: all, but at the scale "paper" only those that need no GPU
    scale     "smoke" (20 random fleets, small trainings) or "paper" (200 fleets; trainings that are kept in runs.jsonl, so that those
              which are there are not made again)
    progress  is told in words what is being done
    data      the folder with data sets; None: the usual one
    """
    size = SCALES[require_choice("scale", scale, SCALES)]
    chosen = [FIGURES[number] for number in _known(numbers, scale)]
    folder = _folder(out)
    size = replace(
        size, trainings=folder / "runs.jsonl", data=None if data is None else os.fspath(data)
    )
    claims = judged({figure.number: draw_one(figure, folder, size, progress) for figure in chosen})
    write_text(folder / "claims.json", _json([asdict(claim) for claim in claims]))
    return claims


def draw_one(figure: Figure, folder: Path, scale: Scale, progress: Callable[[str], None]) -> Data:
    """Compute one figure, write its three files, and return its numbers as they stand in the JSON."""

    def tell(what: str) -> None:
        progress(f"figure {figure.number}: {what}")

    tell(figure.title)
    head = {"figure": figure.number, "title": figure.title, "scale": scale.name}
    data: Data = tidy(head | figure.compute(scale, tell))
    with style.plot_style():
        canvas = figure.draw(data)
        svg, png = style.render_svg(canvas), style.render_png(canvas)
    write_text(folder / f"{figure.stem}.json", _json(data))
    write_text(folder / f"{figure.stem}.svg", svg)
    write_bytes(folder / f"{figure.stem}.png", png)
    return data


def _known(numbers: Sequence[int] | None, scale: str) -> list[int]:
    for number in numbers or ():
        if isinstance(number, bool) or number not in FIGURES:
            known = ", ".join(str(n) for n in FIGURES)
            raise UnknownName(f"figure {show(number)} is not known. Known: {known}")
    return sorted(
        set(
            numbers
            or (
                number
                for number, figure in FIGURES.items()
                if scale == "smoke" or not figure.trains
            )
        )
    )


def _folder(out: Path) -> Path:
    """The folder, made before any work starts."""
    try:
        Path(out).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileProblem(
            f"{str(out)!r} cannot be made a folder for figures: {error.strerror}"
        ) from None
    return Path(out)


def _json(content: Any) -> str:
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
