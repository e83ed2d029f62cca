"""Counting a model's multiply-adds beside other profilers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from peers.environments import run, versions
from peers.table import Race, Section, duration, percent

MODELS = ("alexnet", "vgg16", "resnet20", "vit", "gpt")
TOOLS = {
    "fvcore": "fvcore",
    "ptflops": "ptflops, modules",
    "ptflops-aten": "ptflops, operators",
    "torchinfo": "torchinfo",
    "thop": "thop",
}


def compared(quick: bool = False) -> Section:
    section = Section(
        "Profiling",
        [
            "Multiply-adds of one sample in our built-in models, in evaluation mode, with torch's own layers where ours "
            "are subclasses, which some tools overlook. Reference: torch.utils.flop_counter, halved, on "
            "the meta device; it counts matrix products and convolutions and nothing else. "
            "A tool that counts other work, too (normalization, activations, pooling), is above it by its own definition, which is no "
            "mistake; a tool below it has missed products. Of Airsplit the count of matrix products is shown.",
            "Seconds: best of up to 3, everything imported. Each tool on the CPU and on the meta device: what is nearer to the "
            "reference is shown, and where it is the same, the faster. Attention is taken apart for all. "
            "In this time Airsplit also finds every legal split with what it sends and keeps; the others count only.",
        ],
        ["model, tool", "MACs", "against the reference", "seconds", "on"],
        peers=[versions("profilers", "fvcore", "ptflops", "torchinfo", "thop", "torch")],
    )
    models = MODELS[2:] if quick else MODELS
    ours, reference = _counted("", "airsplit", models), _counted("profilers", "reference", models)
    others = {tool: _counted("profilers", tool, models) for tool in TOOLS}
    for model in models:
        known = reference[model]["meta"].get("macs")
        mine = _best(ours[model], known)
        _row(section, f"{model}: Airsplit", mine, known)
        for tool, counts in others.items():
            found = _best(counts[model], known)
            _row(section, f"{model}: {TOOLS[tool]}", found, known)
            if "macs" in found and "macs" in mine:
                section.races.append(
                    Race(
                        f"profiling {model}", "time", mine["seconds"], TOOLS[tool], found["seconds"]
                    )
                )
                if known:
                    off, ours_off = (max(0.0, 1 - each["macs"] / known) for each in (found, mine))
                    section.races.append(
                        Race(f"products missed in {model}", "error", ours_off, TOOLS[tool], off)
                    )
    return section


Found = dict[str, Any]


def _counted(environment: str, tool: str, models: Sequence[str]) -> dict[str, dict[str, Found]]:
    """Of each model and on each device: the count and its time, or why there is none."""
    outcome = run(environment, "profile", {"tool": tool, "models": models})
    missing = {name: {"reason": outcome.reason} for name in models}
    return {
        name: {device: outcome.found.get(device, missing)[name] for device in ("cpu", "meta")}
        for name in models
    }


def _best(found: dict[str, Found], known: int | None) -> Found:
    """The count that is nearer to the reference; where they are the same, the faster."""
    counted = [each for each in found.values() if "macs" in each]
    if not counted:
        return found["cpu"]
    return min(
        counted, key=lambda each: (abs(each["macs"] - (known or each["macs"])), each["seconds"])
    )


def _row(section: Section, name: str, found: Found, known: int | None) -> None:
    if "macs" not in found:
        section.failed(name, f"could not be run: {found['reason']}")
        return
    macs = found["macs"]
    section.rows.append(
        [
            name,
            f"{macs:,}",
            percent(macs / known - 1) if known else "?",
            duration(found["seconds"]),
            found["device"],
        ]
    )
