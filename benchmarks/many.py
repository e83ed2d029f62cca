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
from machine import describe_machine

TRAINED_DEVICES = 10_000
TIMED_DEVICES = 1_000_000
LIMIT_S = 300.0
ROUNDS = 3


def training_scenario() -> Scenario:
    """Return the quarter-width model split at 4, batch 2, one iteration a round."""
    changes = {
        "model.arguments": {"width": 0.25},
        "fleet.devices": TRAINED_DEVICES,
        "plan.method": "fixed",
        "plan.split": 4,
        "plan.max_split": None,
        "training.dataset": "nets:many_images",
        "training.batch_size": 2,
        "training.iterations_per_round": 1,
        "training.rounds": ROUNDS,
        "training.momentum": 0.0,
        "training.evaluate_devices": 5,
        "training.evaluate_samples": 500,
    }
    return Scenario.load("demo").replace(**changes)


def clock_scenario() -> Scenario:
    """Return the paper's scenario with a million devices, 20 rounds of 5 iterations."""
    return Scenario.load("paper-alexnet").replace(
        **{
            "fleet.devices": TIMED_DEVICES,
            "training.rounds": 20,
            "training.iterations_per_round": 5,
        }
    )


def peak_gib() -> float:
    """Return the peak memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def measure_training() -> list[str]:
    """Train a few rounds, and return the row of the table."""
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "run"
        rounds = simulate(training_scenario(), out=folder)
        setup_s = time.perf_counter() - start
        times = []
        last = time.perf_counter()
        for _ in rounds:
            times.append(time.perf_counter() - last)
            last = time.perf_counter()
        record_mb = RunFolder(folder).rounds_file.stat().st_size / ROUNDS / 1e6
    verdict = "yes" if max(times) < LIMIT_S else "**no**"
    return [
        f"| {TRAINED_DEVICES:,} devices train, alexnet32 at width 0.25, split 4, batch 2, E = 1 "
        f"| {statistics.median(times):.1f} s a round, everything included; "
        f"{setup_s:.0f} s to begin "
        f"| under {LIMIT_S:.0f} s: {verdict} | {peak_gib():.2f} GiB | {record_mb:.2f} MB a record |"
    ]


def measure_clock() -> list[str]:
    """Plan and time a million devices, and return the rows of the table."""
    scenario = clock_scenario()
    start = time.perf_counter()
    plan(profile_scenario(scenario), scenario.make_fleet(), **scenario.plan_arguments())
    planning_s = time.perf_counter() - start

    start = time.perf_counter()
    result = clock_run(scenario)
    clock_s = time.perf_counter() - start
    return [
        f"| plan {TIMED_DEVICES:,} devices (`airsplit plan`) | {planning_s:.1f} s | | | |",
        f"| {result.rounds} rounds of {TIMED_DEVICES:,} devices, E = 5, untrained "
        f"(`airsplit clock`) | {clock_s:.1f} s | | {peak_gib():.2f} GiB | |",
    ]


PARTS: dict[str, Callable[[], list[str]]] = {"train": measure_training, "clock": measure_clock}


def main() -> None:
    """Measure both parts, each in a process of its own."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="also write the table to this file")
    parser.add_argument("--part", choices=tuple(PARTS), help="measure this part in this process")
    options = parser.parse_args()
    if options.part is not None:
        print("\n".join(PARTS[options.part]()))
        return

    rows = []
    for part in PARTS:
        # The peak memory of a process is that of everything it has ever done.
        process = subprocess.run(
            [sys.executable, __file__, "--part", part],
            capture_output=True,
            text=True,
            check=True,
            cwd=Path(__file__).parent,
        )
        rows += process.stdout.splitlines()
        print(process.stdout, end="", flush=True)
    if options.out is not None:
        lines = [
            "# Many devices",
            "",
            f"`python benchmarks/many.py`. {describe_machine()}.",
            "",
            "| | time | limit | peak memory | |",
            "|---|---|---|---|---|",
        ]
        options.out.write_text("\n".join([*lines, *rows]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
