"""The trainings behind figures 9, 10 and 14 at the scale of the paper, one line each in results/accuracy/*.jsonl.

python benchmarks/accuracy.py search --data DIR --device cuda    learning rates and iterations a round
python benchmarks/accuracy.py runs --data DIR --device cuda      what the figures show; those that are done are not done again

--minutes M begins no training after M minutes, so that the work can be spread over several occasions.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from airsplit.figures import jobs
from airsplit.figures.jobs import DATASETS, Done, Job

RESULTS = Path(__file__).parent / "results" / "accuracy"
SCHEMES = ("sfl", "fedavg")


def wanted(dataset: str, done: Done) -> list[Job]:
    """What the figures show of a data set, in the order in which it is needed most."""
    tuned = {(dataset, scheme): jobs.best(dataset, scheme, done) for scheme in SCHEMES}
    return jobs.of_figures(dataset, tuned)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("search", "runs"))
    parser.add_argument("--datasets", nargs="+", choices=DATASETS, default=DATASETS)
    parser.add_argument("--data")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    until = None if given.minutes is None else time.monotonic() + 60 * given.minutes
    searches, runs = Done(given.out / "search.jsonl"), Done(given.out / "runs.jsonl")
    options = {"device": given.device, "compiled": given.compile, "data": given.data, "at_a_time": given.jobs, "until": until}
    start = time.perf_counter()
    if given.what == "search":
        chosen, kept = [job for dataset in given.datasets for scheme in SCHEMES for job in jobs.searched(dataset, scheme)], searches
    else:
        chosen, kept = [job for dataset in given.datasets for job in wanted(dataset, searches)], runs
        chosen.sort(key=lambda job: job.seed)
    for line in jobs.trained(chosen, kept, **options):
        print(f"{time.perf_counter() - start:6.0f} s  {line}", flush=True)
    if given.what == "search" and all(job in searches for job in chosen):
        for dataset in given.datasets:
            print({scheme: jobs.best(dataset, scheme, searches) for scheme in SCHEMES}, flush=True)


if __name__ == "__main__":
    main()
