"""One look for all figures: single-column width, colors that everybody can tell apart, no more ink than needed."""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FixedLocator, FuncFormatter, Locator, NullLocator

from airsplit.core.palette import FAINT, INK

# the kinds of file, and what must be left out of each for it to be the same every day
KINDS: dict[str, dict[str, None]] = {
    "png": {},
    "svg": {"Date": None},
    "pdf": {"CreationDate": None},
}

WIDTH_IN = 3.5
DOTS_PER_INCH = 300

DOTTED: dict[str, Any] = {"linestyle": ":", "linewidth": 0.9}
RING: dict[str, Any] = {"linestyle": "none", "marker": "o", "markerfacecolor": "white"}

DATASET_NAMES = {"digits": "digits", "mnist": "MNIST", "cifar10": "CIFAR-10"}
PARTITION_NAMES = {"iid": "IID", "non-iid": "non-IID"}
MODEL_NAMES = {"alexnet": "AlexNet", "vgg16": "VGG16"}
NAMES_WITH_INPUT = {
    "alexnet": "AlexNet, 227×227 input",
    "vgg16": "VGG16, 224×224 input",
    "vgg16-3x32x32": "VGG16, 32×32 input",
}

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
    """Whatever is made or saved inside looks like this; the user's own matplotlib settings are back afterwards."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        for key, value in LOOK.items():
            matplotlib.rcParams[key] = value  # type: ignore[index]
        yield


def canvas(
    rows: int, columns: int, height_in: float, *, wide: bool = False, **options: Any
) -> tuple[Canvas, np.ndarray[Any, Any]]:
    """A figure of single-column width, or with `wide` of two columns, and its axes, rows × columns."""
    figure = Canvas(figsize=(2 * WIDTH_IN if wide else WIDTH_IN, height_in), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    return figure, axes


def caption(figure: Canvas, text: str) -> None:
    """The line under a figure that says what it was drawn from."""
    kept = text.replace(" = ", "\u00a0=\u00a0").replace(" %", "\u00a0%")
    letters = round(82 * figure.get_figwidth() / WIDTH_IN)
    figure.supxlabel(textwrap.fill(kept, letters), fontsize=5.6, color=FAINT, linespacing=1.25)


def curve(
    axes: Axes, x: Sequence[float], values: dict[str, list[float]], color: str, **options: Any
) -> None:
    """A median with its 10–90 % band."""
    axes.fill_between(x, values["p10"], values["p90"], color=color, alpha=0.13, linewidth=0)
    axes.plot(x, values["median"], color=color, **options)


def ranged(axes: Axes, x: Any, values: Any, color: str, **options: Any) -> None:
    """A mean over seeds, the first axis, with their range."""
    if len(values) > 1:
        axes.fill_between(
            x, np.min(values, axis=0), np.max(values, axis=0), color=color, alpha=0.13, linewidth=0
        )
    axes.plot(x, np.mean(values, axis=0), color=color, **options)


def nested(count: int) -> list[float]:
    """Line widths from wide to narrow, so that curves on top of each other can all be seen."""
    return [0.9 + 0.55 * inside for inside in reversed(range(count))]


def rings(
    axes: Axes, x: Sequence[float], y: Sequence[float], reference: Sequence[float], color: str
) -> bool:
    """Draw open circles where y differs from a reference by more than 0.1 %; return whether there are any."""
    apart = [abs(v - r) > 1e-3 * abs(r) for v, r in zip(y, reference, strict=True)]
    points = [(a, b) for a, b, here in zip(x, y, apart, strict=True) if here]
    if points:
        axes.plot(*zip(*points, strict=True), color=color, zorder=3, **RING)
    return bool(points)


def log_axis(axis: Axis, ticks: Sequence[float] | None = None) -> None:
    """Make an axis logarithmic, with plain numbers at these ticks, or at round ones."""
    sideways = axis is axis.axes.xaxis
    (axis.axes.set_xscale if sideways else axis.axes.set_yscale)("log")
    # Numbers side by side need more room than numbers above one another.
    axis.set_major_locator(
        RoundTicks(sparse_from=50 if sideways else 100)
        if ticks is None
        else FixedLocator(list(ticks))
    )
    axis.set_major_formatter(FuncFormatter(plain))
    axis.set_minor_locator(NullLocator())


class RoundTicks(Locator):
    """Ticks of a logarithmic axis at round numbers, wherever its view ends; several axes may share it.

    Attributes:
        sparse_from: The ratio of its ends from which an axis has two ticks a decade instead of three.
    """

    def __init__(self, sparse_from: float) -> None:
        self.sparse_from = sparse_from

    def __call__(self) -> list[float]:
        return self.tick_values(*self.axis.get_view_interval())  # type: ignore[union-attr]  # there is an axis by now

    def tick_values(self, vmin: float, vmax: float) -> list[float]:
        return round_ticks(vmin, vmax, self.sparse_from)


def round_ticks(low: float, high: float, sparse_from: float = 100) -> list[float]:
    """Return round numbers from the decade of `low` to that of `high`; the more decades, the fewer in each.

    >>> round_ticks(4, 90)
    [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]
    """
    if not 0 < low <= high < np.inf:
        return []
    if high > 1e4 * low:
        steps = [1.0]
    elif high > sparse_from * low:
        steps = [1.0, 3.0]
    elif high > 8 * low:
        steps = [1.0, 2.0, 5.0]
    else:
        steps = [1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0]
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)))
    return [step * 10.0**decade for decade in decades for step in steps] + [10.0**decades.stop]


def legend_over_all(figure: Canvas, axes: Axes, columns: int) -> None:
    """A legend of what is in one panel, above all panels: it lies over no curve."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=columns, columnspacing=1.4)


def legend_above(axes: Axes, title: str) -> None:
    """A legend in two columns above the axes, under the title of the panel."""
    size = LOOK["axes.titlesize"]
    axes.legend(
        title=title,
        title_fontsize=size,
        loc="lower center",
        bbox_to_anchor=(0.5, 1),
        ncols=2,
        columnspacing=1,
    )


def pace_label(seconds_per_mac: float | Sequence[float]) -> str:
    """A pace as figures print it.

    >>> pace_label(2e-10), pace_label((2e-10, 1e-9))
    ('0.2 ns/MAC', 'uniform 0.2–1 ns/MAC')
    """
    ends = [f"{1e9 * end:g}" for end in np.atleast_1d(seconds_per_mac)]
    return ("uniform " if len(ends) > 1 else "") + "–".join(ends) + " ns/MAC"


def sampled(settings: dict[str, Any]) -> str:
    """How many devices and random fleets a figure speaks for."""
    return (
        f"{settings['devices']} devices, medians and 10–90 % bands over {settings['fleets']} fleets"
    )


def plain(value: float, _position: int = 0) -> str:
    """A number without powers of ten.

    >>> plain(12000.0), plain(0.5)
    ('12,000', '0.5')
    """
    return f"{value:,g}" if value < 1e6 else f"{value:,.0f}"


def png_bytes(figure: Canvas) -> bytes:
    """The figure as PNG."""
    return picture_bytes(figure, "png", DOTS_PER_INCH)


def svg_text(figure: Canvas) -> str:
    """The figure as SVG: the same text for the same numbers."""
    return picture_bytes(figure, "svg").decode("utf-8")


def picture_bytes(figure: Canvas, kind: str, dpi: float | Literal["figure"] = "figure") -> bytes:
    """The figure as one of the KINDS of file: the same bytes for the same picture."""
    stream = io.BytesIO()
    figure.savefig(stream, format=kind, dpi=dpi, metadata=KINDS[kind])
    return stream.getvalue()
