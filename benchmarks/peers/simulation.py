"""FedAvg in one simulator and another."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from peers.environments import Outcome, list_versions, run_workload
from peers.table import Race, Section, format_duration, format_ratio, format_size

STEPS = 5
BATCH = 10
RATE = 0.05
JOBS: dict[str, dict[str, Any]] = {
    "CNN, 20 clients": {"model": "small_cnn", "clients": 20, "rounds": 8},
    "CNN, 100 clients": {"model": "small_cnn", "clients": 100, "rounds": 4},
    "MLP, 100 clients": {"model": "mlp", "clients": 100, "rounds": 8},
}
QUICK_JOBS: dict[str, dict[str, Any]] = {
    "CNN, 4 clients": {"model": "small_cnn", "clients": 4, "rounds": 3},
    "MLP, 20 clients": {"model": "mlp", "clients": 20, "rounds": 3},
}
# Environment, workload and number of processes.
SIMULATORS = {
    "Airsplit, 1 process": ("", "fedavg_airsplit", 1),
    "Airsplit, 2 processes": ("", "fedavg_airsplit", 2),
    "pfl, 1 process": ("pfl", "fedavg_pfl", 1),
    "pfl, 2 processes": ("pfl", "fedavg_pfl", 2),
    "Flower, Ray, 1 core a client": ("flower", "fedavg_flower", 1),
}
# Which of ours a simulator is compared with. Ray's two actors are two processes.
COMPARED_WITH = {
    name: "Airsplit, 1 process" if name.endswith("1 process") else "Airsplit, 2 processes"
    for name in SIMULATORS
}


def compare(quick: bool = False) -> Section:
    """Compare all simulators on all jobs."""
    section = Section(
        "FedAvg, simulated",
        [
            f"All clients train in every round: {STEPS} steps of SGD at {RATE:g} on batches of "
            f"{BATCH}, of {STEPS * BATCH} samples each; CNN and MLP of the paper that introduced "
            "FedAvg (1,663,370 and 199,210 parameters); no evaluation, nothing saved. All begin "
            "with the same weights and take the same batches in the same order. The last column "
            "checks that it is the same job: the largest difference of the weights after 2 rounds "
            "from the first row's, relative to the largest of their tensor. Over more rounds "
            "rounding grows, most in the CNN, so that losses at the end may differ.",
            "Two cores for each: one process with two threads, two processes by torchrun with one "
            "thread each, or Ray with two actors of one core. Times ours: against Airsplit in as "
            "many processes. Time: the median of a round without the first. Start-up: from the "
            "command to the end of the first round, less a round. Memory: of all processes "
            "together, shared pages counted once.",
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
        peers=[
            list_versions("pfl", "pfl", "torch"),
            list_versions("flower", "flwr", "ray", "torch"),
        ],
    )
    for job, arguments in (QUICK_JOBS if quick else JOBS).items():
        settings = {"steps": STEPS, "batch": BATCH, "samples": STEPS * BATCH, "rate": RATE}
        add_job(section, job, arguments | settings)
    return section


def add_job(section: Section, job: str, arguments: dict[str, Any]) -> None:
    """Run a job in all simulators, and add their rows and races."""
    outcomes: dict[str, Outcome] = {}
    differences: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as temporary:
        first = Path(temporary) / "0.npz"
        for number, (name, (environment, workload, processes)) in enumerate(SIMULATORS.items()):
            weights = Path(temporary) / f"{number}.npz"
            outcomes[name] = run_workload(
                environment,
                workload,
                arguments | {"weights": str(weights)},
                processes=processes,
            )
            if first.exists() and weights.exists():
                differences[name] = f"{compare_weights(first, weights):.0e}"

    for name, outcome in outcomes.items():
        if outcome.failure:
            section.add_failure(f"{job}: {name}", outcome.failure)
            continue
        ours = outcomes[COMPARED_WITH[name]]
        values = outcome.values
        ratio = "?"
        if not ours.failure:
            ratio = format_ratio(values["round_s"] / ours.values["round_s"])
        section.rows.append(
            [
                f"{job}: {name}",
                format_duration(values["round_s"]),
                ratio,
                format_duration(values["start_s"]),
                format_size(outcome.peak_bytes),
                f"{values['loss']:.4f}",
                differences.get(name, "?"),
            ]
        )
        if name != COMPARED_WITH[name] and not ours.failure:
            section.races += make_races(job, name, outcome, ours)


def make_races(job: str, peer: str, theirs: Outcome, ours: Outcome) -> list[Race]:
    """Return the races against Airsplit in as many processes."""
    round_s, start_s = theirs.values["round_s"], theirs.values["start_s"]
    return [
        Race(f"a round, {job}", "time", ours.values["round_s"], peer, round_s),
        Race(f"start-up, {job}", "time", ours.values["start_s"], peer, start_s),
        Race(f"peak memory, {job}", "memory", ours.peak_bytes, peer, theirs.peak_bytes),
    ]


def compare_weights(first: Path, second: Path) -> float:
    """Return the largest difference of weights, relative to the largest of each tensor."""
    a, b = np.load(first), np.load(second)
    return max(float(np.abs(a[name] - b[name]).max() / np.abs(a[name]).max()) for name in a.files)
