"""One look for all figures: single-column width, colours that everybody can tell apart, no more ink than needed."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

WIDTH_IN = 3.5
DOTS_PER_INCH = 300

# Okabe and Ito's palette, told apart with every kind of colour vision, without its yellow
BLUE, ORANGE, GREEN, RED, PURPLE, SKY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9"
COLOURS = (BLUE, ORANGE, GREEN, RED, PURPLE, SKY)
INK, FAINT = "#222222", "#6b6b6b"

MODEL_NAMES = {"alexnet": "AlexNet", "vgg16": "VGG16", "vgg16-3x32x32": "VGG16, 32×32 input"}

LOOK: dict[str, Any] = {
    "font.size": 7.5,
    "axes.titlesize": 7.5,
    "axes.labelsize": 7.5,
    "xtick.labelsize": 6.5,
    "ytick.labelsize": 6.5,
    "legend.fontsize": 6.5,
    "legend.frameon": False,
    "legend.handlelength": 1.6,
    "legend.labelspacing": 0.25,
    "lines.linewidth": 1.3,
    "lines.markersize": 3.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.edgecolor": INK,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.minor.size": 0,
    "ytick.minor.size": 0,
    "svg.hashsalt": "airsplit",
}


@contextmanager
def look() -> Iterator[None]:
    """Everything made or saved inside looks like this, whatever the user's matplotlib settings; they are restored after."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(LOOK)
        yield


def canvas(rows: int, columns: int, height_in: float, **options: Any) -> tuple[Canvas, np.ndarray[Any, Any]]:
    """A figure of single-column width and its axes, rows × columns."""
    figure = Canvas(figsize=(WIDTH_IN, height_in), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    return figure, axes


def caption(figure: Canvas, text: str) -> None:
    """The line under a figure that says what it was drawn from."""
    figure.supxlabel(textwrap.fill(text, 88), fontsize=5.6, color=FAINT, linespacing=1.25)


def curve(axes: Axes, x: Sequence[float], values: dict[str, list[float]], colour: str, **options: Any) -> None:
    """A median with its 10–90 % band."""
    axes.fill_between(x, values["p10"], values["p90"], color=colour, alpha=0.13, linewidth=0)
    axes.plot(x, values["median"], color=colour, **{"marker": "o", "markersize": 2.2} | options)


def ring(axes: Axes, x: Sequence[float], y: Sequence[float], colour: str, **options: Any) -> None:
    """Open circles around points: where they sit on a curve, two methods agree."""
    axes.plot(x, y, linestyle="none", marker="o", markersize=5, markerfacecolor="none", color=colour, markeredgewidth=0.8, **options)


def log_axis(axes: Axes, ticks: Sequence[float], *, which: str = "x", label: str = "") -> None:
    """A logarithmic axis with exactly these ticks, written as plain numbers."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    (axes.set_xscale if which == "x" else axes.set_yscale)("log")
    axis.set_major_locator(FixedLocator(list(ticks)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axis.set_minor_locator(NullLocator())
    if label:
        axis.set_label_text(label)


def pace_label(seconds_per_mac: float | Sequence[float]) -> str:
    """A pace as figures print it.

    >>> pace_label(2e-10), pace_label((2e-10, 1e-9))
    ('0.2 ns/MAC', 'uniform 0.2–1 ns/MAC')
    """
    ends = [f"{1e9 * end:g}" for end in np.atleast_1d(seconds_per_mac)]
    return ("uniform " if len(ends) > 1 else "") + "–".join(ends) + " ns/MAC"


def sampled(settings: dict[str, Any]) -> str:
    """How many devices and random fleets a figure speaks for."""
    return f"{settings['devices']} devices, medians and 10–90 % bands over {settings['fleets']} fleets"


def thousands(value: float, _position: int = 0) -> str:
    """12,000 instead of 12000.0."""
    return f"{value:,g}"


def png_bytes(figure: Canvas) -> bytes:
    """The figure as PNG."""
    return _saved(figure, "png", dpi=DOTS_PER_INCH)


def svg_text(figure: Canvas) -> str:
    """The figure as SVG: the same text for the same numbers."""
    return _saved(figure, "svg", metadata={"Date": None}).decode("utf-8")


def _saved(figure: Canvas, kind: str, **options: Any) -> bytes:
    stream = io.BytesIO()
    figure.savefig(stream, format=kind, **options)
    return stream.getvalue()
