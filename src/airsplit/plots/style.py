"""The common style of all figures: column width, fonts, axes, legends, and files that repeat."""

from __future__ import annotations

import io
import math
import os
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, Locator, NullLocator

from airsplit.core.errors import InvalidValue
from airsplit.core.files import write_bytes
from airsplit.core.palette import FAINT, INK

# Formats of files, with the metadata to leave out: a date would make every file a new one.
FORMATS: dict[str, dict[str, None]] = {
    "png": {},
    "svg": {"Date": None},
    "pdf": {"CreationDate": None},
}

# One column of a two-column paper, at the resolution that journals ask for.
WIDTH_IN = 3.5
DOTS_PER_INCH = 300

# Lines of limits and bounds, and marks of differences.
DOTTED: dict[str, Any] = {"linestyle": ":", "linewidth": 0.9}
RING: dict[str, Any] = {"linestyle": "none", "marker": "o", "markerfacecolor": "white"}

DATASET_NAMES = {"digits": "digits", "mnist": "MNIST", "cifar10": "CIFAR-10"}
PARTITION_NAMES = {"iid": "IID", "non-iid": "non-IID"}
MODEL_NAMES = {"alexnet": "AlexNet", "vgg16": "VGG16"}
# By the name of the shipped profile.
NAMES_WITH_INPUT = {
    "alexnet": "AlexNet, 227×227 input",
    "vgg16": "VGG16, 224×224 input",
    "vgg16-3x32x32": "VGG16, 32×32 input",
}

RC_PARAMS: dict[str, Any] = {
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
    # Without a salt, matplotlib draws random identifiers into every SVG.
    "svg.hashsalt": "airsplit",
}


