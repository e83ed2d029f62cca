"""Figure 9: test accuracy against time, SFL and FedAvg, for several numbers of devices.  Carries C9 and C10."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter

from airsplit.figures import style
from airsplit.figures.accuracies import curve, difference, fixed, scenario, trained, training_settings
from airsplit.figures.comparison import SCHEMES
from airsplit.figures.declaration import Data, Figure
from airsplit.figures.sweeps import Progress, Scale
from airsplit.trials import Trials

DEVICES = (5, 20)
SPLIT = 4
GUESSING = 0.1
"""The accuracy of an untrained model on ten classes."""


def compute(scale: Scale, progress: Progress) -> Data:  # noqa: ARG001 - one shape for all
    """Both schemes for each number of devices; the whole training set is dealt to them."""
    keys = [(devices, scheme) for devices in DEVICES for scheme in SCHEMES]
    scenarios = [scenario(**fixed(SPLIT), **{"fleet.devices": devices, "training.algorithm": scheme}) for devices, scheme in keys]
    found = dict(zip(keys, trained(scenarios, progress), strict=True))
    panels = [_panel(devices, {scheme: found[devices, scheme] for scheme in SCHEMES}) for devices in DEVICES]
    few, many = (DEVICES[0], DEVICES[-1])
    fewer = {s: difference(found[few, s].last("test_accuracy"), found[many, s].last("test_accuracy")) for s in SCHEMES}
    return {"settings": training_settings() | {"split": SPLIT}, "panels": panels, "fewer_devices_gain": fewer}


def _panel(devices: int, schemes: dict[str, Trials]) -> dict[str, Any]:
    """Curves, and how far SFL is ahead at each of the times at which it is evaluated."""
    _, times, accuracies = schemes["sfl"].curve()
    moments = times.mean(axis=0)
    rivals = [schemes["fedavg"].accuracy_by(moment, GUESSING) for moment in moments]
    ahead = [difference(accuracies[:, at].tolist(), rival) for at, rival in enumerate(rivals)]
    done = float(np.mean([sum(time <= moments[-1] for time, _ in run) for run in schemes["fedavg"].evaluated()]))
    curves = {scheme: curve(trials) for scheme, trials in schemes.items()}
    return {"devices": devices, "sfl_ahead": ahead, "fedavg_rounds_meanwhile": done} | curves


def draw(data: Data) -> Canvas:
    """A panel for each number of devices."""
    figure, axes = style.canvas(1, len(data["panels"]), 2.3, sharey=True)
    for cell, panel in zip(axes[0], data["panels"], strict=True):
        for scheme, (name, colour) in SCHEMES.items():
            times, percent = np.array(panel[scheme]["virtual_time_s"]), 100 * np.array(panel[scheme]["test_accuracy"])
            style.ranged(cell, times.mean(axis=0), percent, colour, marker="o", markersize=2.5, label=name)
        cell.set_title(f"{panel['devices']} devices", loc="left")
        style.log_axis(cell.xaxis)
        cell.set_xlabel("virtual time [s]")
        cell.yaxis.set_major_formatter(FuncFormatter(style.plain))
    axes[0, 0].set_ylabel("test accuracy [%]")
    axes[0, 0].legend(loc="upper left")
    given = data["settings"]
    style.caption(
        figure,
        f"alexnet32 at width {given['arguments']['width']} on {given['dataset']}, split ℓ = {given['split']}, "
        f"{given['rounds']} rounds of {given['iterations_per_round']} iterations, batch {given['batch_size']}. Means and ranges of "
        f"{len(given['seeds'])} seeds; FedAvg has its own optimal shares.",
    )
    return figure


FIGURE = Figure(9, "Test accuracy against time, SFL and FedAvg", compute, draw, scales=("smoke",))
