"""Train what figures 9, 10 and 14 show at the scale of the paper.

python benchmarks/accuracy.py search --data DIR --device cuda    learning rates, iterations a round
python benchmarks/accuracy.py runs --data DIR --device cuda      the trainings of the figures

Each training becomes a line of results/accuracy/search.jsonl or runs.jsonl. Those that are there
already are not repeated, so the work can be spread over several sessions with --minutes.

A training that fails does not end the others. It is tried again, alone, once they are done; if it
fails again, the command names it at the end and exits with 1.
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
ALGORITHMS = ("sfl", "fedavg")


def list_search(datasets: Sequence[str]) -> list[Job]:
    """Return the trainings of the search."""
    return [
        job
        for dataset in datasets
        for algorithm in ALGORITHMS
        for job in jobs.search_jobs(dataset, algorithm)
    ]


def list_runs(datasets: Sequence[str], searches: Done) -> list[Job]:
    """Return the trainings of the figures, first seeds first, with the settings of the search."""
    chosen: list[Job] = []
    for dataset in datasets:
        tuned = {
            (dataset, algorithm): jobs.find_best(dataset, algorithm, searches)
            for algorithm in ALGORITHMS
        }
        chosen += jobs.figure_jobs(dataset, tuned)
    return sorted(chosen, key=lambda job: job.seed)


def main(arguments: Sequence[str] | None = None) -> None:
    """Train the missing jobs, and print each as it ends."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=("search", "runs"))
    parser.add_argument("--datasets", nargs="+", choices=DATASETS, default=DATASETS)
    parser.add_argument("--data", help="folder with MNIST and CIFAR-10")
    parser.add_argument("--device", default="cpu", help="torch device (default cpu)")
    parser.add_argument("--jobs", type=int, default=1, help="trainings in parallel (default 1)")
    parser.add_argument("--minutes", type=float, help="begin no training after this time")
    parser.add_argument("--compile", action="store_true", help="compile the models")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the .jsonl files")
    options = parser.parse_args(arguments)

    searches = Done(options.out / "search.jsonl")
    if options.part == "search":
        done = searches
        chosen = list_search(options.datasets)
    else:
        done = Done(options.out / "runs.jsonl")
        chosen = list_runs(options.datasets, searches)

    start = time.perf_counter()
    count = sum(job in done for job in chosen)
    print(f"{count} of {len(chosen)} trainings are in {done.file}", flush=True)
    for line in jobs.train_missing(
        chosen,
        done,
        device=options.device,
        compiled=options.compile,
        data=options.data,
        at_a_time=options.jobs,
        until=None if options.minutes is None else time.monotonic() + 60 * options.minutes,
    ):
        print(f"{time.perf_counter() - start:6.0f} s  {line}", flush=True)

    if options.part == "search" and all(job in searches for job in chosen):
        print_best(options.datasets, searches)


def print_best(datasets: Sequence[str], searches: Done) -> None:
    """Print the settings that the search has chosen."""
    for dataset in datasets:
        for algorithm in ALGORITHMS:
            rate, iterations = jobs.find_best(dataset, algorithm, searches)
            print(
                f"{dataset}, {algorithm}: learning rate {rate:g}, {iterations} iterations a round",
                flush=True,
            )


if __name__ == "__main__":
    try:
        main()
    except AirsplitError as error:
        sys.exit(f"accuracy.py: {error}")
