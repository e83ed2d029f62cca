"""Figure 10: test accuracy for shallow and deep splits, with IID and non-IID data.

For claim C11.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter, MaxNLocator

from airsplit.core import palette
from airsplit.paper.claim_text import describe_length, describe_means, describe_tests
from airsplit.paper.declaration import Data, Figure
from airsplit.paper.jobs import PARTITIONS
from airsplit.paper.studies import DEVICES, Case, curve, difference, get_study
from airsplit.paper.sweeps import Progress, Scale
from airsplit.plots import style
from airsplit.runs.seeds import Trials

# By split, since the scales have different ones.
COLORS = {4: palette.BLUE, 10: palette.ORANGE, 15: palette.RED}


def compute(scale: Scale, progress: Progress) -> Data:
    """Train SFL at each split and with each partition."""
    study = get_study(scale)
    sweep = study.sweep
    cases = {
        (dataset, partition, split): Case(
            dataset, devices=DEVICES, split=split, partition=partition
        )
        for dataset in sweep.datasets
        for partition in PARTITIONS
        for split in sweep.splits
    }
    # All in one call, so that they are trained in parallel.
    trials = study.train(cases.values(), progress)
    panels = [
        _summarize(
            dataset, partition, {s: trials[cases[dataset, partition, s]] for s in sweep.splits}
        )
        for dataset in sweep.datasets
        for partition in PARTITIONS
    ]
    losses = {(panel["dataset"], panel["partition"]): panel["losses"] for panel in panels}
    # A difference of differences, seed by seed: how much more a deep split loses on non-IID data.
    gains = [
        {"dataset": dataset} | difference(losses[dataset, "non-iid"], losses[dataset, "iid"])
        for dataset in sweep.datasets
    ]
    settings = study.settings() | {"devices": DEVICES, "splits": list(sweep.splits)}
    return {"settings": settings, "panels": panels, "non_iid_gains_over_iid": gains}


def _summarize(dataset: str, partition: str, splits: dict[int, Trials]) -> dict[str, Any]:
    """Return the curves, and what the deepest split loses: for each seed, and on average."""
    ends = [trials.last("test_accuracy") for trials in splits.values()]
    # Splits may have different numbers of seeds; the n-th of each is the same seed.
    losses = [shallow - deep for shallow, deep in zip(ends[0], ends[-1], strict=False)]
    curves = [{"split": split} | curve(trials) for split, trials in splits.items()]
    return {
        "dataset": dataset,
        "partition": partition,
        "curves": curves,
        "shallow_gain": difference(ends[0], ends[-1]),
        "losses": losses,
    }


def draw(data: Data) -> Canvas:
    """Draw a row for each data set, a panel for each partition."""
    settings = data["settings"]
    rows = len(settings["datasets"])
    figure, axes = style.make_figure(rows, len(PARTITIONS), 0.7 + 1.8 * rows, sharey="row")
    for cell, panel in zip(axes.flat, data["panels"], strict=True):
        for entry in panel["curves"]:
            split = entry["split"]
            percent = 100 * np.array(entry["test_accuracy"])
            points = {"marker": "o", "markersize": 2.5, "label": f"ℓ = {split}"}
            style.plot_mean(cell, entry["rounds"], percent, COLORS[split], **points)
        dataset = style.DATASET_NAMES[panel["dataset"]]
        cell.set_title(f"{dataset}, {style.PARTITION_NAMES[panel['partition']]}", loc="left")
        # Rounds are whole numbers; automatic ticks need not be.
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
        f"SFL with {settings['devices']} devices, alexnet32 at width "
        f"{settings['arguments']['width']}; {describe_length(settings)}, batch "
        f"{settings['batch_size']}. Mean over devices' models on the common test set. "
        f"{describe_means(data)} {describe_tests(settings)} Non-IID: {settings['non_iid']}.",
    )
    return figure


FIGURE = Figure(10, "Test accuracy for shallow and deep splits", compute, draw, trains=True)
