"""Figure 9: test accuracy against time, SFL and FedAvg, for several numbers of devices.

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

SPLIT = 4


def compute(scale: Scale, progress: Progress) -> Data:
    """Train both schemes for each data set and number of devices, which share the training set."""
    study = get_study(scale)
    sweep = study.sweep
    keys = [(dataset, devices) for dataset in sweep.datasets for devices in sweep.devices]
    cases = {
        key: {scheme: Case(key[0], scheme, key[1], SPLIT) for scheme in SCHEMES} for key in keys
    }
    trials = study.train(
        [case for schemes in cases.values() for case in schemes.values()], progress
    )
    panels = [
        _summarize(*key, {scheme: trials[case] for scheme, case in cases[key].items()})
        for key in keys
    ]
    gains = []
    for dataset in sweep.datasets:
        few = cases[dataset, sweep.devices[0]]
        many = cases[dataset, sweep.devices[-1]]
        gain: dict[str, Any] = {"dataset": dataset}
        for scheme in SCHEMES:
            ends = (trials[cases_[scheme]].last("test_accuracy") for cases_ in (few, many))
            gain[scheme] = difference(*ends)
        gains.append(gain)
    settings = study.settings() | {"split": SPLIT, "devices": list(sweep.devices)}
    return {"settings": settings, "panels": panels, "fewer_devices_gains": gains}


def _summarize(dataset: str, devices: int, schemes: dict[str, Trials]) -> dict[str, Any]:
    """Return the curves, and how far SFL is ahead at each of its evaluations."""
    _, times, accuracies = schemes["sfl"].curve()
    moments = times.mean(axis=0)
    rivals = [schemes["fedavg"].accuracy_by(moment, GUESSING) for moment in moments]
    ahead = [difference(accuracies[:, at].tolist(), rival) for at, rival in enumerate(rivals)]
    counts = [
        sum(time <= moments[-1] for time, _ in evaluations)
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
            times = np.array(panel[scheme]["virtual_time_s"])
            percent = 100 * np.array(panel[scheme]["test_accuracy"])
            style.plot_mean(
                cell, times.mean(axis=0), percent, color, marker="o", markersize=2.5, label=name
            )
        cell.set_title(
            f"{style.DATASET_NAMES[panel['dataset']]}, {panel['devices']} devices", loc="left"
        )
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
