"""Training benchmarks: a round against the same arithmetic in a bare torch loop, and the memory of many devices.

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
from machine import description

LIMIT_OF_MANY = 1.1
LEAST_OF_ONE = 1.5
MEMORY_GIB = 2.0
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
STANDARD = "FedAvg's CNN, batch 10"
"""Model and batch of the paper that introduced FedAvg."""
CASES: dict[str, dict[str, Any]] = {
    STANDARD: SMALL_CNN | {"training.batch_size": 10},
    "FedAvg's CNN, batch 32": SMALL_CNN,
    "alexnet32 at width 0.25, batch 16": ALEXNET | {"training.batch_size": 16},
}


def scenario(changes: dict[str, Any]) -> Scenario:
    """SFL with 20 devices, all cut at one split, never evaluated."""
    base = {
        "fleet.devices": 20,
        "plan.method": "fixed",
        "training.evaluate_every": 10**6,
        "training.rounds": 10**6,
    }
    base |= {"training.learning_rate": 0.001}  # small, so that rounding does not grow
    return Scenario.from_toml('[model]\nname = "alexnet"\n').replace(**base | changes)


class BareLoop:
    """The same arithmetic by hand: load a device's weights, E plain SGD steps of the unsplit model, add to the sum."""

    def __init__(self, training: Training) -> None:
        self.training, settings = training, training.settings
        self.model: nn.Module = copy.deepcopy(training.replica.model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=settings.learning_rate)
        self.parameters = dict(self.model.named_parameters())
        front = {
            name.partition(":")[2] for name in training.replica.front_keys(training.state.boundary)
        }
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
        self.round += 1
        task = self.training._task(self.round)
        sums = {name: torch.zeros_like(tensor) for name, tensor in self.common.items()}
        for k, own in enumerate(self.personal):
            self._load(self.common | own)
            for e in range(task.iterations_per_round):
                inputs, labels = self.training._crew.batch(k, task, e)
                self.optimizer.zero_grad()
                nn.functional.cross_entropy(self.model(*inputs), labels).backward()
                self.optimizer.step()
            with torch.no_grad():
                for name, tensor in own.items():
                    tensor.copy_(self.parameters[name])
                for name, total in sums.items():
                    total.add_(self.parameters[name], alpha=1 / len(self.personal))
        self.common = sums


def floor(training: Training) -> Callable[[], None]:
    """What is left of a round with E = 1 if all but the layers is taken away: each device's front, the back on batches of many."""
    front, back = training.replica.halves(training.state.boundary)
    task = training._task(1)
    many = SAMPLES_AT_ONCE // training.settings.batch_size
    groups = [task.finishing[at : at + many] for at in range(0, len(task.finishing), many)]
    data = [(training._crew.batches(group, task, 0), group) for group in groups]

    def work() -> None:
        for (inputs, labels), group in data:
            crossing = [
                front(*(tensor.tensor_split(len(group))[at] for tensor in inputs))
                for at in range(len(group))
            ]
            arrived = [
                torch.cat(column).detach().requires_grad_()
                for column in zip(*crossing, strict=True)
            ]
            nn.functional.cross_entropy(back(*arrived), labels).backward()
            for at, sent in enumerate(crossing):
                torch.autograd.backward(
                    sent, [tensor.grad.tensor_split(len(group))[at] for tensor in arrived]
                )

    return work


def race(changes: dict[str, Any], iterations: int) -> list[float]:
    """Seconds of a round: the bare loop, Airsplit, Airsplit with --plain, the floor; taken in turns, the median of each."""
    given = scenario(changes | {"training.iterations_per_round": iterations})
    runs = [Training(given), Training(given.replace(**{"training.fast_paths": False}))]
    bare, steps = BareLoop(runs[1]), [iter(run.rounds()) for run in runs]
    works = [bare.advance, *(lambda step=step: next(step) for step in steps)]
    if iterations == 1:
        works.append(floor(Training(given)))
    times: list[list[float]] = [[] for _ in works]
    for _ in range(ROUNDS + 1):
        for work, spent in zip(works, times, strict=True):
            start = time.perf_counter()
            work()
            spent.append(time.perf_counter() - start)
    for (
        name,
        tensor,
    ) in bare.common.items():  # the loop is the same arithmetic, or the race says nothing
        torch.testing.assert_close(
            runs[0].state.common[f"model:{name}"], tensor, rtol=1e-3, atol=1e-4
        )
    return [float(np.median(spent[1:])) for spent in times]


def speed() -> list[str]:
    heads = "| model, batch | E | bare loop ms | Airsplit ms | Airsplit --plain ms | floor ms | bare ÷ Airsplit | wanted |"
    lines = [heads, "|---|---:|---:|---:|---:|---:|---:|---|"]
    for name, changes in CASES.items():
        for iterations in (1, 5):
            times = race(changes, iterations)
            wanted = (
                f"≥ {1 / LIMIT_OF_MANY:.2f}"
                if iterations > 1
                else f"≥ {LEAST_OF_ONE}"
                if name == STANDARD
                else "> 1"
            )
            told = [f"{1e3 * each:.0f}" for each in times] + [""] * (4 - len(times))
            columns = [name, iterations, *told, f"{times[0] / times[1]:.2f}", wanted]
            lines.append("| " + " | ".join(map(str, columns)) + " |")
            print(lines[-1], file=sys.stderr, flush=True)
    return lines


def memory() -> str:
    run = subprocess.run(
        [sys.executable, __file__, "--memory"], capture_output=True, text=True, check=True
    )
    return run.stdout.strip()


def many_devices() -> str:
    """400 devices with a back end of 16.8 million parameters: one round, in a process of its own."""
    training = Training(
        scenario(
            WIDE_BACK
            | {"fleet.devices": 400, "training.batch_size": 2, "training.iterations_per_round": 2}
        )
    )
    start = time.perf_counter()
    next(iter(training.rounds()))
    took = time.perf_counter() - start
    common = sum(tensor.numel() for tensor in training.state.common.values())
    personal = sum(tensor.numel() for tensor in training.state.personal.values())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return (
        f"400 devices, back end of {common:,} parameters, {personal // 400:,} personal ones each, E = 2: peak memory {peak:.2f} GiB "
        f"(wanted: under {MEMORY_GIB:g}; 400 copies of the back end would take {400 * common * 4 / 2**30:.0f}), {took:.1f} s a round."
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path)
    parser.add_argument("--memory", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)
    if arguments.memory:
        print(many_devices())
        return
    text = "\n".join([
        "# Training", "",
        f"`python benchmarks/training.py --out benchmarks/results/training.md` wrote this.  {description()}, torch {torch.__version__}, "
        f"{torch.get_num_threads()} threads, seed 0.", "",
        "A round of SFL with 20 devices, plain SGD, all cut at one split; the bare loop trains the unsplit model with torch.optim.SGD. "
        f"Medians of {ROUNDS} rounds, taken in turns; the weights agree at the end. The floor is the layers alone: each device's front, "
        "the common layers on batches of many devices, forward and backward, and nothing else.", "",
        *speed(), "",
        "With E = 1 the common batch saves what a device's step costs besides its arithmetic: loading, updating and adding up 1.7 million "
        "weights for ten images. With 32 images the convolutions are the time, and on a CPU they take as long for one large batch "
        "as for many small ones; the floor is then not far below the bare loop.", "",
        memory(), "",
    ])  # fmt: skip
    print(text)
    if arguments.out:
        arguments.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
