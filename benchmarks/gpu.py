"""GPU benchmarks: training many devices at once against one unsplit batch of the same size, and against one device after the other.

python benchmarks/gpu.py                                    print
python benchmarks/gpu.py --out benchmarks/results/gpu.md    also write

alexnet32 at width 1, 100 devices, batch 32.  Everything is measured in one run; rates are samples a second.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch.nn import functional

from airsplit.models.zoo.alexnet import alexnet32
from airsplit.scenario.scenario import Scenario
from airsplit.training.coordinator import Training
from machine import description

DEVICES, BATCH, LOCAL = 100, 32, 5
REPEATS = 5


def scenario(**changes: Any) -> Scenario:
    """SFL, all devices cut at one split, never evaluated until the end."""
    base = {
        "model.name": "alexnet32",
        "fleet.devices": DEVICES,
        "plan.method": "fixed",
        "training.dataset": "nets:colored",
        "training.batch_size": BATCH,
        "training.rounds": 10**6,
        "training.evaluate_every": 10**6,
        "training.learning_rate": 0.001,
        "training.device": "cuda",
    }
    return Scenario.from_toml('[model]\nname = "alexnet32"\n').replace(
        **base | {key.replace("__", "."): value for key, value in changes.items()}
    )


def rate(work: Callable[[], Any], samples: int) -> float:
    """Samples a second: the median of several, after two to warm up."""
    times = []
    for repeat in range(REPEATS + 2):
        torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        torch.cuda.synchronize()
        if repeat > 1:
            times.append(time.perf_counter() - start)
    return samples / statistics.median(times)


def of_rounds(split: int, iterations: int, **changes: Any) -> tuple[float, float]:
    """Whole rounds of a training, everything included, and the peak memory in GiB."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    given = scenario(plan__split=split, training__iterations_per_round=iterations, **changes)
    rounds = iter(Training(given).rounds())
    found = rate(lambda: next(rounds), DEVICES * BATCH * iterations)
    return found, torch.cuda.max_memory_allocated() / 2**30


def of_one_batch(*, bf16: bool = False, compiled: bool = False) -> float:
    """The ceiling: the unsplit model on one batch of all devices' samples, forward, backward and SGD."""
    torch.manual_seed(0)
    model = alexnet32().cuda()
    parameters = list(model.parameters())
    inputs = torch.randn(DEVICES * BATCH, 3, 32, 32, device="cuda")
    labels = torch.randint(10, (DEVICES * BATCH,), device="cuda")

    def loss() -> torch.Tensor:
        with torch.autocast("cuda", torch.bfloat16, enabled=bf16):
            return functional.cross_entropy(model(inputs), labels)

    lost = torch.compile(loss) if compiled else loss

    def work() -> None:
        gradients = torch.autograd.grad(lost(), parameters)
        with torch.no_grad():
            torch._foreach_add_(parameters, list(gradients), alpha=-0.001)

    return rate(work, DEVICES * BATCH)


def of_rounds_not_folded(split: int, **changes: Any) -> float:
    """Whole rounds with convolutions as vmap makes them."""
    with mock.patch("airsplit.training.common_batch.Folding", nullcontext):
        return of_rounds(split, 1, **changes)[0]


def apart(**changes: Any) -> float:
    """How far weights are from those of --plain after two rounds, of the largest weight; in double precision."""
    torch.set_default_dtype(torch.float64)
    try:
        small = {
            "fleet__devices": 6,
            "model__arguments": {"width": 0.25},
            "training__rounds": 2,
            "training__learning_rate": 0.01,
            **changes,
        }
        runs = [Training(scenario(**small, training__fast_paths=fast)) for fast in (True, False)]
        for run in runs:
            list(run.rounds())
        one, other = (list((run.state.common | run.state.personal).values()) for run in runs)
        return max(float((a - b).abs().max()) for a, b in zip(one, other, strict=True)) / max(
            float(b.abs().max()) for b in other
        )
    finally:
        torch.set_default_dtype(torch.float32)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path)
    parser.add_argument(
        "--without-compiling", action="store_true", help="leave out what takes minutes to compile"
    )
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    start = time.perf_counter()
    lines = [
        "# Training many devices on one GPU",
        "",
        f"`python benchmarks/gpu.py`; GPU: {torch.cuda.get_device_name()}, torch {torch.__version__}. {description()}.",
        "",
        f"alexnet32 at width 1, {DEVICES} devices, batch {BATCH}, SGD; E is the iterations a round. "
        "Rates are samples a second, of whole rounds.",
        "",
        "| | rate | of one batch, eager | of one after the other | peak memory |",
        "|---|---|---|---|---|",
    ]

    def say(line: str) -> None:
        lines.append(line)
        print(f"{time.perf_counter() - start:6.1f} s  {line}", flush=True)

    eager = of_one_batch()
    alone = {
        iterations: of_rounds(4, iterations, training__fast_paths=False)[0]
        for iterations in (1, LOCAL)
    }
    say(f"| one unsplit batch of {DEVICES * BATCH:,}, eager | {eager:,.0f} | 1 | | |")
    for iterations, found in alone.items():
        say(
            f"| E = {iterations}, split 4, one device after the other (`--plain`) | {found:,.0f} | {found / eager:.2f} | 1 | |"
        )
    ways = {
        "fp32": {},
        "bf16": {"training__precision": "bf16"},
        "bf16, compiled": {"training__precision": "bf16", "training__compile": True},
    }
    if given.without_compiling:
        del ways["bf16, compiled"]
    for name, changes in ways.items():
        for split, iterations in ((4, 1), (15, 1), (4, LOCAL)):
            found, memory = of_rounds(split, iterations, **changes)
            ratio = f"{found / alone[iterations]:.1f}"
            say(
                f"| E = {iterations}, split {split}, {name} | {found:,.0f} | {found / eager:.2f} | {ratio} | {memory:.1f} GiB |"
            )
    for name in list(ways)[1:]:
        found = of_one_batch(bf16=True, compiled="compiled" in name)
        say(f"| one unsplit batch, {name} | {found:,.0f} | {found / eager:.2f} | | |")
    for name in list(ways)[:2]:
        found = of_rounds_not_folded(15, **ways[name])
        ratio = f"{found / alone[1]:.1f}"
        say(
            f"| E = 1, split 15, {name}, convolutions not folded | {found:,.0f} | {found / eager:.2f} | {ratio} | |"
        )
    lines += [
        "",
        "Weights against `--plain` after two rounds of 6 devices in double precision, relative to the largest:",
        "",
    ]
    cases = {
        "split 4, E = 1": (4, 1, {}),
        "split 15, E = 1": (15, 1, {}),
        "split 4, E = 3, momentum": (4, 3, {"training__momentum": 0.9}),
    }
    cases |= {"FedAvg, E = 3": (4, 3, {"training__algorithm": "fedavg"})}
    cases |= {"Adam, E = 2": (8, 2, {"training__optimizer": "adam", "training__momentum": None})}
    for name, (split, iterations, changes) in cases.items():
        say(
            f"- {name}: {apart(plan__split=split, training__iterations_per_round=iterations, **changes):.1e}"
        )
    if given.out is not None:
        given.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
