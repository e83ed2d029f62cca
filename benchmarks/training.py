"""Training benchmarks: a round against the same arithmetic in a bare torch loop.

Besides, the memory of a training with many devices.

python benchmarks/training.py                                      print
python benchmarks/training.py --out benchmarks/results/training.md also write
"""

from __future__ import annotations

import argparse
import copy
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from airsplit.scenario.scenario import Scenario
from airsplit.training.common_batch import SAMPLES_AT_ONCE
from airsplit.training.coordinator import Training
from machine import describe_machine

# Goal with E > 1: time of a round, as a multiple of the bare loop's.
LARGEST_RATIO = 1.1
# Goal with E = 1 in the standard case: time of the bare loop, as a multiple of a round's.
LEAST_GAIN = 1.5
# Goal for the training of many devices.
LARGEST_MEMORY_GIB = 2.0
ROUNDS = 8

SMALL_CNN = {
    "model.name": "nets:small_cnn",
    "model.input_shape": [1, 28, 28],
    "training.dataset": "nets:images",
    "plan.split": 3,
}
ALEXNET = {
    "model.name": "alexnet32",
    "model.arguments.width": 0.25,
    "model.arguments.channels": 1,
    "plan.split": 4,
}
WIDE_BACK = {
    "model.name": "nets:wide_back",
    "model.input_shape": [64],
    "training.dataset": "nets:vectors",
    "plan.split": 2,
}
# Model and batch size of the FedAvg paper.
STANDARD = "FedAvg's CNN, batch 10"
CASES: dict[str, dict[str, Any]] = {
    STANDARD: SMALL_CNN | {"training.batch_size": 10},
    "FedAvg's CNN, batch 32": SMALL_CNN,
    "alexnet32 at width 0.25, batch 16": ALEXNET | {"training.batch_size": 16},
}


def make_scenario(changes: dict[str, Any]) -> Scenario:
    """Return SFL with 20 devices, all cut at one split, never evaluated."""
    base = {
        "fleet.devices": 20,
        "plan.method": "fixed",
        "training.evaluate_every": 10**6,
        "training.rounds": 10**6,
        # Small, so that differences by rounding do not grow.
        "training.learning_rate": 0.001,
    }
    return Scenario.from_toml('[model]\nname = "alexnet"\n').replace(**base | changes)


class BareLoop:
    """A round of Airsplit with --plain, written by hand.

    For each device: load its weights, do E plain SGD steps of the unsplit model, add to the sum.
    """

    def __init__(self, training: Training) -> None:
        self.training = training
        self.model: nn.Module = copy.deepcopy(training.replica.model)
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), lr=training.settings.learning_rate
        )
        self.parameters = dict(self.model.named_parameters())
        keys = training.replica.front_keys(training.state.boundary)
        front = {key.partition(":")[2] for key in keys}
        self.common = {
            name: p.detach().clone() for name, p in self.parameters.items() if name not in front
        }
        self.personal = [
            {name: p.detach().clone() for name, p in self.parameters.items() if name in front}
            for _ in training.splits
        ]
        self.round = 0

    @torch.no_grad()
    def _load(self, tensors: dict[str, torch.Tensor]) -> None:
        for name, tensor in tensors.items():
            self.parameters[name].copy_(tensor)

    def advance(self) -> None:
        """Train for one round."""
        self.round += 1
        task = self.training._task(self.round)
        sums = {name: torch.zeros_like(tensor) for name, tensor in self.common.items()}
        for k, personal in enumerate(self.personal):
            self._load(self.common | personal)
            for e in range(task.iterations_per_round):
                inputs, labels = self.training._crew.batch(k, task, e)
                self.optimizer.zero_grad()
                nn.functional.cross_entropy(self.model(*inputs), labels).backward()
                self.optimizer.step()
            with torch.no_grad():
                for name, tensor in personal.items():
                    tensor.copy_(self.parameters[name])
                for name, total in sums.items():
                    total.add_(self.parameters[name], alpha=1 / len(self.personal))
        self.common = sums


def make_floor(training: Training) -> Callable[[], None]:
    """Return what is left of a round with E = 1 if all but the layers is taken away.

    That is each device's front, and the back on batches of many devices, forward and backward.
    """
    front, back = training.replica.halves(training.state.boundary)
    task = training._task(1)
    group_size = SAMPLES_AT_ONCE // training.settings.batch_size
    groups = [
        task.finishing[at : at + group_size] for at in range(0, len(task.finishing), group_size)
    ]
    batches = [(training._crew.batches(group, task, 0), len(group)) for group in groups]

    def run() -> None:
        for (inputs, labels), devices in batches:
            sent = [
                front(*(tensor.tensor_split(devices)[at] for tensor in inputs))
                for at in range(devices)
            ]
            received = [
                torch.cat(tensors).detach().requires_grad_() for tensors in zip(*sent, strict=True)
            ]
            nn.functional.cross_entropy(back(*received), labels).backward()
            for at, tensors in enumerate(sent):
                gradients = [tensor.grad.tensor_split(devices)[at] for tensor in received]
                torch.autograd.backward(tensors, gradients)

    return run


