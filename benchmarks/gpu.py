"""GPU benchmarks: training many devices at once on one GPU.

Compared with one unsplit batch of the same size, and with one device after the other.

python benchmarks/gpu.py                                    print
python benchmarks/gpu.py --out benchmarks/results/gpu.md    also write

alexnet32 at width 1, 100 devices, batch 32. Everything is measured in one run; rates are samples a
second.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch.nn import functional

from airsplit.models.zoo.alexnet import alexnet32
from airsplit.scenario.scenario import Scenario
from airsplit.training.coordinator import Training
from machine import describe_machine

DEVICES = 100
BATCH = 32
LOCAL_ITERATIONS = 5
REPEATS = 5

PRECISIONS: dict[str, dict[str, Any]] = {
    "fp32": {},
    "bf16": {"training__precision": "bf16"},
    "bf16, compiled": {"training__precision": "bf16", "training__compile": True},
}

# Split, iterations a round and other settings of the runs whose weights are compared.
WEIGHT_CASES: dict[str, tuple[int, int, dict[str, Any]]] = {
    "split 4, E = 1": (4, 1, {}),
    "split 15, E = 1": (15, 1, {}),
    "split 4, E = 3, momentum": (4, 3, {"training__momentum": 0.9}),
    "FedAvg, E = 3": (4, 3, {"training__algorithm": "fedavg"}),
    "Adam, E = 2": (8, 2, {"training__optimizer": "adam", "training__momentum": None}),
}


def make_scenario(**changes: Any) -> Scenario:
    """Return SFL with all devices cut at one split, not evaluated before the end.

    Args:
        changes: Settings, with two underscores in place of the dot.
    """
    base = {
        "model.name": "alexnet32",
        "fleet.devices": DEVICES,
        "plan.method": "fixed",
        "training.dataset": "nets:color_images",
        "training.batch_size": BATCH,
        "training.rounds": 10**6,
        "training.evaluate_every": 10**6,
        "training.learning_rate": 0.001,
        "training.device": "cuda",
    }
    return Scenario.from_toml('[model]\nname = "alexnet32"\n').replace(
        **base | {key.replace("__", "."): value for key, value in changes.items()}
    )


def measure_rate(work: Callable[[], Any], samples: int) -> float:
    """Return samples a second: the median of several repeats, after two to warm up."""
    times = []
    for repeat in range(REPEATS + 2):
        # CUDA runs in the background, so wait for it before looking at the clock.
        torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        torch.cuda.synchronize()
        if repeat > 1:
            times.append(time.perf_counter() - start)
    return samples / statistics.median(times)


def measure_rounds(split: int, iterations: int, **changes: Any) -> tuple[float, float]:
    """Return the rate of whole rounds, everything included, and the peak memory in GiB."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    scenario = make_scenario(
        plan__split=split, training__iterations_per_round=iterations, **changes
    )
    rounds = iter(Training(scenario).rounds())
    rate = measure_rate(lambda: next(rounds), DEVICES * BATCH * iterations)
    return rate, torch.cuda.max_memory_allocated() / 2**30


def measure_unfolded_rounds(split: int, **changes: Any) -> float:
    """Return the rate of whole rounds with convolutions as vmap makes them."""
    with mock.patch("airsplit.training.common_batch.Folding", nullcontext):
        return measure_rounds(split, 1, **changes)[0]


def measure_one_batch(*, bf16: bool = False, compiled: bool = False) -> float:
    """Return the ceiling: the rate of the unsplit model on one batch of all devices' samples.

    A step is a forward pass, a backward pass and SGD.
    """
    torch.manual_seed(0)
    model = alexnet32().cuda()
    parameters: list[torch.Tensor] = list(model.parameters())
    inputs = torch.randn(DEVICES * BATCH, 3, 32, 32, device="cuda")
    labels = torch.randint(10, (DEVICES * BATCH,), device="cuda")

    def loss() -> torch.Tensor:
        with torch.autocast("cuda", torch.bfloat16, enabled=bf16):
            return functional.cross_entropy(model(inputs), labels)

    compute_loss = torch.compile(loss) if compiled else loss

    def step() -> None:
        gradients = torch.autograd.grad(compute_loss(), parameters)
        with torch.no_grad():
            torch._foreach_add_(parameters, list(gradients), alpha=-0.001)

    return measure_rate(step, DEVICES * BATCH)


