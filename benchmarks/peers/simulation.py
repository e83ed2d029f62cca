"""FedAvg in one simulator and another."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from peers.environments import Outcome, run, versions
from peers.table import Race, Section, duration, size, times

STEPS, BATCH, RATE = 5, 10, 0.05
JOBS: dict[str, dict[str, Any]] = {
    "CNN, 20 clients": {"model": "small_cnn", "clients": 20, "rounds": 8},
    "CNN, 100 clients": {"model": "small_cnn", "clients": 100, "rounds": 4},
    "MLP, 100 clients": {"model": "mlp", "clients": 100, "rounds": 8},
}
QUICK: dict[str, dict[str, Any]] = {
    "CNN, 4 clients": {"model": "small_cnn", "clients": 4, "rounds": 3},
    "MLP, 20 clients": {"model": "mlp", "clients": 20, "rounds": 3},
}
SIMULATORS = {
    "Airsplit, 1 process": ("", "fedavg_airsplit", 1),
    "Airsplit, 2 processes": ("", "fedavg_airsplit", 2),
    "pfl, 1 process": ("pfl", "fedavg_pfl", 1),
    "pfl, 2 processes": ("pfl", "fedavg_pfl", 2),
    "Flower, Ray, 1 core a client": ("flower", "fedavg_flower", 1),
}
ALIKE = {
    name: f"Airsplit, {'1 process' if name.endswith('1 process') else '2 processes'}"
    for name in SIMULATORS
}
"""Which of ours a simulator is compared with: Ray's two actors with our two processes."""


def compared(quick: bool = False) -> Section:
    section = Section(
        "FedAvg, simulated",
        [
            f"All clients train in every round: {STEPS} steps of SGD at {RATE:g} on batches of {BATCH}, of {STEPS * BATCH} samples each; "
            "CNN and MLP of the paper that introduced FedAvg (1,663,370 and 199,210 parameters); no evaluation, nothing saved. All begin "
            "with the same weights and take the same batches in the same order. The last column checks that it is the same job: the "
            "largest difference of the weights after 2 rounds from the first row's, relative to the largest of their tensor. Over more "
            "rounds rounding grows, most in the CNN, so that losses at the end may differ.",
            "Two cores for each: one process with two threads, two processes by torchrun with one thread each, or Ray with two actors of "
            "one core. Times ours: against Airsplit in as many processes. Time: the median of a round "
            "without the first. Start-up: from the command to the end of the first round, less "
            "a round. Memory: of all processes together, shared pages counted once.",
        ],
        [
            "job, simulator",
            "a round",
            "times ours",
            "start-up",
            "peak memory",
            "loss at the end",
            "weights after 2",
        ],
        peers=[versions("pfl", "pfl", "torch"), versions("flower", "flwr", "ray", "torch")],
    )
    for job, asked in (QUICK if quick else JOBS).items():
        race(
            section,
            job,
            asked | {"steps": STEPS, "batch": BATCH, "samples": STEPS * BATCH, "rate": RATE},
        )
    return section


def race(section: Section, job: str, asked: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        files = {name: Path(folder) / f"{at}.npz" for at, name in enumerate(SIMULATORS)}
        done = {
            name: run(
                environment, workload, asked | {"weights": str(files[name])}, processes=processes
            )
            for name, (environment, workload, processes) in SIMULATORS.items()
        }
        off = {
            name: apart(next(iter(files.values())), file)
            for name, file in files.items()
            if file.exists()
        }
    for name, outcome in done.items():
        if outcome.failed:
            section.failed(f"{job}: {name}", outcome.failed)
            continue
        found, ours = outcome.found, done[ALIKE[name]]
        ratio = times(found["round_s"] / ours.found["round_s"]) if not ours.failed else "?"
        columns = [
            duration(found["round_s"]),
            ratio,
            duration(found["start_s"]),
            size(outcome.peak_bytes),
            f"{found['loss']:.4f}",
        ]
        section.rows.append([f"{job}: {name}", *columns, off.get(name, "?")])
        if name != ALIKE[name] and not ours.failed:
            section.races += races(job, name, outcome, ours)


def races(job: str, name: str, theirs: Outcome, ours: Outcome) -> list[Race]:
    """Against Airsplit in as many processes, whichever of ours is the faster or the leaner."""
    return [
        Race(f"a round, {job}", "time", ours.found["round_s"], name, theirs.found["round_s"]),
        Race(f"start-up, {job}", "time", ours.found["start_s"], name, theirs.found["start_s"]),
        Race(f"peak memory, {job}", "memory", ours.peak_bytes, name, theirs.peak_bytes),
    ]


def apart(first: Path, other: Path) -> str:
    """The largest difference between two files of weights, relative to the largest of each tensor."""
    if not first.exists():
        return "?"
    one, two = np.load(first), np.load(other)
    return f"{max(np.abs(one[name] - two[name]).max() / np.abs(one[name]).max() for name in one.files):.0e}"
