"""Model benchmarks: the time to profile a model, and what a cut costs when it runs.

python benchmarks/models.py                                    print
python benchmarks/models.py --out benchmarks/results/models.md also write
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

import airsplit as air
from airsplit.models.example_inputs import make_example_inputs
from airsplit.models.splits import find_splits
from airsplit.models.zoo.registry import build_registered_model
from machine import describe_machine
from timing import measure_s

# The goal for the time to profile.
LIMITS_S = {"gpt, 96 layers": 5.0, "gpt, 70 billion parameters": 60.0, "resnet, 152 layers": 2.0}

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "alexnet": ("alexnet", {}),
    "resnet, 152 layers": ("resnet20", {"layers": 152}),
    "gpt, 96 layers": (
        "gpt",
        {"input_shape": (1024,), "width": 1600, "layers": 96, "heads": 25, "vocabulary": 50257},
    ),
    "gpt, 70 billion parameters": (
        "gpt",
        {"input_shape": (4096,), "width": 8192, "layers": 86, "heads": 64, "vocabulary": 32000},
    ),
}


def tabulate_profiling() -> list[str]:
    """Return the time and the memory to profile each model, each in a process of its own."""
    lines = [
        "| model | parameters | splits | calls | profile s | at most s | peak memory |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name in MODELS:
        process = subprocess.run(
            [sys.executable, __file__, "--one", name], capture_output=True, text=True, check=True
        )
        lines.append(process.stdout.strip())
    return lines


def measure_profiling(name: str) -> str:
    """Profile one model on the meta device, and return its row."""
    built_in, arguments = MODELS[name]
    with torch.device("meta"):
        model = build_registered_model(built_in, **arguments)

    # Profile a small model first: torch imports some modules on first use.
    air.profile(build_registered_model("alexnet32", width=0.05))
    time_s = measure_s(lambda: air.profile(model))

    splits = find_splits(model, make_example_inputs(model, None, None))
    parameters = sum(p.numel() for p in model.parameters())
    memory_gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    cells = [
        name,
        f"{parameters:,}",
        str(len(splits.splits)),
        str(len(splits.evaluation.graph.calls)),
        f"{time_s:.2f}",
        str(LIMITS_S.get(name, "")),
        f"{memory_gib:.2f} GiB",
    ]
    return f"| {' | '.join(cells)} |"


def tabulate_running() -> list[str]:
    """Return the times of forward and backward passes of both halves and of the unsplit model."""
    torch.set_num_threads(1)
    lines = ["| model, batch | unsplit ms | cut in the middle ms | ratio |", "|---|---:|---:|---:|"]
    for name, arguments, batch in (
        ("alexnet32", {"width": 0.25}, 32),
        ("resnet20", {}, 32),
        ("gpt", {}, 16),
        ("gpt", {"width": 16, "heads": 2}, 1),
    ):
        unsplit_ms, cut_ms = measure_passes(name, arguments, batch)
        lines.append(
            f"| {name} {arguments or ''}, {batch} | {unsplit_ms:.2f} | {cut_ms:.2f} "
            f"| {cut_ms / unsplit_ms:.2f} |"
        )
    return lines


def measure_passes(name: str, arguments: dict[str, Any], batch: int) -> tuple[float, float]:
    """Return the milliseconds of one pass of the unsplit model, and of the halves."""
    model = build_registered_model(name, **arguments)
    x = torch.randint(0, 256, (batch, 64)) if name == "gpt" else torch.randn(batch, 3, 32, 32)
    splits = find_splits(model, make_example_inputs(model, None, None))
    front, back = air.cut(model, len(splits.splits) // 2)

    def run_unsplit() -> None:
        model(x).sum().backward()

    def run_halves() -> None:
        sent = front(x)
        received = [tensor.detach().requires_grad_(tensor.requires_grad) for tensor in sent]
        back(*received).sum().backward()
        torch.autograd.backward(sent, [tensor.grad for tensor in received])

    # Measured in turns, so that both see the same machine.
    pairs = [(measure_s(run_unsplit), measure_s(run_halves)) for _ in range(5)]
    unsplit, halves = zip(*pairs, strict=True)
    return 1e3 * min(unsplit), 1e3 * min(halves)


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="also write the page to this file")
    parser.add_argument("--one", choices=MODELS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(measure_profiling(options.one))
        return

    lines = [
        "# Looking at models, and running them in halves",
        "",
        "`python benchmarks/models.py --out benchmarks/results/models.md` wrote this. "
        f"{describe_machine()}.",
        "",
        *tabulate_profiling(),
        "",
        "A training step without the update; the halves in one process, nothing on the air:",
        "",
        *tabulate_running(),
        "",
    ]
    text = "\n".join(lines)
    print(text)
    if options.out:
        options.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
