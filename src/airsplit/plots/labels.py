"""Who holds which labels: a bar for each device of a small fleet, a heat map for a large one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, PowerNorm
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter, MaxNLocator

from airsplit.core import palette
from airsplit.core.arrays import Floats, Ints
from airsplit.core.palette import CLASSES
from airsplit.plots import style

MOST_BARS = 40  # devices
MOST_NAMES = 30  # classes that are named in a heat map
MOST_COLUMNS = 1000  # of a heat map: where there are more devices, neighbors are averaged
SHADES = LinearSegmentedColormap.from_list(
    "shares", ["#ffffff", "#c7dcec", palette.BLUE, "#08263c"]
)
SHARES = (0.0, 0.01, 0.1, 0.25, 0.5, 1.0)  # of the color bar

_BAR_IN, _HEAT_IN = 0.125, 0.15  # height of a bar, and of a row of the heat map


def draw_labels(counts: Ints, names: Sequence[str], title: str, caption: str) -> Canvas:
    """How many samples of each class each device holds, devices × classes, as a picture.

    Up to 40 devices and ten classes are stacked bars; more are columns of a heat map, sorted by the label that a device
    holds most of.
    """
    bars = len(counts) <= MOST_BARS and len(names) <= len(CLASSES)
    with style.plot_style():
        height_in = 1.15 + (
            _BAR_IN * len(counts) if bars else _HEAT_IN * min(max(len(names), 8), MOST_NAMES) + 0.15
        )
        figure, ((axis,),) = style.make_figure(1, 1, height_in)
        figure.suptitle(title, fontsize=style.RC_PARAMS["axes.titlesize"], x=0.02, ha="left")
        (_draw_bars if bars else _draw_heat_map)(axis, counts, names)
        style.add_caption(figure, caption)
    return figure


def _draw_bars(axis: Axes, counts: Ints, names: Sequence[str]) -> None:
    places = np.arange(len(counts))  # devices are numbered from 0, as in tables
    ends = np.cumsum(counts, axis=1)
    for label, name in enumerate(names):
        left = ends[:, label] - counts[:, label]
        bar: dict[str, Any] = {
            "height": 0.84,
            "color": CLASSES[label],
            "edgecolor": "white",
            "linewidth": 0.3,
        }
        axis.barh(places, counts[:, label], left=left, label=name, **bar)
    axis.set_xlim(0, ends[:, -1].max())
    axis.set_ylim(len(counts) - 0.4, -0.6)  # the first device on top
    axis.set_yticks(places if len(counts) <= 20 else places[::5])
    axis.tick_params(axis="y", length=0)
    axis.grid(visible=False, axis="y")
    axis.spines["left"].set_visible(False)
    axis.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axis.xaxis.set_major_formatter(FuncFormatter(style.format_plain))
    axis.set_xlabel("samples")
    axis.set_ylabel("device")
    _legend(axis, names)


def _legend(axis: Axes, names: Sequence[str]) -> None:
    """All names above the bars, in the order of the colors, row by row."""
    columns = min(len(names), 10 if max(map(len, names)) <= 2 else 5)
    handles, labels = axis.get_legend_handles_labels()
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


def _draw_heat_map(axis: Axes, counts: Ints, names: Sequence[str]) -> None:
    some = np.array_split(_sorted_shares(counts), min(len(counts), MOST_COLUMNS))
    shares = np.stack([neighbors.mean(axis=0) for neighbors in some])
    edges = (0, len(counts), len(names) - 0.5, -0.5)
    image = axis.imshow(
        shares.T,
        aspect="auto",
        cmap=SHADES,
        norm=PowerNorm(0.5, 0, 1),
        extent=edges,
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
    bar = axis.figure.colorbar(
        image,
        ax=axis,
        pad=0.02,
        aspect=25,
        ticks=SHARES,
        format=FuncFormatter(lambda x, _: f"{100 * x:g} %"),
    )
    bar.set_label("of a device's samples")
    bar.outline.set_linewidth(0.6)


def _sorted_shares(counts: Ints) -> Floats:
    """Each device's share of each label; devices in the order of their main label, and of how much they have of it.

    >>> _sorted_shares(np.array([[0, 4], [2, 2], [3, 1]])).tolist()
    [[0.75, 0.25], [0.5, 0.5], [0.0, 1.0]]
    """
    shares: Floats = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    return shares[np.lexsort((-shares.max(axis=1), shares.argmax(axis=1)))]
