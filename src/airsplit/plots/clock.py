"""The plot of `airsplit clock`: how long rounds take, and how devices spend the time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from airsplit.core import palette
from airsplit.core.arrays import Floats, Ints
from airsplit.core.formatting import format_seconds
from airsplit.plots import style

WIDTH_IN = 5.6
HEIGHT_IN = 2.6

# More devices share a bar with their neighbors; numbers and names need still more room.
MOST_BARS = 40
MOST_NUMBERS = 20
MOST_NAMES = 6

# Lighter than the line of the mean, which stands in front of them.
HISTOGRAM = "#9cc3de"
BAND = "#eef4f9"


def draw_clock(
    latency_s: Floats,
    planned: tuple[str, float] | None,
    shares: Mapping[str, tuple[str, Floats]],
    caption: str,
    names: Sequence[str] = (),
) -> Figure:
    """Draw a histogram of round latencies, and next to it the time of each device.

    Args:
        latency_s: Latency of each round.
        planned: Label and value of the planned latency; None to mark none.
        shares: Label and one share per device for "compute", "transmit", "server", "idle" and
            "absent", as far as there is any.
        caption: Text below the plot.
        names: Names of the devices, shown if they are few; without names, their numbers.
    """
    with style.plot_style():
        figure, axes = style.make_figure(1, 2, HEIGHT_IN)
        figure.set_size_inches(WIDTH_IN, HEIGHT_IN)
        left, right = axes[0]
        draw_latencies(left, latency_s, planned)
        draw_shares(right, shares, names)
        style.add_caption(figure, caption)
    return figure


def draw_latencies(axis: Axes, latency_s: Floats, planned: tuple[str, float] | None) -> None:
    """Draw the left panel: a histogram of latencies, their middle 90 %, mean and planned value.

    Args:
        axis: Panel to draw on.
        latency_s: Latency of each round.
        planned: Label and value of the planned latency; None to mark none.
    """
    # The same limit as in `format_seconds`, so that axis and legend agree.
    if latency_s.max() >= 0.1:
        unit_s = 1.0
        unit = "s"
    else:
        unit_s = 1e-3
        unit = "ms"

    low_s, high_s = np.quantile(latency_s, (0.05, 0.95)).tolist()
    mean_s = float(latency_s.mean())
    counts, edges_s = np.histogram(latency_s, choose_bins(latency_s))
    band: dict[str, Any] = {"color": BAND, "linewidth": 0, "zorder": 0.5, "label": "5 % to 95 %"}
    axis.axvspan(low_s / unit_s, high_s / unit_s, **band)
    filled: dict[str, Any] = {
        "fill": True,
        "color": HISTOGRAM,
        "edgecolor": "white",
        "linewidth": 0.3,
    }
    axis.stairs(counts, edges_s / unit_s, **filled)
    label = f"mean, {format_seconds(mean_s)}"
    axis.axvline(mean_s / unit_s, color=palette.BLUE, linewidth=1.2, label=label)
    if planned is not None:
        name, planned_s = planned
        label = f"{name}, {format_seconds(planned_s)}"
        dashed: dict[str, Any] = {"linewidth": 1.2, "linestyle": (0, (3, 1.5))}
        axis.axvline(planned_s / unit_s, color=palette.RED, label=label, **dashed)

    axis.set_xlabel(f"latency of a round [{unit}]")
    axis.set_ylabel("rounds")
    axis.grid(visible=False, axis="x")
    low, high = axis.get_xlim()
    format_tick = make_tick_format(low, high)
    most = 6
    if len(format_tick(high, 0)) > 6:
        # Longer numbers would run into each other.
        most = 4
    axis.xaxis.set_major_locator(MaxNLocator(most, steps=[1, 2, 5, 10]))
    axis.xaxis.set_major_formatter(FuncFormatter(format_tick))
    axis.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    axis.yaxis.set_major_formatter(FuncFormatter(style.format_plain))
    _add_legend(axis, columns=1)


def make_tick_format(low: float, high: float) -> Callable[[float, int], str]:
    """Return a formatter with as many decimals as neighboring ticks need to differ.

    >>> make_tick_format(84.0, 86.0)(85.0, 0), make_tick_format(2e6, 2.1e6)(2.05e6, 0)
    ('85.0', '2,050,000')
    """
    # The axis has about five ticks, so this is the place value of their distance.
    decimals = max(0, -math.floor(math.log10((high - low) / 5)))
    return lambda value, _: f"{value:,.{decimals}f}"


def choose_bins(latency_s: Floats) -> Floats:
    """Return the edges of the histogram's bins, more for more rounds.

    >>> choose_bins(np.array([2.0, 2.0])).tolist()
    [1.99, 2.01]
    """
    low = float(latency_s.min())
    high = float(latency_s.max())
    if high - low <= 1e-9 * high or high == 0:
        # Equal latencies still need one bin of some width.
        return np.array([0.995, 1.005]) * (high or 1.0)

    # The Freedman-Diaconis rule gives too many bins where few rounds are much slower than others.
    most = int(np.clip(2 * np.sqrt(len(latency_s)), 5, 40))
    bins = len(np.histogram_bin_edges(latency_s, "fd")) + 3
    return np.histogram_bin_edges(latency_s, min(most, bins))


def draw_shares(axis: Axes, shares: Mapping[str, tuple[str, Floats]], names: Sequence[str]) -> None:
    """Draw the right panel: a bar for each device, of the shares of its time.

    More devices than MOST_BARS are sorted by waiting time, and neighbors share a bar.

    Args:
        axis: Panel to draw on.
        shares: Label and one share per device, from bottom to top.
        names: Names of the devices, shown if they are few; without names, their numbers.
    """
    K = len(next(iter(shares.values()))[1])
    few = K <= MOST_BARS
    if few:
        order = np.arange(K)
    else:
        # If no device waits, any kind of time will do.
        _, waiting = shares.get("idle", next(iter(shares.values())))
        order = np.argsort(waiting, kind="stable")
    edges = np.linspace(0, K, min(K, MOST_BARS) + 1)
    # Devices stand apart; groups of devices touch, as the bars of a histogram do.
    gap = 0.08 * (edges[1] - edges[0] == 1)
    widths = np.diff(edges) - 2 * gap
    below = np.zeros(len(edges) - 1)
    for kind, (label, share) in shares.items():
        above = below + 100 * average_neighbors(share[order], edges)
        place: dict[str, Any] = {"width": widths, "bottom": below, "align": "edge"}
        color = palette.TIMES[kind]
        axis.bar(edges[:-1] + gap, above - below, **place, linewidth=0, label=label, color=color)
        below = above

    axis.set_xlim(edges[0], edges[-1])
    axis.set_ylim(0, 100)
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} %"))
    axis.set_ylabel("share of the time")
    axis.grid(visible=False)
    axis.spines["left"].set_visible(False)
    if few:
        axis.tick_params(axis="x", length=0)
        axis.set_xlabel("device")
        name_devices(axis, K, names)
    else:
        axis.tick_params(axis="x", length=2)
        axis.set_xlabel("devices, sorted by how long they wait")
        axis.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        axis.xaxis.set_major_formatter(FuncFormatter(style.format_plain))
    _add_legend(axis, columns=3)


def name_devices(axis: Axes, devices: int, names: Sequence[str]) -> None:
    """Write names below the bars of a few devices, and numbers below those of more."""
    every = 1 if devices <= MOST_NUMBERS else 5
    numbers = np.arange(0, devices, every)
    labels = [str(number) for number in numbers]
    if names and devices <= MOST_NAMES:
        # Longer names would overlap.
        labels = [name[:10] for name in names]
    axis.set_xticks(numbers + 0.5, labels, fontsize=5.6 if devices > 12 else 6.5)


def average_neighbors(values: Floats, edges: Floats) -> Floats:
    """Return the mean of the values between neighboring edges, which may be fractions.

    >>> average_neighbors(np.array([1.0, 3.0, 5.0, 7.0]), np.array([0.0, 2.0, 4.0])).tolist()
    [2.0, 6.0]
    """
    # Cut down to whole values, edges keep their order, and every group has at least one value.
    starts: Ints = edges[:-1].astype(np.int64)
    counts = np.diff([*starts.tolist(), len(values)])
    means: Floats = np.add.reduceat(values, starts) / counts
    return means


def _add_legend(axis: Axes, columns: int) -> None:
    """Add a legend above the panel, from its left edge."""
    spacing = {
        "handlelength": 1.1,
        "handleheight": 0.8,
        "columnspacing": 1.0,
        "handletextpad": 0.5,
        "borderaxespad": 0.4,
        "borderpad": 0,
    }
    axis.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=columns, **spacing)