def compare_weights(**changes: Any) -> float:
    """Return the largest difference to the weights of --plain after two rounds.

    It is relative to the largest weight, and computed in double precision, so that rounding does
    not hide a mistake.
    """
    torch.set_default_dtype(torch.float64)
    try:
        small = {
            "fleet__devices": 6,
            "model__arguments": {"width": 0.25},
            "training__rounds": 2,
            "training__learning_rate": 0.01,
            **changes,
        }
        fast, plain = (
            _train(make_scenario(**small, training__fast_paths=fast_paths))
            for fast_paths in (True, False)
        )
    finally:
        torch.set_default_dtype(torch.float32)
    difference = max(float((a - b).abs().max()) for a, b in zip(fast, plain, strict=True))
    return difference / max(float(tensor.abs().max()) for tensor in plain)


def _train(scenario: Scenario) -> list[torch.Tensor]:
    training = Training(scenario)
    list(training.rounds())
    return list((training.state.common | training.state.personal).values())


def rate_rows(precisions: dict[str, dict[str, Any]]) -> Iterator[str]:
    """Measure all rates, and yield the rows of the table."""
    eager = measure_one_batch()
    yield f"| one unsplit batch of {DEVICES * BATCH:,}, eager | {eager:,.0f} | 1 | | |"

    serial = {}
    for iterations in (1, LOCAL_ITERATIONS):
        serial[iterations], _ = measure_rounds(4, iterations, training__fast_paths=False)
    for iterations, rate in serial.items():
        yield (
            f"| E = {iterations}, split 4, one device after the other (`--plain`) "
            f"| {rate:,.0f} | {rate / eager:.2f} | 1 | |"
        )

    for name, changes in precisions.items():
        for split, iterations in ((4, 1), (15, 1), (4, LOCAL_ITERATIONS)):
            rate, memory_gib = measure_rounds(split, iterations, **changes)
            yield (
                f"| E = {iterations}, split {split}, {name} | {rate:,.0f} | {rate / eager:.2f} "
                f"| {rate / serial[iterations]:.1f} | {memory_gib:.1f} GiB |"
            )

    for name in precisions:
        if name != "fp32":
            rate = measure_one_batch(bf16=True, compiled="compiled" in name)
            yield f"| one unsplit batch, {name} | {rate:,.0f} | {rate / eager:.2f} | | |"

    for name in ("fp32", "bf16"):
        rate = measure_unfolded_rounds(15, **precisions[name])
        yield (
            f"| E = 1, split 15, {name}, convolutions not folded | {rate:,.0f} "
            f"| {rate / eager:.2f} | {rate / serial[1]:.1f} | |"
        )


def main() -> None:
    """Print rates, then how far the weights are from those without fast paths."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="also write the page to this file")
    parser.add_argument(
        "--without-compiling", action="store_true", help="leave out what takes minutes to compile"
    )
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    start = time.perf_counter()
    lines = [
        "# Training many devices on one GPU",
        "",
        f"`python benchmarks/gpu.py`; GPU: {torch.cuda.get_device_name()}, "
        f"torch {torch.__version__}. {describe_machine()}.",
        "",
        f"alexnet32 at width 1, {DEVICES} devices, batch {BATCH}, SGD; E is the iterations a "
        "round. Rates are samples a second, of whole rounds.",
        "",
        "| | rate | of one batch, eager | of one after the other | peak memory |",
        "|---|---|---|---|---|",
    ]

    def add(line: str) -> None:
        lines.append(line)
        print(f"{time.perf_counter() - start:6.1f} s  {line}", flush=True)

    precisions = dict(PRECISIONS)
    if options.without_compiling:
        del precisions["bf16, compiled"]
    for row in rate_rows(precisions):
        add(row)
    lines += [
        "",
        "Weights against `--plain` after two rounds of 6 devices in double precision, relative to "
        "the largest:",
        "",
    ]
    for name, (split, iterations, changes) in WEIGHT_CASES.items():
        difference = compare_weights(
            plan__split=split, training__iterations_per_round=iterations, **changes
        )
        add(f"- {name}: {difference:.1e}")
    if options.out is not None:
        options.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
