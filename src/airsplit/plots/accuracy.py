"""The plot of `airsplit compare`: accuracy, or another metric, over rounds and virtual time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from airsplit.core import palette
from airsplit.core.arrays import Floats
from airsplit.plots import style
from airsplit.runs.seeds import Trials
from airsplit.runs.wording import format_algorithm

# Versions of one algorithm, apart from their colors.
DASHES = {"splitfed-v1": (3, 1.5), "splitfed-v2": (1, 1)}


def draw_metric(several: Mapping[str, Trials], target: float | None, caption: str) -> Figure:
    """Draw a panel over rounds and one over virtual time: means over seeds, with their range."""
    metric = next(iter(several.values())).metric
    if metric.is_accuracy:
        unit = 100
        label = "test accuracy [%]"
    else:
        unit = 1
        label = metric.name

    with style.plot_style():
        figure, axes = style.make_figure(1, 2, 2.5, sharey=True)
        by_round, by_time = axes[0]
        for algorithm, trials in several.items():
            rounds, times, values = trials.curve()
            _plot_curve(by_round, rounds, unit * values, algorithm)
            _plot_curve(by_time, times.mean(axis=0), unit * values, algorithm)

        for panel in (by_round, by_time):
            if target is not None:
                panel.axhline(unit * target, color=palette.FAINT, linewidth=0.6, linestyle=":")
            panel.yaxis.set_major_formatter(FuncFormatter(style.format_plain))

        by_round.set_xlabel("round")
        by_round.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        by_round.set_ylabel(label)
        by_time.set_xlabel("virtual time [s]")
        style.set_log_scale(by_time.xaxis)
        style.add_shared_legend(figure, by_round, 3)
        style.add_caption(figure, caption)
    return figure


def _plot_curve(axes: Axes, x: Floats, values: Floats, algorithm: str) -> None:
    options: dict[str, Any] = {"label": format_algorithm(algorithm)}
    if algorithm in DASHES:
        options["dashes"] = DASHES[algorithm]
    # A line through one point is invisible.
    if len(x) == 1:
        options["marker"] = "o"
    style.plot_mean(axes, x, values, palette.get_algorithm_color(algorithm), **options)
