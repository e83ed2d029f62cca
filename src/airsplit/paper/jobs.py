"""Jobs: the trainings behind the figures of accuracy at the paper's scale, and their file.

Eight in parallel take about half an hour of an H200, so each is appended to the file when it ends,
and never repeated.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any

from airsplit.core.errors import AirsplitError, Diverged, FileProblem, show
from airsplit.core.files import read_text
from airsplit.core.parsing import parse_json
from airsplit.runs.record import RoundRecord
from airsplit.runs.seeds import Trials
from airsplit.scenario.scenario import Scenario
from airsplit.training.parallel import Failure, attempt_all

# Sizes of the training sets. Fixed here, so that listing the jobs needs no data.
SAMPLES = {"mnist": 60_000, "cifar10": 50_000}
# Passes of each device over its samples.
EPOCHS = {"mnist": 5, "cifar10": 20}
PARTITIONS: dict[str, dict[str, Any]] = {
    "iid": {},
    "non-iid": {"training.partition": "dirichlet", "training.alpha": 0.3},
}
BATCH_SIZE = 32
SEARCHED_EPOCHS = 2
SEARCHED_DEVICES = 20
# Not among SEEDS: settings must not be chosen on the runs that the figures show.
SEARCHED_SEED = 100
# Evaluations of a training, evenly spaced.
EVALUATIONS = 12
# Rounds after which SFL averages fronts in figure 14.
FRONTS_EVERY = 10
# Accuracy of an untrained model on ten classes.
GUESSING = 0.1
GUESSING_FIELDS: dict[str, Any] = {
    "test_accuracy": GUESSING,
    "test_accuracy_spread": 0.0,
    "test_accuracy_worst": GUESSING,
    "own_accuracy": GUESSING,
}
# Fields of a record that are kept.
KEPT_FIELDS = (
    "round",
    "virtual_time_s",
    "latency_s",
    "train_loss",
    "test_accuracy",
    "test_accuracy_spread",
    "test_accuracy_worst",
    "own_accuracy",
)


@dataclass(frozen=True)
class Job:
    """One training of alexnet32 at width 1 on a whole training set.

    Attributes:
        epochs: Passes of each device over its samples.
        split: Split of all devices.
    """

    dataset: str
    algorithm: str
    learning_rate: float
    iterations_per_round: int
    epochs: int
    devices: int = 20
    split: int = 4
    partition: str = "iid"
    average_fronts_every: int | None = None
    seed: int = 0

    @property
    def rounds(self) -> int:
        """Number of rounds that comes closest to `epochs`."""
        batches = SAMPLES[self.dataset] // self.devices // BATCH_SIZE
        return max(1, round(self.epochs * batches / self.iterations_per_round))

    def scenario(self, device: str = "cpu") -> Scenario:
        """Return the job's scenario, for `airsplit run`."""
        # The search only ranks settings, so it is evaluated less.
        is_search = self.seed == SEARCHED_SEED
        evaluations = EVALUATIONS // 2 if is_search else EVALUATIONS
        changes: dict[str, Any] = {
            "model.arguments": {"width": 1.0},
            "fleet.devices": self.devices,
            "plan.method": "fixed",
            "plan.split": self.split,
            "plan.max_split": None,
            "training.algorithm": self.algorithm,
            "training.average_fronts_every": self.average_fronts_every,
            "training.dataset": self.dataset,
            "training.rounds": self.rounds,
            "training.iterations_per_round": self.iterations_per_round,
            "training.batch_size": BATCH_SIZE,
            "training.learning_rate": self.learning_rate,
            "training.momentum": 0.9,
            "training.evaluate_every": max(1, self.rounds // evaluations),
            "training.evaluate_devices": 10,
            "training.evaluate_samples": 2000,
            "training.evaluate_all_at_end": not is_search,
            "training.seed": self.seed,
            "training.precision": "bf16",
            "training.device": device,
        }
        return Scenario.load("demo").replace(**changes | PARTITIONS[self.partition])


class Done:
    """Finished trainings, one per line of a file."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._records: dict[Job, tuple[RoundRecord, ...]] = {}
        self._diverged: set[Job] = set()
        if file.exists():
            text = read_text(file, what="trainings", limit_bytes=1 << 28)
            for number, line in enumerate(text.splitlines(), start=1):
                self._parse(number, line)

    def _parse(self, number: int, line: str) -> None:
        try:
            data = parse_json(line, "a training")
            self._keep(Job(**data["job"]), data)
        except (FileProblem, ValueError, TypeError, KeyError) as error:
            raise FileProblem(
                f"trainings {str(self.file)!r}, line {number} must be one training as JSON, got "
                f"{show(line)} ({type(error).__name__}: {error}); delete that line"
            ) from None

    def __contains__(self, job: Job) -> bool:
        return job in self._records

    def __getitem__(self, job: Job) -> tuple[RoundRecord, ...]:
        return self._records[job]

    def add(self, job: Job, result: Mapping[str, Any]) -> None:
        """Append a training to the file, and flush it to disk."""
        # On disk before the next one starts: a machine that goes away costs only what is running.
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.file.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps({"job": asdict(job)} | dict(result), allow_nan=False) + "\n")
            stream.flush()
            os.fsync(stream.fileno())
        self._keep(job, result)

    def _keep(self, job: Job, result: Mapping[str, Any]) -> None:
        self._records[job] = tuple(RoundRecord(**record) for record in result["records"])
        if "diverged" in result:
            self._diverged.add(job)

    def trials(self, jobs: Sequence[Job]) -> Trials:
        """Return the runs of jobs that differ only in their seed.

        A training that diverged counts as guessing wherever the others were evaluated.
        """
        # A training that diverged has one record, but curves need the same rounds for all seeds.
        longest = max((self[job] for job in jobs), key=len)
        guessing = tuple(replace(record, train_loss=None, **GUESSING_FIELDS) for record in longest)
        return Trials(tuple(guessing if job in self._diverged else self[job] for job in jobs))


def train_missing(
    jobs: Iterable[Job],
    done: Done,
    *,
    device: str = "cpu",
    compiled: bool = False,
    data: str | None = None,
    at_a_time: int = 1,
    until: float | None = None,
) -> Iterator[str]:
    """Train missing jobs, several in parallel; yield lines of progress.

    A training that fails does not end the others. When they are done it is retried alone, with all
    the memory. If it fails again, that is raised at the end.

    Args:
        until: Time of time.monotonic after which no more trainings start.
    """
    missing = [job for job in dict.fromkeys(jobs) if job not in done]
    if not missing:
        return

    # Sent to other processes, so it must be a function that pickles.
    work = partial(_train, device=device, compiled=compiled, data=data, until=until)
    failed = yield from _attempt(work, missing, done, at_a_time)
    if failed:
        yield f"{len(failed)} failed; each is retried alone"
        retried = yield from _attempt(work, list(failed), done, 1, apart=at_a_time > 1)
        # A retry that `until` prevents has no reason of its own; the first one stays.
        failed = {job: retried.get(job, why) for job, why in failed.items() if job not in done}
    left = [job for job in missing if job not in done and job not in failed]
    if left:
        yield f"{len(left)} of {len(missing)} were not started: time is up"
    if failed:
        raise FailedTrainings(failed, len(missing))


class FailedTrainings(AirsplitError):
    """Trainings failed, also alone. All others are kept.

    Attributes:
        reasons: The reason of each failed training.
    """

    def __init__(self, reasons: Mapping[Job, str], of: int) -> None:
        self.reasons = reasons
        lines = "; ".join(f"{job}: {why}" for job, why in reasons.items())
        super().__init__(f"{len(reasons)} of {of} trainings failed, the others are kept; {lines}")


# The results of a training; None if it was not started.
Results = dict[str, Any] | None


def _attempt(
    work: Callable[[Job], Results],
    jobs: Sequence[Job],
    done: Done,
    at_a_time: int,
    *,
    apart: bool = False,
) -> Generator[str, None, dict[Job, str]]:
    """Train jobs and keep their results; yield progress, return the reasons of failures.

    Args:
        apart: Whether to use a process of its own even for one training at a time, since a training
            that is killed for its memory ends its process.
    """
    failed: dict[Job, str] = {}
    reported: set[int] = set()
    for outcomes in attempt_all(work, jobs, jobs=at_a_time, apart=apart):
        for number in sorted(outcomes.keys() - reported):
            reported.add(number)
            job = jobs[number]
            outcome = outcomes[number]
            count = f"{len(reported)} of {len(jobs)}"
            if isinstance(outcome, Failure):
                failed[job] = str(outcome)
                yield f"{count}: {job} failed: {outcome}"
            elif outcome is not None:
                done.add(job, outcome)
                yield f"{count}: {job} took {outcome['seconds']:.0f} s, {_describe_end(outcome)}"
    return failed


def _describe_end(result: Mapping[str, Any]) -> str:
    if "diverged" in result:
        return f"diverged: {result['diverged']}"
    return f"accuracy {result['records'][-1]['test_accuracy']:.4f}"


def _train(
    job: Job, *, device: str, compiled: bool, data: str | None, until: float | None
) -> Results:
    # Imported here because figures without training need no torch.
    import torch

    from airsplit.training.coordinator import Training

    if until is not None and time.monotonic() > until:
        return None
    start = time.perf_counter()
    scenario = job.scenario(device)
    if compiled:
        scenario = scenario.replace(**{"training.compile": True})
    divergence: dict[str, Any] = {}
    try:
        records = [
            {name: getattr(record, name) for name in KEPT_FIELDS}
            for record in Training(scenario, data=data).rounds()
            if record.test_accuracy is not None
        ]
    except Diverged as error:
        # A result, not a failure: a search for learning rates must be able to go too far.
        first_round = {"round": 1, "virtual_time_s": 0.0, "latency_s": 0.0, "train_loss": None}
        records = [first_round | GUESSING_FIELDS]
        divergence = {"diverged": str(error)}
    seconds = round(time.perf_counter() - start, 1)
    machine = torch.cuda.get_device_name(device) if device.startswith("cuda") else "CPU"
    return {
        "records": records,
        "seconds": seconds,
        **divergence,
        "machine": machine,
        "torch": torch.__version__,
    }


# Learning rate and iterations per round of each data set and algorithm.
Tuned = Mapping[tuple[str, str], tuple[float, int]]

DATASETS = ("mnist", "cifar10")
# As in the paper: numbers of devices (figure 9) and splits (figure 10).
DEVICES = (5, 20, 100)
SPLITS = (4, 10, 15)
SEEDS = (0, 1, 2)


def add_seeds(job: Job, seeds: Sequence[int] = SEEDS) -> list[Job]:
    """Return the job with each seed: three for 20 devices, one otherwise."""
    # Three seeds of everything would take three times the GPU hours.
    if job.devices != SEARCHED_DEVICES:
        seeds = seeds[:1]
    return [replace(job, seed=seed) for seed in seeds]


def add_finished_seeds(job: Job, done: Done) -> list[Job]:
    """Return the job with the first seed, and with the next ones until one is not done.

    So the n-th runs of any two curves have the same seed.
    """
    others = [replace(job, seed=seed) for seed in SEEDS[1:]]
    return [replace(job, seed=SEEDS[0]), *takewhile(done.__contains__, others)]


# Result of the search for 20 devices: `python benchmarks/accuracy.py search`, kept in
# benchmarks/results/accuracy/search.jsonl.
TUNED: Tuned = {
    ("mnist", "sfl"): (0.002, 1),
    ("mnist", "fedavg"): (0.001, 100),
    ("cifar10", "sfl"): (0.002, 1),
    ("cifar10", "fedavg"): (0.001, 100),
}


def make_job(
    tuned: Tuned, dataset: str, algorithm: str, *, devices: int = SEARCHED_DEVICES, **others: Any
) -> Job:
    """Return a job with its tuned learning rate and iterations.

    More than one iteration is scaled to as many passes over a device's samples as in the search.
    """
    rate, iterations = tuned[dataset, algorithm]
    if iterations > 1:
        iterations = max(1, round(iterations * SEARCHED_DEVICES / devices))
    return Job(dataset, algorithm, rate, iterations, EPOCHS[dataset], devices=devices, **others)


def search_jobs(dataset: str, algorithm: str) -> list[Job]:
    """Return the search for learning rate and iterations per round.

    It has as many tries for each algorithm, and a seed of its own.
    """
    grid = [
        (rate, iterations) for iterations in (1, 10, 100) for rate in (0.001, 0.002, 0.005, 0.01)
    ]
    return [
        Job(dataset, algorithm, rate, iterations, SEARCHED_EPOCHS, seed=SEARCHED_SEED)
        for rate, iterations in grid
    ]


def find_best(dataset: str, algorithm: str, done: Done) -> tuple[float, int]:
    """Return the learning rate and iterations with the highest accuracy by a common time.

    That is the virtual time at which the first of the tries ends, since equal passes over the
    samples differ in time.
    """
    jobs = search_jobs(dataset, algorithm)
    missing = [job for job in jobs if job not in done]
    if missing:
        raise FileProblem(
            f"the search for {algorithm} on {dataset} must be complete, but {len(missing)} of its "
            f"{len(jobs)} trainings are missing in {str(done.file)!r}; continue it first"
        )
    # A training that diverged ends at zero.
    ends_s = [done[job][-1].virtual_time_s for job in jobs]
    first_end_s = min(end_s for end_s in ends_s if end_s > 0)
    accuracies = {job: Trials((done[job],)).accuracy_by(first_end_s, GUESSING)[0] for job in jobs}
    winner = max(jobs, key=lambda job: accuracies[job])
    return winner.learning_rate, winner.iterations_per_round


def figure_jobs(dataset: str, tuned: Tuned) -> list[Job]:
    """Return all jobs of a data set, the most needed first."""
    jobs = [
        *figure_9_jobs(dataset, tuned),
        *figure_10_jobs(dataset, tuned),
        *figure_14_jobs(dataset, tuned),
    ]
    return sorted(dict.fromkeys(jobs), key=lambda job: job.seed)


def figure_9_jobs(dataset: str, tuned: Tuned) -> list[Job]:
    """Return SFL and FedAvg for different numbers of devices."""
    return [
        job
        for devices in DEVICES
        for algorithm in ("sfl", "fedavg")
        for job in add_seeds(make_job(tuned, dataset, algorithm, devices=devices))
    ]


def figure_10_jobs(dataset: str, tuned: Tuned) -> list[Job]:
    """Return SFL at different splits, with both partitions."""
    return [
        job
        for partition in PARTITIONS
        for split in SPLITS
        for job in add_seeds(make_job(tuned, dataset, "sfl", split=split, partition=partition))
    ]


def figure_14_jobs(dataset: str, tuned: Tuned) -> list[Job]:
    """Return what figure 14 needs besides, with one seed.

    SFL at another split and with averaged fronts, FedAvg, and SplitFed V1. The latter averages all
    layers after each round, so it trains as FedAvg does with the iterations of SFL.
    """
    kinds: list[dict[str, Any]] = [
        {"algorithm": "sfl", "split": 8},
        {"algorithm": "sfl", "split": 4, "average_fronts_every": FRONTS_EVERY},
        {"algorithm": "sfl", "split": 15, "average_fronts_every": FRONTS_EVERY},
        {"algorithm": "fedavg"},
    ]
    jobs = [
        make_job(tuned, dataset, **kind, partition=partition)
        for partition in PARTITIONS
        for kind in kinds
    ]
    splitfed = {(dataset, "fedavg"): tuned[dataset, "sfl"]}
    return jobs + [
        make_job(splitfed, dataset, "fedavg", partition=partition) for partition in PARTITIONS
    ]
