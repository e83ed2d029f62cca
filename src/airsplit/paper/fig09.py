"""Figure 9: test accuracy against time, SFL and FedAvg, for different numbers of devices.

For claims C9 and C10.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter

from airsplit.paper.claim_text import describe_length, describe_means, describe_tests
from airsplit.paper.declaration import Data, Figure
from airsplit.paper.jobs import GUESSING
from airsplit.paper.rounds import SCHEMES
from airsplit.paper.studies import Case, curve, difference, get_study
from airsplit.paper.sweeps import Progress, Scale
from airsplit.plots import style
from airsplit.runs.seeds import Trials

# As in the paper.
SPLIT = 4


def compute(scale: Scale, progress: Progress) -> Data:
    """Train both schemes for each data set and number of devices, which share the training set."""
    study = get_study(scale)
    sweep = study.sweep
    cases = {
        (dataset, devices, scheme): Case(dataset, scheme, devices, SPLIT)
        for dataset in sweep.datasets
        for devices in sweep.devices
        for scheme in SCHEMES
    }
    # All in one call, so that they are trained in parallel.
    results = study.train(cases.values(), progress)
    trials = {key: results[case] for key, case in cases.items()}
    panels = [
        _summarize(dataset, devices, {s: trials[dataset, devices, s] for s in SCHEMES})
        for dataset in sweep.datasets
        for devices in sweep.devices
    ]
    gains = []
    for dataset in sweep.datasets:
        gain: dict[str, Any] = {"dataset": dataset}
        for scheme in SCHEMES:
            fewest = trials[dataset, sweep.devices[0], scheme].last("test_accuracy")
            most = trials[dataset, sweep.devices[-1], scheme].last("test_accuracy")
            gain[scheme] = difference(fewest, most)
        gains.append(gain)
    settings = study.settings() | {"split": SPLIT, "devices": list(sweep.devices)}
    return {"settings": settings, "panels": panels, "fewer_devices_gains": gains}


def _summarize(dataset: str, devices: int, schemes: dict[str, Trials]) -> dict[str, Any]:
    """Return the curves, and how far SFL is ahead at each of its evaluations."""
    _, times, accuracies = schemes["sfl"].curve()
    # Seeds differ slightly in their clocks, so FedAvg is read off at SFL's mean times.
    moments = times.mean(axis=0)
    ahead = [
        difference(column.tolist(), schemes["fedavg"].accuracy_by(moment, GUESSING))
        for column, moment in zip(accuracies.T, moments, strict=True)
    ]
    # Few evaluations of FedAvg make the comparison coarse, so their number is reported.
    counts = [
        sum(time_s <= moments[-1] for time_s, _ in evaluations)
        for evaluations in schemes["fedavg"].evaluations()
    ]
    curves = {scheme: curve(trials) for scheme, trials in schemes.items()}
    return {
        "dataset": dataset,
        "devices": devices,
        "sfl_ahead": ahead,
        "fedavg_evaluations_meanwhile": float(np.mean(counts)),
    } | curves


def draw(data: Data) -> Canvas:
    """Draw a row for each data set, a panel for each number of devices."""
    settings = data["settings"]
    rows = len(settings["datasets"])
    columns = len(settings["devices"])
    figure, axes = style.make_figure(
        rows, columns, 0.7 + 1.8 * rows, wide=columns > 2, sharey="row"
    )
    for cell, panel in zip(axes.flat, data["panels"], strict=True):
        for scheme, (name, color) in SCHEMES.items():
            time_s = np.mean(panel[scheme]["virtual_time_s"], axis=0)
            percent = 100 * np.array(panel[scheme]["test_accuracy"])
            style.plot_mean(cell, time_s, percent, color, marker="o", markersize=2.5, label=name)
        dataset = style.DATASET_NAMES[panel["dataset"]]
        cell.set_title(f"{dataset}, {panel['devices']} devices", loc="left")
        # The first evaluations of the schemes can be orders of magnitude apart.
        style.set_log_scale(cell.xaxis)
        cell.yaxis.set_major_formatter(FuncFormatter(style.format_plain))
    for cell in axes[-1]:
        cell.set_xlabel("virtual time [s]")
    for cell in axes[:, 0]:
        cell.set_ylabel("test accuracy [%]")
    style.add_shared_legend(figure, axes[0, 0], len(SCHEMES))
    style.add_caption(
        figure,
        f"alexnet32 at width {settings['arguments']['width']}, split ℓ = {settings['split']}, "
        f"{describe_length(settings)}, batch {settings['batch_size']}, the training set dealt to "
        f"the devices. {describe_means(data)} {describe_tests(settings)} "
        "FedAvg has its own optimal shares.",
    )
    return figure


FIGURE = Figure(9, "Test accuracy against time, SFL and FedAvg", compute, draw, trains=True)
