"""The paper's figures, written to benchmarks/results with the machine and the commit.

python benchmarks/figures.py latency     at full scale, to results/figures
python benchmarks/figures.py smoke       those of accuracy, with small trainings, to results/figures-smoke
python benchmarks/figures.py accuracy    those of accuracy, from the trainings of benchmarks/accuracy.py, to results/accuracy
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from airsplit.paper.fig14 import WAYS
from airsplit.paper.figures import FIGURES, draw
from airsplit.plots.style import DATASET_NAMES, PARTITION_NAMES
from machine import description

RESULTS = Path(__file__).parent / "results"
FOLDERS = {
    "latency": RESULTS / "figures",
    "smoke": RESULTS / "figures-smoke",
    "accuracy": RESULTS / "accuracy",
}
NOTES = {
    "latency": "seeds 0-199",
    "smoke": "seeds 0-2",
    "accuracy": "the trainings were made on a GPU, each line of `runs.jsonl` says which, by\n"
    "`python benchmarks/accuracy.py search --data DIR --device cuda --jobs 8` and then\n"
    "`python benchmarks/accuracy.py runs --data DIR --device cuda --jobs 8`, where `DIR` holds MNIST and CIFAR-10;\n"
    "seeds 0-2 with 20 devices in figures 9 and 10, else 0; of the search 100",
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("which", choices=tuple(FOLDERS), nargs="?", default="latency")
    which = parser.parse_args().which
    start, out, scale = (
        time.perf_counter(),
        FOLDERS[which],
        "smoke" if which == "smoke" else "paper",
    )
    chosen = {
        number: figure
        for number, figure in FIGURES.items()
        if figure.trains == (which != "latency")
    }
    claims = draw(
        list(chosen),
        out,
        scale,
        lambda line: print(f"{time.perf_counter() - start:7.1f} s  {line}", flush=True),
    )
    for svg in out.glob("*.svg"):
        svg.unlink()  # the pictures are kept once, as PNG
    pictures = [
        f"![Figure {number}: {figure.title}](fig{number:02d}.png)"
        for number, figure in chosen.items()
    ]
    rows = [
        f"| {c.id} | {c.claim} | {'yes' if c.holds else '**no**'} | {c.measured} |" for c in claims
    ]
    kept = (
        " --out benchmarks/results/accuracy" if which == "accuracy" else ""
    )  # where the trainings are
    same = f"airsplit figures {' '.join(map(str, chosen))} --scale {scale}{kept}"
    text = [
        f"# Figures of {'latency' if which == 'latency' else 'accuracy'} at `--scale {scale}`",
        "",
        f"`python benchmarks/figures.py {which}` wrote this in {time.perf_counter() - start:.0f} s, `{same}` the same.",
        f"{description()}; {NOTES[which]}.",
        "",
        "| claim | the paper says | holds | measured |",
        "|---|---|---|---|",
        *rows,
        "",
        *(
            times_to_targets(json.loads((out / "fig14.json").read_text(encoding="utf-8")))
            if 14 in chosen
            else ()
        ),
        "\n\n".join(pictures),
        "",
    ]
    (out / "README.md").write_text("\n".join(text), encoding="utf-8")


def times_to_targets(data: dict[str, Any]) -> list[str]:
    """Figure 14 as a table: how long each way to train takes to each accuracy."""
    lines = []
    for dataset, targets in data["settings"]["targets"].items():
        asked = " | ".join(f"to {100 * target:g} %" for target in targets)
        lines += [f"{DATASET_NAMES[dataset]}: virtual time, and the accuracy at the end.", ""]
        lines += [
            f"| data | distance | L̂ | way to train | {asked} | at the end |",
            "|" + "---|" * (5 + len(targets)),
        ]
        for point in data["points"]:
            if point["dataset"] == dataset:
                reached = " | ".join(
                    "–" if each is None else f"{each:,.0f} s" for each in point["time_to_s"]
                )
                end = 100 * sum(point["test_accuracy"]) / len(point["test_accuracy"])
                where = f"{PARTITION_NAMES[point['partition']]} | {point['mean_distance_m']:g} m | {point['max_split']}"
                lines.append(f"| {where} | {WAYS[point['way']][0]} | {reached} | {end:.1f} % |")
        lines.append("")
    return lines


if __name__ == "__main__":
    main()
