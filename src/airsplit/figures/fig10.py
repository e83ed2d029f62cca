"""Figure 10: test accuracy for a shallow and a deep split, with IID and non-IID data.  Carries C11."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter, MaxNLocator

from airsplit.figures import style
from airsplit.figures.accuracies import PARTITION_TITLES, PARTITIONS, curve, difference, training_settings, with_each_partition
from airsplit.figures.declaration import Data, Figure
from airsplit.figures.sweeps import Progress, Scale

DEVICES = 20
SPLITS = (4, 15)
COLOURS = (style.BLUE, style.RED)


def compute(scale: Scale, progress: Progress) -> Data:  # noqa: ARG001 - one shape for all
    """SFL at each split and with each partition."""
    found = with_each_partition(SPLITS, DEVICES, progress)
    panels = []
    for part in PARTITIONS:
        ends = [found[part, split].last("test_accuracy") for split in SPLITS]
        curves = [{"split": split} | curve(found[part, split]) for split in SPLITS]
        panels.append({"partition": part, "curves": curves, "shallow_gain": difference(ends[0], ends[-1]), "losses": _losses(ends)})
    more = difference(panels[1]["losses"], panels[0]["losses"])  # type: ignore[arg-type]
    given = training_settings() | {"devices": DEVICES, "splits": SPLITS}
    return {"settings": given, "panels": panels, "non_iid_gain_over_iid": more}


def _losses(ends: list[list[float]]) -> list[float]:
    """What the deep split loses, of each seed."""
    return [shallow - deep for shallow, deep in zip(ends[0], ends[-1], strict=True)]


def draw(data: Data) -> Canvas:
    """A panel for each partition."""
    figure, axes = style.canvas(1, len(data["panels"]), 2.3, sharey=True)
    for cell, panel in zip(axes[0], data["panels"], strict=True):
        for colour, each in zip(COLOURS, panel["curves"], strict=True):
            percent = 100 * np.array(each["test_accuracy"])
            style.ranged(cell, each["rounds"], percent, colour, marker="o", markersize=2.5, label=f"ℓ = {each['split']}")
        cell.set_title(PARTITION_TITLES[panel["partition"]], loc="left")
        cell.set_xlabel("round")
        cell.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        cell.yaxis.set_major_formatter(FuncFormatter(style.plain))
    axes[0, 0].set_ylabel("test accuracy [%]")
    axes[0, 1].legend(loc="upper left")
    given = data["settings"]
    style.caption(
        figure,
        f"SFL with {given['devices']} devices, alexnet32 at width {given['arguments']['width']} on {given['dataset']}; rounds of "
        f"{given['iterations_per_round']} iterations, batch {given['batch_size']}. Mean over the models of {given['evaluate_devices']} "
        f"devices on the common test set; means and ranges of {len(given['seeds'])} seeds. Non-IID: {given['non_iid']}.",
    )
    return figure


FIGURE = Figure(10, "Test accuracy for a shallow and a deep split", compute, draw, scales=("smoke",))
