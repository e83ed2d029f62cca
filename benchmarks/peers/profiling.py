"""Counting a model's multiply-adds beside other profilers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from peers.environments import list_versions, run_workload
from peers.table import Race, Section, format_duration, format_percent

MODELS = ("alexnet", "vgg16", "resnet20", "vit", "gpt")
TOOLS = {
    "fvcore": "fvcore",
    "ptflops": "ptflops, modules",
    "ptflops-aten": "ptflops, operators",
    "torchinfo": "torchinfo",
    "thop": "thop",
}

# What the workload reports of one model on one device: macs, seconds and device, or reason.
Count = dict[str, Any]


def compare(quick: bool = False) -> Section:
    """Compare all tools on all models."""
    section = Section(
        "Profiling",
        [
            "Multiply-adds of one sample in our built-in models, in evaluation mode, with torch's "
            "own layers where ours are subclasses, which some tools overlook. Reference: "
            "torch.utils.flop_counter, halved, on the meta device; it counts matrix products and "
            "convolutions and nothing else. A tool that counts other work, too (normalization, "
            "activations, pooling), is above it by its own definition, which is no mistake; a tool "
            "below it has missed products. Of Airsplit the count of matrix products is shown.",
            "Seconds: best of up to 3, everything imported. Each tool on the CPU and on the meta "
            "device: what is nearer to the reference is shown, and where it is the same, the "
            "faster. Attention is taken apart for all. In this time Airsplit also finds every "
            "legal split with what it sends and keeps; the others count only.",
        ],
        ["model, tool", "MACs", "against the reference", "seconds", "on"],
        peers=[list_versions("profilers", "fvcore", "ptflops", "torchinfo", "thop", "torch")],
    )
    models = MODELS[2:] if quick else MODELS
    ours = count_macs("", "airsplit", models)
    reference = count_macs("profilers", "reference", models)
    theirs = {tool: count_macs("profilers", tool, models) for tool in TOOLS}
    for model in models:
        expected = reference[model]["meta"].get("macs")
        our_count = select_count(ours[model], expected)
        add_row(section, f"{model}: Airsplit", our_count, expected)
        for tool, name in TOOLS.items():
            count = select_count(theirs[tool][model], expected)
            add_row(section, f"{model}: {name}", count, expected)
            if "macs" in count and "macs" in our_count:
                section.races += make_races(model, name, our_count, count, expected)
    return section


def count_macs(environment: str, tool: str, models: Sequence[str]) -> dict[str, dict[str, Count]]:
    """Return the counts of a tool, by model and by device."""
    outcome = run_workload(environment, "profile", {"tool": tool, "models": models})
    missing = {name: {"reason": outcome.reason} for name in models}
    return {
        name: {device: outcome.values.get(device, missing)[name] for device in ("cpu", "meta")}
        for name in models
    }


def select_count(by_device: dict[str, Count], expected: int | None) -> Count:
    """Return the count that is nearer to the reference; of equal ones, the faster."""
    counts = [count for count in by_device.values() if "macs" in count]
    if not counts:
        return by_device["cpu"]
    return min(
        counts,
        key=lambda count: (abs(count["macs"] - (expected or count["macs"])), count["seconds"]),
    )


def add_row(section: Section, name: str, count: Count, expected: int | None) -> None:
    """Add the row of a tool."""
    if "macs" not in count:
        section.add_failure(name, f"could not be run: {count['reason']}")
        return
    macs = count["macs"]
    section.rows.append(
        [
            name,
            f"{macs:,}",
            format_percent(macs / expected - 1) if expected else "?",
            format_duration(count["seconds"]),
            count["device"],
        ]
    )


def make_races(
    model: str, peer: str, ours: Count, theirs: Count, expected: int | None
) -> list[Race]:
    """Return the race for time and, with a reference, the one for products that are not missed."""
    races = [Race(f"profiling {model}", "time", ours["seconds"], peer, theirs["seconds"])]
    if expected:
        our_error, their_error = (
            max(0.0, 1 - count["macs"] / expected) for count in (ours, theirs)
        )
        races.append(Race(f"products missed in {model}", "error", our_error, peer, their_error))
    return races
