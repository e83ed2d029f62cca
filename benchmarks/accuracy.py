"""The trainings behind figures 9, 10 and 14 at the scale of the paper, one line each in results/accuracy/*.jsonl.

python benchmarks/accuracy.py search --data DIR --device cuda    learning rates and iterations a round
python benchmarks/accuracy.py runs --data DIR --device cuda      what the figures show; those that are done are not done again

--jobs N trains N at a time, which share the device.
--minutes M begins no training after M minutes, so that the work can be spread over several occasions.

A training that fails ends no other.  It is tried again, alone, when the others are done; if it fails again, the command names it
at its end and exits with 1.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from airsplit.core.errors import AirsplitError
from airsplit.paper import jobs
from airsplit.paper.jobs import DATASETS, Done, Job

RESULTS = Path(__file__).parent / "results" / "accuracy"
SCHEMES = ("sfl", "fedavg")


def wanted(dataset: str, done: Done) -> list[Job]:
    """What the figures show of a data set, in the order in which it is needed most."""
    tuned = {(dataset, scheme): jobs.find_best(dataset, scheme, done) for scheme in SCHEMES}
    return jobs.figure_jobs(dataset, tuned)


def main(arguments: Sequence[str] | None = None) -> None:
    """Train what is missing, and say what is done."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("search", "runs"))
    parser.add_argument("--datasets", nargs="+", choices=DATASETS, default=DATASETS)
    parser.add_argument("--data")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args(arguments)
    until = None if given.minutes is None else time.monotonic() + 60 * given.minutes
    searches, runs = Done(given.out / "search.jsonl"), Done(given.out / "runs.jsonl")
    options = {
        "device": given.device,
        "compiled": given.compile,
        "data": given.data,
        "at_a_time": given.jobs,
        "until": until,
    }
    if given.what == "search":
        chosen, kept = (
            [
                job
                for dataset in given.datasets
                for scheme in SCHEMES
                for job in jobs.search_jobs(dataset, scheme)
            ],
            searches,
        )
    else:
        chosen, kept = (
            [job for dataset in given.datasets for job in wanted(dataset, searches)],
            runs,
        )
        chosen.sort(key=lambda job: job.seed)
    start, before = time.perf_counter(), sum(job in kept for job in chosen)
    print(f"{before} of {len(chosen)} trainings are in {kept.file}", flush=True)
    for line in jobs.train_missing(chosen, kept, **options):
        print(f"{time.perf_counter() - start:6.0f} s  {line}", flush=True)
    if given.what == "search" and all(job in searches for job in chosen):
        for dataset in given.datasets:
            for scheme in SCHEMES:
                rate, iterations = jobs.find_best(dataset, scheme, searches)
                print(
                    f"{dataset}, {scheme}: learning rate {rate:g}, {iterations} iterations a round",
                    flush=True,
                )


if __name__ == "__main__":
    try:
        main()
    except AirsplitError as error:
        sys.exit(f"accuracy.py: {error}")
