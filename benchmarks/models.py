"""Model benchmarks: how long it takes to look at a model, and what a cut costs when it runs.

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
from machine import description
from timing import seconds

SECONDS = {"gpt, 96 layers": 5.0, "gpt, 70 billion parameters": 60.0, "resnet, 152 layers": 2.0}
"""How long it may take."""

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


def looking() -> list[str]:
    """Seconds to profile each model, on the meta device, and the memory that it took, each in a process of its own."""
    lines = [
        "| model | parameters | splits | calls | profile s | at most s | peak memory |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name in MODELS:
        run = subprocess.run(
            [sys.executable, __file__, "--one", name], capture_output=True, text=True, check=True
        )
        lines.append(run.stdout.strip())
    return lines


def one(name: str) -> str:
    built_in, arguments = MODELS[name]
    with torch.device("meta"):
        model = build_registered_model(built_in, **arguments)
    air.profile(build_registered_model("alexnet32", width=0.05))  # what torch imports on first use
    took = seconds(lambda: air.profile(model))
    found = find_splits(model, make_example_inputs(model, None, None))
    parameters = sum(p.numel() for p in model.parameters())
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    columns = [
        name,
        f"{parameters:,}",
        len(found.splits),
        len(found.evaluation.graph.calls),
        f"{took:.2f}",
    ]
    return (
        "| "
        + " | ".join(map(str, [*columns, f"{SECONDS.get(name, '')}", f"{memory:.2f} GiB"]))
        + " |"
    )


def running() -> list[str]:
    """Forward and backward pass of both halves against the unsplit model, on one thread."""
    torch.set_num_threads(1)
    lines = ["| model, batch | unsplit ms | cut in the middle ms | ratio |", "|---|---:|---:|---:|"]
    for name, arguments, batch in (
        ("alexnet32", {"width": 0.25}, 32),
        ("resnet20", {}, 32),
        ("gpt", {}, 16),
        ("gpt", {"width": 16, "heads": 2}, 1),
    ):
        model = build_registered_model(name, **arguments)
        x = torch.randint(0, 256, (batch, 64)) if name == "gpt" else torch.randn(batch, 3, 32, 32)
        found = find_splits(model, make_example_inputs(model, None, None))
        front, back = air.cut(model, len(found.splits) // 2)

        def whole(model: Any = model, x: Any = x) -> None:
            model(x).sum().backward()

        def halves(front: Any = front, back: Any = back, x: Any = x) -> None:
            sent = front(x)
            received = [tensor.detach().requires_grad_(tensor.requires_grad) for tensor in sent]
            back(*received).sum().backward()
            torch.autograd.backward(sent, [tensor.grad for tensor in received])

        both = [(seconds(whole), seconds(halves)) for _ in range(5)]
        unsplit, cut = (min(times) * 1e3 for times in zip(*both, strict=True))
        lines.append(
            f"| {name} {arguments or ''}, {batch} | {unsplit:.2f} | {cut:.2f} | {cut / unsplit:.2f} |"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path)
    parser.add_argument("--one", choices=MODELS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(one(options.one))
        return
    text = "\n".join(
        [
            "# Looking at models, and running them in halves",
            "",
            f"`python benchmarks/models.py --out benchmarks/results/models.md` wrote this.  {description()}.",
            "",
            *looking(),
            "",
            "A training step without the update; the halves in one process, nothing on the air:",
            "",
            *running(),
            "",
        ]
    )
    print(text)
    if options.out:
        options.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
