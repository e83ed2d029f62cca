"""The paper's figures, written to benchmarks/results with the machine and the commit.

python benchmarks/figures.py                    those of latency, at full scale, to results/figures
python benchmarks/figures.py --scale smoke      those of accuracy, small trainings, to results/figures-smoke
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from airsplit.figures import FIGURES, draw
from machine import description

RESULTS = Path(__file__).parent / "results"
FOLDERS = {"paper": RESULTS / "figures", "smoke": RESULTS / "figures-smoke"}
SEEDS = {"paper": "seeds 0-199", "smoke": "seeds 0-2"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=tuple(FOLDERS), default="paper")
    scale = parser.parse_args().scale
    start, out = time.perf_counter(), FOLDERS[scale]
    chosen = {number: figure for number, figure in FIGURES.items() if figure.trains == (scale == "smoke")}
    claims = draw(list(chosen), out, scale, lambda line: print(f"{time.perf_counter() - start:7.1f} s  {line}", flush=True))
    for svg in out.glob("*.svg"):
        svg.unlink()  # the pictures are kept once, as PNG
    pictures = [f"![Figure {number}: {figure.title}](fig{number:02d}.png)" for number, figure in chosen.items()]
    rows = [f"| {c.id} | {c.claim} | {'yes' if c.holds else '**no**'} | {c.measured} |" for c in claims]
    command = "python benchmarks/figures.py" + ("" if scale == "paper" else f" --scale {scale}")
    same = f"airsplit figures {' '.join(map(str, chosen))} --scale {scale}"
    text = [
        f"# Figures at `--scale {scale}`",
        "",
        f"`{command}` wrote this in {time.perf_counter() - start:.0f} s, `{same}` the same.",
        f"{description()}; {SEEDS[scale]}.",
        "",
        "| claim | the paper says | holds | measured |",
        "|---|---|---|---|",
        *rows,
        "",
        "\n\n".join(pictures),
        "",
    ]
    (out / "README.md").write_text("\n".join(text), encoding="utf-8")


if __name__ == "__main__":
    main()
