"""Accuracy, or another metric, over rounds and over virtual time, for several ways to train: what `airsplit compare` draws."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter, MaxNLocator

from airsplit.core import palette
from airsplit.core.arrays import Floats
from airsplit.plots import style
from airsplit.runs.seeds import Trials

TITLES = {
    "sfl": "SFL",
    "fedavg": "FedAvg",
    "split-learning": "split learning",
    "splitfed-v1": "SplitFed V1",
    "splitfed-v2": "SplitFed V2",
}
COLORS = dict(
    zip(
        TITLES,
        (palette.BLUE, palette.ORANGE, palette.GREEN, palette.PURPLE, palette.RED),
        strict=True,
    )
)
DASHES = {"splitfed-v1": (3, 1.5), "splitfed-v2": (1, 1)}


def draw_metric(several: Mapping[str, Trials], target: float | None, caption: str) -> Canvas:
    """A panel over rounds and one over virtual time; lines are means over seeds, bands their range."""
    metric = next(iter(several.values())).metric
    unit = 100 if metric.is_accuracy else 1
    with style.plot_style():
        figure, axes = style.make_figure(1, 2, 2.5, sharey=True)
        by_round, by_time = axes[0]
        for algorithm, trials in several.items():
            rounds, times, values = trials.curve()
            _curve(by_round, rounds, unit * values, algorithm)
            _curve(by_time, times.mean(axis=0), unit * values, algorithm)
        for cell in (by_round, by_time):
            if target is not None:
                cell.axhline(unit * target, color=palette.FAINT, linewidth=0.6, linestyle=":")
            cell.yaxis.set_major_formatter(FuncFormatter(style.format_plain))
        by_round.set_xlabel("round")
        by_round.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        by_round.set_ylabel("test accuracy [%]" if metric.is_accuracy else metric.name)
        by_time.set_xlabel("virtual time [s]")
        style.set_log_scale(by_time.xaxis)
        style.add_shared_legend(figure, by_round, 3)
        style.add_caption(figure, caption)
    return figure


def _curve(axes: Axes, x: Floats, values: Floats, algorithm: str) -> None:
    options: dict[str, Any] = {"dashes": DASHES[algorithm]} if algorithm in DASHES else {}
    marker = "o" if len(x) == 1 else ""
    color, title = COLORS.get(algorithm, palette.INK), TITLES.get(algorithm, algorithm)
    style.plot_mean(axes, x, values, color, label=title, marker=marker, **options)
