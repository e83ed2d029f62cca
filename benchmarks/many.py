"""Many devices: a round of 10,000 that train, and the clock of a million that do not.

python benchmarks/many.py                                    print
python benchmarks/many.py --out benchmarks/results/many.md   also write
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from airsplit.models.profiling import profile_scenario
from airsplit.planning.methods import plan
from airsplit.runs.folder import RunFolder
from airsplit.scenario.scenario import Scenario
from airsplit.simulation.clock_simulation import clock_run
from airsplit.simulation.simulate import simulate
from machine import description

TRAINED, TIMED = 10_000, 1_000_000
LIMIT_S = 300.0
ROUNDS = 3


def trained() -> Scenario:
    """The quarter-width model split at 4, batch 2, one iteration a round."""
    changes = {
        "model.arguments": {"width": 0.25},
        "fleet.devices": TRAINED,
        "plan.method": "fixed",
        "plan.split": 4,
        "plan.max_split": None,
        "training.dataset": "nets:many",
        "training.batch_size": 2,
        "training.iterations_per_round": 1,
        "training.rounds": ROUNDS,
        "training.momentum": 0.0,
        "training.evaluate_devices": 5,
        "training.evaluate_samples": 500,
    }
    return Scenario.load("demo").replace(**changes)


def timed() -> Scenario:
    return Scenario.load("paper-alexnet").replace(
        **{"fleet.devices": TIMED, "training.rounds": 20, "training.iterations_per_round": 5}
    )


def peak_gib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def train() -> list[str]:
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        rounds = simulate(trained(), out=Path(folder) / "run")
        made = time.perf_counter() - start
        spent, last = [], time.perf_counter()
        for _ in rounds:
            spent.append(time.perf_counter() - last)
            last = time.perf_counter()
        size = RunFolder(Path(folder) / "run").rounds_file.stat().st_size / ROUNDS
    a_round = statistics.median(spent)
    verdict = "yes" if max(spent) < LIMIT_S else "**no**"
    return [
        f"| {TRAINED:,} devices train, alexnet32 at width 0.25, split 4, batch 2, E = 1 | {a_round:.1f} s a round, everything included; "
        f"{made:.0f} s to begin | under {LIMIT_S:.0f} s: {verdict} | {peak_gib():.2f} GiB | {size / 1e6:.2f} MB a record |"
    ]


def clock() -> list[str]:
    given = timed()
    start = time.perf_counter()
    plan(profile_scenario(given), given.make_fleet(), **given.plan_arguments())
    planned = time.perf_counter() - start
    start = time.perf_counter()
    found = clock_run(given)
    took = time.perf_counter() - start
    return [
        f"| plan {TIMED:,} devices (`airsplit plan`) | {planned:.1f} s | | | |",
        f"| {found.rounds} rounds of {TIMED:,} devices, E = 5, untrained (`airsplit clock`) | {took:.1f} s | | {peak_gib():.2f} GiB | |",
    ]


PARTS: dict[str, Callable[[], list[str]]] = {"train": train, "clock": clock}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path)
    parser.add_argument("--part", choices=tuple(PARTS))
    given = parser.parse_args()
    if given.part is not None:
        print("\n".join(PARTS[given.part]()))
        return
    rows = []
    for part in PARTS:  # each in a process of its own, so that its peak memory is its own
        done = subprocess.run(
            [sys.executable, __file__, "--part", part],
            capture_output=True,
            text=True,
            check=True,
            cwd=Path(__file__).parent,
        )
        rows += done.stdout.splitlines()
        print(done.stdout, end="", flush=True)
    if given.out is not None:
        lines = [
            "# Many devices",
            "",
            f"`python benchmarks/many.py`. {description()}.",
            "",
            "| | time | limit | peak memory | |",
            "|---|---|---|---|---|",
        ]
        given.out.write_text("\n".join([*lines, *rows]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
