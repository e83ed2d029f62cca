"""Figure 10: test accuracy for shallow and deep splits, with IID and non-IID data.  Carries C11."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter, MaxNLocator

from airsplit.core import palette
from airsplit.paper.accuracies import DEVICES, Case, curve, difference, study_of
from airsplit.paper.declaration import Data, Figure
from airsplit.paper.jobs import PARTITIONS
from airsplit.paper.sweeps import Progress, Scale
from airsplit.paper.wording import length_of_training, means_text, tested_text
from airsplit.plots import style
from airsplit.runs.seeds import Trials

COLORS = {4: palette.BLUE, 10: palette.ORANGE, 15: palette.RED}


def compute(scale: Scale, progress: Progress) -> Data:
    """SFL at each split and with each partition."""
    study = study_of(scale)
    sweep = study.sweep
    keys = [(dataset, part) for dataset in sweep.datasets for part in PARTITIONS]
    cases = {
        key: [
            Case(key[0], devices=DEVICES, split=split, partition=key[1]) for split in sweep.splits
        ]
        for key in keys
    }
    found = study.trained([case for several in cases.values() for case in several], progress)
    panels = [_panel(*key, {case.split: found[case] for case in cases[key]}) for key in keys]
    losses = {(panel["dataset"], panel["partition"]): panel["losses"] for panel in panels}
    more = [
        {"dataset": d} | difference(losses[d, "non-iid"], losses[d, "iid"]) for d in sweep.datasets
    ]
    given = study.settings() | {"devices": DEVICES, "splits": list(sweep.splits)}
    return {"settings": given, "panels": panels, "non_iid_gains_over_iid": more}


def _panel(dataset: str, part: str, splits: dict[int, Trials]) -> dict[str, Any]:
    """Curves, and what the deepest split loses: of each seed, and in the mean."""
    ends = [trials.last("test_accuracy") for trials in splits.values()]
    lost = [shallow - deep for shallow, deep in zip(ends[0], ends[-1], strict=False)]
    curves = [{"split": split} | curve(trials) for split, trials in splits.items()]
    return {
        "dataset": dataset,
        "partition": part,
        "curves": curves,
        "shallow_gain": difference(ends[0], ends[-1]),
        "losses": lost,
    }


def draw(data: Data) -> Canvas:
    """A row for each data set, a panel for each partition."""
    given = data["settings"]
    rows = len(given["datasets"])
    figure, axes = style.make_figure(rows, len(PARTITIONS), 0.7 + 1.8 * rows, sharey="row")
    for cell, panel in zip(axes.flat, data["panels"], strict=True):
        for each in panel["curves"]:
            percent = 100 * np.array(each["test_accuracy"])
            style.plot_mean(
                cell,
                each["rounds"],
                percent,
                COLORS[each["split"]],
                marker="o",
                markersize=2.5,
                label=f"ℓ = {each['split']}",
            )
        cell.set_title(
            f"{style.DATASET_NAMES[panel['dataset']]}, {style.PARTITION_NAMES[panel['partition']]}",
            loc="left",
        )
        cell.xaxis.set_major_locator(MaxNLocator(6, integer=True, steps=[1, 2, 5, 10]))
        cell.xaxis.set_major_formatter(FuncFormatter(style.format_plain))
        cell.yaxis.set_major_formatter(FuncFormatter(style.format_plain))
    for cell in axes[-1]:
        cell.set_xlabel("round")
    for cell in axes[:, 0]:
        cell.set_ylabel("test accuracy [%]")
    style.add_shared_legend(figure, axes[0, 1], len(COLORS))
    style.add_caption(
        figure,
        f"SFL with {given['devices']} devices, alexnet32 at width {given['arguments']['width']}; {length_of_training(given)}, batch "
        f"{given['batch_size']}. Mean over devices' models on the common test set. {means_text(data)} {tested_text(given)} "
        f"Non-IID: {given['non_iid']}.",
    )
    return figure


FIGURE = Figure(10, "Test accuracy for shallow and deep splits", compute, draw, trains=True)