@contextmanager
def plot_style() -> Iterator[None]:
    """Apply the plot style, and restore the user's on exit."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        for key, value in RC_PARAMS.items():
            matplotlib.rcParams[key] = value  # type: ignore[index]
        yield


def make_figure(
    rows: int, columns: int, height_in: float, *, wide: bool = False, **options: Any
) -> tuple[Figure, np.ndarray[Any, Any]]:
    """Return a figure of one column's width, or two if `wide`, and its axes, rows × columns."""
    width_in = WIDTH_IN
    if wide:
        width_in *= 2
    # Made without pyplot, which would keep every figure and choose a backend for a screen.
    figure = Figure(figsize=(width_in, height_in), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    return figure, axes


def add_caption(figure: Figure, text: str) -> None:
    """Add a caption below a figure."""
    # Neither an equation nor a percentage is broken over two lines.
    unbroken = text.replace(" = ", "\u00a0=\u00a0").replace(" %", "\u00a0%")
    letters = round(82 * figure.get_figwidth() / WIDTH_IN)
    wrapped = textwrap.fill(unbroken, letters)
    figure.supxlabel(wrapped, fontsize=5.6, color=FAINT, linespacing=1.25)


def plot_median(
    axes: Axes, x: Sequence[float], values: dict[str, list[float]], color: str, **options: Any
) -> None:
    """Plot a median with its 10–90 % band."""
    axes.fill_between(x, values["p10"], values["p90"], color=color, alpha=0.13, linewidth=0)
    axes.plot(x, values["median"], color=color, **options)


def plot_mean(axes: Axes, x: Any, values: Any, color: str, **options: Any) -> None:
    """Plot a mean over seeds, the first axis of `values`, with the range of the seeds."""
    if len(values) > 1:
        low = np.min(values, axis=0)
        high = np.max(values, axis=0)
        axes.fill_between(x, low, high, color=color, alpha=0.13, linewidth=0)
    axes.plot(x, np.mean(values, axis=0), color=color, **options)


def nested_line_widths(count: int) -> list[float]:
    """Return line widths from wide to narrow, so that coinciding curves all stay visible."""
    return [0.9 + 0.55 * inside for inside in reversed(range(count))]


def mark_differences(
    axes: Axes, x: Sequence[float], y: Sequence[float], reference: Sequence[float], color: str
) -> bool:
    """Draw open circles where y is off a reference by more than 0.1 %; return if there are any."""
    points = [
        (place, value)
        for place, value, wanted in zip(x, y, reference, strict=True)
        if abs(value - wanted) > 1e-3 * abs(wanted)
    ]
    if points:
        axes.plot(*zip(*points, strict=True), color=color, zorder=3, **RING)
    return bool(points)


def set_log_scale(axis: Axis, ticks: Sequence[float] | None = None) -> None:
    """Make an axis logarithmic, with plain numbers at these ticks, or at round ones."""
    if axis is axis.axes.xaxis:
        axis.axes.set_xscale("log")
        # Numbers side by side need more room than numbers above one another.
        sparse_from = 50
    else:
        axis.axes.set_yscale("log")
        sparse_from = 100

    if ticks is None:
        axis.set_major_locator(RoundTicks(sparse_from))
    else:
        axis.set_major_locator(FixedLocator(list(ticks)))
    axis.set_major_formatter(FuncFormatter(format_plain))
    axis.set_minor_locator(NullLocator())


class RoundTicks(Locator):
    """Ticks of a logarithmic axis at round numbers, for any view; several axes may share it.

    Attributes:
        sparse_from: Ratio of the axis's ends from which a decade has two ticks instead of three.
    """

    def __init__(self, sparse_from: float) -> None:
        self.sparse_from = sparse_from

    def __call__(self) -> list[float]:
        # matplotlib sets the axis before it calls a locator.
        return self.tick_values(*self.axis.get_view_interval())  # type: ignore[union-attr]

    def tick_values(self, vmin: float, vmax: float) -> list[float]:
        return round_ticks(vmin, vmax, self.sparse_from)


def round_ticks(low: float, high: float, sparse_from: float = 100) -> list[float]:
    """Return round numbers from the decade of `low` to that of `high`; fewer in more decades.

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
    # The decade of `high` ends in the power of ten above it, which has no other ticks.
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)))
    return [step * 10.0**decade for decade in decades for step in steps] + [10.0**decades.stop]


def add_shared_legend(figure: Figure, axes: Axes, columns: int) -> None:
    """Add the legend of one panel above all panels, where it covers no curve."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=columns, columnspacing=1.4)


def add_legend_above(axes: Axes, title: str) -> None:
    """Add a legend in two columns above the axes, below the title of the panel."""
    axes.legend(
        title=title,
        title_fontsize=RC_PARAMS["axes.titlesize"],
        loc="lower center",
        bbox_to_anchor=(0.5, 1),
        ncols=2,
        columnspacing=1,
    )


def format_pace(seconds_per_mac: float | Sequence[float]) -> str:
    """Format a pace, or the range of one, for a figure.

    >>> format_pace(2e-10), format_pace((2e-10, 1e-9))
    ('0.2 ns/MAC', 'uniform 0.2–1 ns/MAC')
    """
    ends = [f"{1e9 * end:g}" for end in np.atleast_1d(seconds_per_mac)]
    text = f"{'–'.join(ends)} ns/MAC"
    return f"uniform {text}" if len(ends) > 1 else text


def describe_sample(settings: dict[str, Any]) -> str:
    """Return how many devices and random fleets a figure is drawn from."""
    return (
        f"{settings['devices']} devices, medians and 10–90 % bands over {settings['fleets']} fleets"
    )


def format_plain(value: float, _position: int = 0) -> str:
    """Format a number without powers of ten.

    >>> format_plain(12000.0), format_plain(0.5)
    ('12,000', '0.5')
    """
    return f"{value:,g}" if value < 1e6 else f"{value:,.0f}"


def render(figure: Figure, kind: str, dpi: float | Literal["figure"] = "figure") -> bytes:
    """Return a figure as one of FORMATS: equal figures give equal bytes."""
    stream = io.BytesIO()
    figure.savefig(stream, format=kind, dpi=dpi, metadata=FORMATS[kind])
    return stream.getvalue()


def render_png(figure: Figure) -> bytes:
    return render(figure, "png", DOTS_PER_INCH)


def render_svg(figure: Figure) -> str:
    return render(figure, "svg").decode("utf-8")


def get_picture_format(path: str | os.PathLike[str]) -> str:
    """Return the format that a file name asks for. Check it before anything slow.

    >>> get_picture_format("out/alexnet.SVG")
    'svg'
    """
    suffix = Path(path).suffix.lower().removeprefix(".")
    if suffix not in FORMATS:
        raise InvalidValue(
            f"picture {str(path)!r} must end in .png, .svg or .pdf; "
            "give it a name such as 'profile.png'"
        )
    return suffix


def save_picture(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Write a figure atomically as PNG, SVG or PDF: equal figures give equal files."""
    kind = get_picture_format(path)
    with plot_style():
        write_bytes(path, render(figure, kind, DOTS_PER_INCH))
