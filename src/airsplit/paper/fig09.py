"""Figure 9: test accuracy against time, SFL and FedAvg, for several numbers of devices.  Carries C9 and C10."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter

from airsplit.paper.accuracies import Case, curve, difference, study_of
from airsplit.paper.comparison import SCHEMES
from airsplit.paper.declaration import Data, Figure
from airsplit.paper.jobs import GUESSING
from airsplit.paper.sweeps import Progress, Scale
from airsplit.paper.wording import length_of_training, means_text, tested_text
from airsplit.plots import style
from airsplit.runs.seeds import Trials

SPLIT = 4


def compute(scale: Scale, progress: Progress) -> Data:
    """Both schemes for each data set and number of devices; the whole training set is dealt to them."""
    study = study_of(scale)
    sweep = study.sweep
    keys = [(dataset, devices) for dataset in sweep.datasets for devices in sweep.devices]
    cases = {
        key: {scheme: Case(key[0], scheme, key[1], SPLIT) for scheme in SCHEMES} for key in keys
    }
    found = study.trained(
        [case for schemes in cases.values() for case in schemes.values()], progress
    )
    panels = [
        _panel(*key, {scheme: found[case] for scheme, case in cases[key].items()}) for key in keys
    ]
    gains = []
    for dataset in sweep.datasets:
        few, many = (cases[dataset, sweep.devices[at]] for at in (0, -1))
        ends = {s: [found[each[s]].last("test_accuracy") for each in (few, many)] for s in SCHEMES}
        gains.append({"dataset": dataset} | {s: difference(*pair) for s, pair in ends.items()})
    given = study.settings() | {"split": SPLIT, "devices": list(sweep.devices)}
    return {"settings": given, "panels": panels, "fewer_devices_gains": gains}


def _panel(dataset: str, devices: int, schemes: dict[str, Trials]) -> dict[str, Any]:
    """Curves, and how far SFL is ahead at each of the times at which it is evaluated."""
    _, times, accuracies = schemes["sfl"].curve()
    moments = times.mean(axis=0)
    rivals = [schemes["fedavg"].accuracy_by(moment, GUESSING) for moment in moments]
    ahead = [difference(accuracies[:, at].tolist(), rival) for at, rival in enumerate(rivals)]
    done = float(
        np.mean(
            [sum(time <= moments[-1] for time, _ in run) for run in schemes["fedavg"].evaluations()]
        )
    )
    curves = {scheme: curve(trials) for scheme, trials in schemes.items()}
    return {
        "dataset": dataset,
        "devices": devices,
        "sfl_ahead": ahead,
        "fedavg_evaluations_meanwhile": done,
    } | curves


def draw(data: Data) -> Canvas:
    """A row for each data set, a panel for each number of devices."""
    given = data["settings"]
    rows, columns = len(given["datasets"]), len(given["devices"])
    figure, axes = style.make_figure(
        rows, columns, 0.7 + 1.8 * rows, wide=columns > 2, sharey="row"
    )
    for cell, panel in zip(axes.flat, data["panels"], strict=True):
        for scheme, (name, color) in SCHEMES.items():
            times, percent = (
                np.array(panel[scheme]["virtual_time_s"]),
                100 * np.array(panel[scheme]["test_accuracy"]),
            )
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
        f"alexnet32 at width {given['arguments']['width']}, split ℓ = {given['split']}, {length_of_training(given)}, batch "
        f"{given['batch_size']}, the training set dealt to the devices. {means_text(data)} {tested_text(given)} "
        "FedAvg has its own optimal shares.",
    )
    return figure


FIGURE = Figure(9, "Test accuracy against time, SFL and FedAvg", compute, draw, trains=True)
