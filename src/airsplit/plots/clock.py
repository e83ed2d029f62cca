"""How long rounds take and where the devices' time goes: what `airsplit clock` draws."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter, MaxNLocator

from airsplit.core import palette
from airsplit.core.arrays import Floats, Ints
from airsplit.core.formatting import format_seconds
from airsplit.core.palette import TIMES
from airsplit.plots import style

WIDTH_IN, HEIGHT_IN = 5.6, 2.6
MOST_BARS = 40  # devices; where there are more, neighbors are averaged
MOST_NUMBERS = 20  # devices whose bars are all numbered
MOST_NAMES = 6  # devices whose bars have names
BARS, BAND = "#9cc3de", "#eef4f9"


def draw_clock(
    latency_s: Floats,
    planned: tuple[str, float] | None,
    shares: Mapping[str, tuple[str, Floats]],
    caption: str,
    names: Sequence[str] = (),
) -> Canvas:
    """Left, how many rounds take how long; right, what each device does with its time.

    planned  how the planned latency is called, and what it is; None: nothing is marked
    shares   of the time, by its kind ("compute", "transmit", "server", "idle", "absent"): what that is called, and one number a device
    names    of the devices, written where there are few; none: their numbers
    """
    with style.plot_style():
        figure, axes = style.make_figure(1, 2, HEIGHT_IN)
        figure.set_size_inches(WIDTH_IN, HEIGHT_IN)
        left, right = axes[0]
        _draw_latency(left, latency_s, planned)
        _draw_shares(right, shares, names)
        style.add_caption(figure, caption)
    return figure


# ---- latency -------------------------------------------------------------------------------------------------------------------
def _draw_latency(axis: Axes, latency_s: Floats, planned: tuple[str, float] | None) -> None:
    """A histogram with its middle nine tenths, its mean, and the planned latency."""
    unit_s, word = (
        (1.0, "s") if latency_s.max() >= 0.1 else (1e-3, "ms")
    )  # as `format_seconds` has it
    (low_s, high_s), mean_s = np.quantile(latency_s, (0.05, 0.95)).tolist(), float(latency_s.mean())
    counts, edges_s = np.histogram(latency_s, _edges(latency_s))
    axis.axvspan(
        low_s / unit_s, high_s / unit_s, color=BAND, linewidth=0, zorder=0.5, label="5 % to 95 %"
    )
    axis.stairs(counts, edges_s / unit_s, fill=True, color=BARS, edgecolor="white", linewidth=0.3)
    axis.axvline(
        mean_s / unit_s, color=palette.BLUE, linewidth=1.2, label=f"mean, {format_seconds(mean_s)}"
    )
    if planned is not None:
        name, planned_s = planned
        axis.axvline(
            planned_s / unit_s,
            color=palette.RED,
            linewidth=1.2,
            linestyle=(0, (3, 1.5)),
            label=f"{name}, {format_seconds(planned_s)}",
        )
    axis.set_xlabel(f"latency of a round [{word}]")
    axis.set_ylabel("rounds")
    axis.grid(visible=False, axis="x")
    number = _told_apart(*axis.get_xlim())
    axis.xaxis.set_major_locator(
        MaxNLocator(4 if len(number(axis.get_xlim()[1], 0)) > 6 else 6, steps=[1, 2, 5, 10])
    )
    axis.xaxis.set_major_formatter(FuncFormatter(number))
    axis.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    axis.yaxis.set_major_formatter(FuncFormatter(style.format_plain))
    _legend(axis, columns=1)


def _told_apart(low: float, high: float) -> Callable[[float, int], str]:
    """Numbers with as many decimals as the ticks of an axis need.

    >>> _told_apart(84.0, 86.0)(85.0, 0), _told_apart(2e6, 2.1e6)(2.05e6, 0)
    ('85.0', '2,050,000')
    """
    decimals = max(0, -math.floor(math.log10((high - low) / 5)))
    return lambda value, _: f"{value:,.{decimals}f}"


def _edges(latency_s: Floats) -> Floats:
    """The edges of the bars: as many as the rounds can carry; at least a little apart where all take the same time."""
    low, high = float(latency_s.min()), float(latency_s.max())
    if high - low <= 1e-9 * high or high == 0:
        return np.array([0.995, 1.005]) * (high or 1.0)
    most = int(np.clip(2 * np.sqrt(len(latency_s)), 5, 40))
    return np.histogram_bin_edges(
        latency_s, min(most, len(np.histogram_bin_edges(latency_s, "fd")) + 3)
    )


# ---- time ----------------------------------------------------------------------------------------------------------------------
def _draw_shares(
    axis: Axes, shares: Mapping[str, tuple[str, Floats]], names: Sequence[str]
) -> None:
    """A bar for each device, in their order; many are sorted by how long they wait, and neighbors averaged."""
    K = len(next(iter(shares.values()))[1])
    few = K <= MOST_BARS
    order = np.arange(K) if few else np.argsort(_waiting(shares), kind="stable")
    edges = np.linspace(0, K, min(K, MOST_BARS) + 1)
    below = np.zeros(len(edges) - 1)
    for kind, (word, share) in shares.items():
        above = below + 100 * _averaged(share[order], edges)
        _bars(axis, below, above, edges, label=word, color=TIMES[kind])
        below = above
    axis.set_xlim(edges[0], edges[-1])
    axis.set_ylim(0, 100)
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} %"))
    axis.set_ylabel("share of the time")
    axis.grid(visible=False)
    axis.spines["left"].set_visible(False)
    axis.tick_params(axis="x", length=0 if few else 2)
    axis.set_xlabel("device" if few else "devices, sorted by how long they wait")
    if few:
        numbers = np.arange(0, K, 1 if K <= MOST_NUMBERS else 5)
        labels = (
            [name[:10] for name in names]
            if names and K <= MOST_NAMES
            else [str(k) for k in numbers]
        )
        axis.set_xticks(numbers + 0.5, labels, fontsize=5.6 if K > 12 else 6.5)
    else:
        axis.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        axis.xaxis.set_major_formatter(FuncFormatter(style.format_plain))
    _legend(axis, columns=3)


def _waiting(shares: Mapping[str, tuple[str, Floats]]) -> Floats:
    return shares["idle"][1] if "idle" in shares else next(iter(shares.values()))[1]


def _averaged(values: Floats, edges: Floats) -> Floats:
    """Means of neighbors between the edges.

    >>> _averaged(np.array([1.0, 3.0, 5.0, 7.0]), np.array([0.0, 2.0, 4.0])).tolist()
    [2.0, 6.0]
    """
    starts: Ints = edges[:-1].astype(np.int64)
    counts = np.diff([*starts.tolist(), len(values)])
    means: Floats = np.add.reduceat(values, starts) / counts
    return means


def _bars(axis: Axes, below: Floats, above: Floats, edges: Floats, **look: Any) -> None:
    gap = 0.08 * (edges[1] - edges[0] == 1)  # between devices; there is none between groups of them
    axis.bar(
        edges[:-1] + gap,
        above - below,
        width=np.diff(edges) - 2 * gap,
        bottom=below,
        align="edge",
        linewidth=0,
        **look,
    )


def _legend(axis: Axes, columns: int) -> None:
    """Above the panel, from its left edge."""
    spacing = {
        "handlelength": 1.1,
        "handleheight": 0.8,
        "columnspacing": 1.0,
        "handletextpad": 0.5,
        "borderaxespad": 0.4,
        "borderpad": 0,
    }
    axis.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=columns, **spacing)
