"""Airsplit beside its peers, measured in one run on one machine, on one page.

PYTHONPATH=benchmarks python -m peers.run                                     print
PYTHONPATH=benchmarks python -m peers.run --out benchmarks/results/peers.md   also write
PYTHONPATH=benchmarks python -m peers.run --only planning profiling           these sections
PYTHONPATH=benchmarks python -m peers.run --quick                             check that all run
"""

from __future__ import annotations

import argparse
import sys
import time
from importlib import import_module
from pathlib import Path

from machine import describe_machine
from peers.losses import describe_losses
from peers.table import Section

COMPARISONS = ("planning", "profiling", "simulation", "steps")


def heading(arguments: list[str]) -> list[str]:
    """Return the head of the page."""
    command = " ".join(["PYTHONPATH=benchmarks python -m peers.run", *arguments])
    return [
        "# Airsplit beside its peers",
        "",
        f"`{command}` wrote this, in one run; `make bench-peers` makes the peers' environments "
        f"first. {describe_machine()}.",
        "Compare only within one run. Each peer runs in an environment of its own, pinned in "
        "`benchmarks/peers/requirements-*.txt`;",
        "what could not be run is in the tables, with the reason. All seeds are 0.",
        "",
    ]


def main() -> None:
    """Run the chosen comparisons, and write each as it is done."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", nargs="+", choices=COMPARISONS, default=COMPARISONS, help="these sections"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="smaller jobs, to check that all run; the numbers say little",
    )
    parser.add_argument("--out", type=Path, help="also write the page to this file")
    options = parser.parse_args()

    start = time.perf_counter()
    lines = heading(sys.argv[1:])
    print("\n".join(lines), flush=True)
    sections: list[Section] = []
    for name in options.only:
        section: Section = import_module(f"peers.{name}").compare(options.quick)
        sections.append(section)
        text = [*section.lines(), ""]
        print("\n".join(text), flush=True)
        lines += text
        if options.out is not None:
            # After each section, so that an interrupted run keeps what it has measured.
            options.out.write_text("\n".join(lines + ending(sections, start)) + "\n", "utf-8")
    print("\n".join(ending(sections, start)))


def ending(sections: list[Section], start: float) -> list[str]:
    """Return the end of the page: lost races, and the time so far."""
    minutes = (time.perf_counter() - start) / 60
    return [*describe_losses(sections), "", f"The whole run took {minutes:.1f} minutes."]


if __name__ == "__main__":
    main()
