"""Airsplit beside its peers, all in one run on one machine, into one page.

PYTHONPATH=benchmarks python -m peers.run                                        print
PYTHONPATH=benchmarks python -m peers.run --out benchmarks/results/peers.md      also write
PYTHONPATH=benchmarks python -m peers.run --only planning profiling              these
PYTHONPATH=benchmarks python -m peers.run --quick                                smaller, to see that everything runs
"""

from __future__ import annotations

import argparse
import sys
import time
from importlib import import_module
from pathlib import Path

from machine import describe_machine
from peers.losses import losses
from peers.table import Section

COMPARISONS = ("planning", "profiling", "simulation", "steps")


def heading(arguments: list[str]) -> list[str]:
    command = " ".join(["PYTHONPATH=benchmarks python -m peers.run", *arguments])
    return [
        "# Airsplit beside its peers",
        "",
        f"`{command}` wrote this, in one run; `make bench-peers` makes the peers' environments first.  {describe_machine()}.",
        "Compare only within one run.  Each peer runs in an environment of its own, pinned in `benchmarks/peers/requirements-*.txt`;",
        "what could not be run is in the tables, with the reason.  All seeds are 0.",
        "",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=COMPARISONS, default=COMPARISONS)
    parser.add_argument(
        "--quick",
        action="store_true",
        help="smaller jobs, to see that everything runs; its numbers say little",
    )
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    start, lines = time.perf_counter(), heading(sys.argv[1:])
    print("\n".join(lines), flush=True)
    sections: list[Section] = []
    for name in chosen.only:
        section: Section = import_module(f"peers.{name}").compared(chosen.quick)
        sections.append(section)
        lines += [*section.lines(), ""]
        print("\n".join([*section.lines(), ""]), flush=True)
        last = [
            *losses(sections),
            "",
            f"The whole run took {(time.perf_counter() - start) / 60:.1f} minutes.",
        ]
        if chosen.out is not None:  # after each, so that what was measured is kept
            chosen.out.write_text("\n".join([*lines, *last]) + "\n", encoding="utf-8")
    print("\n".join(last))


if __name__ == "__main__":
    main()
