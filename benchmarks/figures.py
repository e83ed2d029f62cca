"""The paper's figures at full scale, written to benchmarks/results/figures with the machine and the commit.

python benchmarks/figures.py
"""

from __future__ import annotations

import time
from pathlib import Path

from airsplit.figures import FIGURES, draw
from machine import description

OUT = Path(__file__).parent / "results" / "figures"


def main() -> None:
    start = time.perf_counter()
    claims = draw(None, OUT, "paper", lambda line: print(f"{time.perf_counter() - start:7.1f} s  {line}", flush=True))
    for svg in OUT.glob("*.svg"):
        svg.unlink()  # the pictures are kept once, as PNG
    pictures = [f"![Figure {number}: {figure.title}](fig{number:02d}.png)" for number, figure in FIGURES.items()]
    rows = [f"| {c.id} | {c.claim} | {'yes' if c.holds else '**no**'} | {c.measured} |" for c in claims]
    text = [
        "# Figures at `--scale paper`",
        "",
        f"`python benchmarks/figures.py` wrote this in {time.perf_counter() - start:.0f} s, `airsplit figures --scale paper` the same.",
        f"{description()}; seeds 0-199.",
        "",
        "| claim | the paper says | holds | measured |",
        "|---|---|---|---|",
        *rows,
        "",
        "\n\n".join(pictures),
        "",
    ]
    (OUT / "README.md").write_text("\n".join(text), encoding="utf-8")


if __name__ == "__main__":
    main()
