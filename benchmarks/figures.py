"""Draw the paper's figures into benchmarks/results, with the machine and the commit.

python benchmarks/figures.py latency     full scale, to results/figures
python benchmarks/figures.py smoke       accuracy, small trainings, to results/figures-smoke
python benchmarks/figures.py accuracy    accuracy, from the trainings of benchmarks/accuracy.py,
                                         to results/accuracy
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
from machine import describe_machine

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
    "`python benchmarks/accuracy.py runs --data DIR --device cuda --jobs 8`, where `DIR` holds "
    "MNIST and CIFAR-10;\n"
    "seeds 0-2 with 20 devices in figures 9 and 10, else 0; of the search 100",
}


def main() -> None:
    """Draw the figures of one kind, and write a page about them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", choices=tuple(FOLDERS), nargs="?", default="latency")
    kind = parser.parse_args().kind

    start = time.perf_counter()
    folder = FOLDERS[kind]
    scale = "smoke" if kind == "smoke" else "paper"
    figures = {
        number: figure for number, figure in FIGURES.items() if figure.trains == (kind != "latency")
    }
    claims = draw(
        list(figures),
        folder,
        scale,
        lambda line: print(f"{time.perf_counter() - start:7.1f} s  {line}", flush=True),
    )
    # The repository keeps each picture once, as PNG.
    for svg in folder.glob("*.svg"):
        svg.unlink()

    rows = [
        f"| {claim.id} | {claim.claim} | {'yes' if claim.holds else '**no**'} | {claim.measured} |"
        for claim in claims
    ]
    command = f"airsplit figures {' '.join(map(str, figures))} --scale {scale}"
    if kind == "accuracy":
        # The command reads the trainings from there.
        command += " --out benchmarks/results/accuracy"
    lines = [
        f"# Figures of {'latency' if kind == 'latency' else 'accuracy'} at `--scale {scale}`",
        "",
        f"`python benchmarks/figures.py {kind}` wrote this in {time.perf_counter() - start:.0f} s, "
        f"`{command}` the same.",
        f"{describe_machine()}; {NOTES[kind]}.",
        "",
        "| claim | the paper says | holds | measured |",
        "|---|---|---|---|",
        *rows,
        "",
    ]
    if 14 in figures:
        text = (folder / "fig14.json").read_text(encoding="utf-8")
        lines += tabulate_times(json.loads(text))
    pictures = [
        f"![Figure {number}: {figure.title}](fig{number:02d}.png)"
        for number, figure in figures.items()
    ]
    lines += ["\n\n".join(pictures), ""]
    (folder / "README.md").write_text("\n".join(lines), encoding="utf-8")


def tabulate_times(data: dict[str, Any]) -> list[str]:
    """Return figure 14 as tables: the time of each algorithm to each accuracy."""
    lines = []
    for dataset, targets in data["settings"]["targets"].items():
        heads = " | ".join(f"to {100 * target:g} %" for target in targets)
        lines += [
            f"{DATASET_NAMES[dataset]}: virtual time, and the accuracy at the end.",
            "",
            f"| data | distance | L̂ | way to train | {heads} | at the end |",
            "|" + "---|" * (5 + len(targets)),
        ]
        lines += [_row(point) for point in data["points"] if point["dataset"] == dataset]
        lines.append("")
    return lines


def _row(point: dict[str, Any]) -> str:
    times = ["–" if time_s is None else f"{time_s:,.0f} s" for time_s in point["time_to_s"]]
    accuracy = sum(point["test_accuracy"]) / len(point["test_accuracy"])
    cells = [
        PARTITION_NAMES[point["partition"]],
        f"{point['mean_distance_m']:g} m",
        str(point["max_split"]),
        WAYS[point["way"]][0],
        *times,
        f"{100 * accuracy:.1f} %",
    ]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