def race(changes: dict[str, Any], iterations: int) -> list[float]:
    """Return the median seconds of a round, taken in turns.

    Returns:
        Those of the bare loop, of Airsplit, of Airsplit with --plain, and of the floor if E = 1.
    """
    scenario = make_scenario(changes | {"training.iterations_per_round": iterations})
    fast = Training(scenario)
    plain = Training(scenario.replace(**{"training.fast_paths": False}))
    bare = BareLoop(plain)
    fast_rounds = iter(fast.rounds())
    plain_rounds = iter(plain.rounds())
    runs = [bare.advance, lambda: next(fast_rounds), lambda: next(plain_rounds)]
    if iterations == 1:
        runs.append(make_floor(Training(scenario)))

    times: list[list[float]] = [[] for _ in runs]
    for _ in range(ROUNDS + 1):
        for run, seconds in zip(runs, times, strict=True):
            start = time.perf_counter()
            run()
            seconds.append(time.perf_counter() - start)

    # The race says something only if the loop is the same arithmetic.
    for name, tensor in bare.common.items():
        torch.testing.assert_close(fast.state.common[f"model:{name}"], tensor, rtol=1e-3, atol=1e-4)
    # The first round is warm-up.
    return [float(np.median(seconds[1:])) for seconds in times]


def tabulate_speed() -> list[str]:
    """Return the table of all cases, and print each row as it is done."""
    lines = [
        "| model, batch | E | bare loop ms | Airsplit ms | Airsplit --plain ms | floor ms "
        "| bare ÷ Airsplit | wanted |",
        "|---|---:|---:|---:|---:|---:|---:|---|",
    ]
    for name, changes in CASES.items():
        for iterations in (1, 5):
            times = race(changes, iterations)
            cells = [name, str(iterations), *(f"{1e3 * time_s:.0f}" for time_s in times)]
            if iterations > 1:
                cells.append("")  # no floor
                goal = f"≥ {1 / LARGEST_RATIO:.2f}"
            elif name == STANDARD:
                goal = f"≥ {LEAST_GAIN}"
            else:
                goal = "> 1"
            cells += [f"{times[0] / times[1]:.2f}", goal]
            lines.append(f"| {' | '.join(cells)} |")
            print(lines[-1], file=sys.stderr, flush=True)
    return lines


def measure_memory() -> str:
    """Return the sentence about memory, from a process of its own."""
    process = subprocess.run(
        [sys.executable, __file__, "--memory"], capture_output=True, text=True, check=True
    )
    return process.stdout.strip()


def train_many_devices() -> str:
    """Train 400 devices with a back end of 16.8 million parameters for one round."""
    changes = {
        "fleet.devices": 400,
        "training.batch_size": 2,
        "training.iterations_per_round": 2,
    }
    training = Training(make_scenario(WIDE_BACK | changes))
    start = time.perf_counter()
    next(iter(training.rounds()))
    round_s = time.perf_counter() - start

    common = sum(tensor.numel() for tensor in training.state.common.values())
    personal = sum(tensor.numel() for tensor in training.state.personal.values())
    peak_gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    copies_gib = 400 * common * 4 / 2**30
    return (
        f"400 devices, back end of {common:,} parameters, {personal // 400:,} personal ones each, "
        f"E = 2: peak memory {peak_gib:.2f} GiB (wanted: under {LARGEST_MEMORY_GIB:g}; 400 copies "
        f"of the back end would take {copies_gib:.0f}), {round_s:.1f} s a round."
    )


def main() -> None:
    """Print the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="also write the page to this file")
    parser.add_argument("--memory", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)
    if options.memory:
        print(train_many_devices())
        return

    lines = [
        "# Training",
        "",
        "`python benchmarks/training.py --out benchmarks/results/training.md` wrote this. "
        f"{describe_machine()}, torch {torch.__version__}, {torch.get_num_threads()} threads, "
        "seed 0.",
        "",
        "A round of SFL with 20 devices, plain SGD, all cut at one split; the bare loop trains the "
        f"unsplit model with torch.optim.SGD. Medians of {ROUNDS} rounds, taken in turns; the "
        "weights agree at the end. The floor is the layers alone: each device's front, the common "
        "layers on batches of many devices, forward and backward, and nothing else.",
        "",
        *tabulate_speed(),
        "",
        "With E = 1 the common batch saves what a device's step costs besides its arithmetic: "
        "loading, updating and adding up 1.7 million weights for ten images. With 32 images the "
        "convolutions are the time, and on a CPU they take as long for one large batch as for many "
        "small ones; the floor is then not far below the bare loop.",
        "",
        measure_memory(),
        "",
    ]
    text = "\n".join(lines)
    print(text)
    if options.out:
        options.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
