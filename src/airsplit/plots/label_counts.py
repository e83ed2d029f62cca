"""The plot of `airsplit data`: which device has which labels, as bars or as a heat map."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, PowerNorm
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from airsplit.core import palette
from airsplit.core.arrays import Floats, Ints
from airsplit.plots import style

# Devices that are drawn as bars, classes that a heat map names, and columns of a heat map.
MOST_BARS = 40
MOST_NAMES = 30
MOST_COLUMNS = 1000

SHADES = LinearSegmentedColormap.from_list(
    "shares", ["#ffffff", "#c7dcec", palette.BLUE, "#08263c"]
)
# Ticks of the color bar, which has a square-root scale: small shares matter, too.
SHARES = (0.0, 0.01, 0.1, 0.25, 0.5, 1.0)

_BAR_IN = 0.125
_HEAT_ROW_IN = 0.15


def draw_labels(counts: Ints, names: Sequence[str], title: str, caption: str) -> Figure:
    """Draw how many samples of each class each device has.

    Up to 40 devices with up to ten classes are stacked bars. Larger tables become a heat map with
    a column for each device, sorted by its most frequent label.

    Args:
        counts: Numbers of samples, devices × classes.
        names: Names of the classes.
        title: Text above the plot.
        caption: Text below the plot.
    """
    as_bars = len(counts) <= MOST_BARS and len(names) <= len(palette.CLASSES)
    with style.plot_style():
        if as_bars:
            panel_in = _BAR_IN * len(counts)
        else:
            panel_in = _HEAT_ROW_IN * min(max(len(names), 8), MOST_NAMES) + 0.15
        figure, ((axis,),) = style.make_figure(1, 1, 1.15 + panel_in)
        figure.suptitle(title, fontsize=style.RC_PARAMS["axes.titlesize"], x=0.02, ha="left")
        if as_bars:
            draw_bars(axis, counts, names)
        else:
            draw_heat_map(axis, counts, names)
        style.add_caption(figure, caption)
    return figure


def draw_bars(axis: Axes, counts: Ints, names: Sequence[str]) -> None:
    """Draw a bar for each device, with the samples of each class one after another."""
    # Devices are numbered from 0, as in tables.
    places = np.arange(len(counts))
    ends = np.cumsum(counts, axis=1)
    bar: dict[str, Any] = {"height": 0.84, "edgecolor": "white", "linewidth": 0.3}
    for label, name in enumerate(names):
        left = ends[:, label] - counts[:, label]
        color = palette.CLASSES[label]
        axis.barh(places, counts[:, label], left=left, label=name, color=color, **bar)

    axis.set_xlim(0, ends[:, -1].max())
    # From top to bottom, so that the first device is on top.
    axis.set_ylim(len(counts) - 0.4, -0.6)
    # Numbers of more than 20 bars would overlap.
    every = 1 if len(counts) <= 20 else 5
    axis.set_yticks(places[::every])
    axis.tick_params(axis="y", length=0)
    axis.grid(visible=False, axis="y")
    axis.spines["left"].set_visible(False)
    axis.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axis.xaxis.set_major_formatter(FuncFormatter(style.format_plain))
    axis.set_xlabel("samples")
    axis.set_ylabel("device")
    _add_legend(axis, names)


def _add_legend(axis: Axes, names: Sequence[str]) -> None:
    """Add a legend above the bars, in the order of the colors, row by row."""
    # Digits are short enough for a single row.
    most = 10 if max(map(len, names)) <= 2 else 5
    columns = min(len(names), most)
    handles, labels = axis.get_legend_handles_labels()
    # matplotlib fills a legend column by column.
    rows = -(-len(names) // columns)
    order = [
        row * columns + column
        for column in range(columns)
        for row in range(rows)
        if row * columns + column < len(names)
    ]
    spacing = {
        "handlelength": 0.8,
        "handleheight": 0.8,
        "columnspacing": 0.9,
        "handletextpad": 0.4,
        "borderaxespad": 0.6,
        "borderpad": 0,
    }
    axis.legend(
        [handles[i] for i in order],
        [labels[i] for i in order],
        loc="lower left",
        bbox_to_anchor=(-0.015, 1),
        ncols=columns,
        **spacing,
    )


def draw_heat_map(axis: Axes, counts: Ints, names: Sequence[str]) -> None:
    """Draw each device's share of each label as the shade of a cell."""
    # A picture has no more columns than this; neighbors share one.
    groups = np.array_split(sort_shares(counts), min(len(counts), MOST_COLUMNS))
    shares = np.stack([neighbors.mean(axis=0) for neighbors in groups])
    image = axis.imshow(
        shares.T,
        aspect="auto",
        cmap=SHADES,
        norm=PowerNorm(0.5, 0, 1),
        # The axis counts devices even if several share a column; labels go from top to bottom.
        extent=(0, len(counts), len(names) - 0.5, -0.5),
        interpolation="nearest",
    )
    axis.grid(visible=False)
    axis.spines[["top", "right"]].set_visible(True)
    axis.set_xlabel("devices, sorted by the label that they hold most of")
    axis.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axis.xaxis.set_major_formatter(FuncFormatter(style.format_plain))
    axis.tick_params(axis="y", length=0)
    if len(names) <= MOST_NAMES:
        axis.set_yticks(range(len(names)), names)
    axis.set_ylabel("label")

    percent = FuncFormatter(lambda x, _: f"{100 * x:g} %")
    place: dict[str, Any] = {"ax": axis, "pad": 0.02, "aspect": 25}
    bar = axis.figure.colorbar(image, ticks=SHARES, format=percent, **place)
    bar.set_label("of a device's samples")
    bar.outline.set_linewidth(0.6)


def sort_shares(counts: Ints) -> Floats:
    """Return each device's share of each label, sorted by most frequent label and its share.

    >>> sort_shares(np.array([[0, 4], [2, 2], [3, 1]])).tolist()
    [[0.75, 0.25], [0.5, 0.5], [0.0, 1.0]]
    """
    # A device without samples has no shares, instead of 0 / 0.
    shares: Floats = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    return shares[np.lexsort((-shares.max(axis=1), shares.argmax(axis=1)))]
