"""Jobs: the trainings behind the figures of accuracy at the scale of the paper, and the file in which those that are done are kept.

Eight at a time they take about half an hour of an H200, so each is appended to the file as it ends, and never done twice.
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

SAMPLES = {"mnist": 60_000, "cifar10": 50_000}
EPOCHS = {"mnist": 5, "cifar10": 20}
PARTITIONS: dict[str, dict[str, Any]] = {
    "iid": {},
    "non-iid": {"training.partition": "dirichlet", "training.alpha": 0.3},
}
BATCH_SIZE = 32
SEARCHED_EPOCHS = 2
SEARCHED_DEVICES = 20
SEARCHED_SEED = 100
EVALUATIONS = 12
FRONTS_EVERY = 10
"""Rounds after which SFL averages fronts, in figure 14."""
GUESSING = 0.1
"""The accuracy of an untrained model on ten classes."""
GUESSED: dict[str, Any] = {
    "test_accuracy": GUESSING,
    "test_accuracy_spread": 0.0,
    "test_accuracy_worst": GUESSING,
    "own_accuracy": GUESSING,
}
KEPT = (
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
    """One training of alexnet32 at width 1.  Every device is cut at `split`; all the training set is dealt to the devices.

    epochs   how often each device goes through its samples
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
        batches = SAMPLES[self.dataset] // self.devices // BATCH_SIZE
        return max(1, round(self.epochs * batches / self.iterations_per_round))

    def scenario(self, device: str = "cpu") -> Scenario:
        """As `airsplit run` takes it."""
        searching = self.seed == SEARCHED_SEED
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
            "training.evaluate_every": max(
                1, self.rounds // (EVALUATIONS // 2 if searching else EVALUATIONS)
            ),
            "training.evaluate_devices": 10,
            "training.evaluate_samples": 2000,
            "training.evaluate_all_at_end": not searching,
            "training.seed": self.seed,
            "training.precision": "bf16",
            "training.device": device,
        }
        return Scenario.load("demo").replace(**changes | PARTITIONS[self.partition])


class Done:
    """The trainings that are done, one a line."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._found: dict[Job, tuple[RoundRecord, ...]] = {}
        self._diverged = set[Job]()
        if file.exists():
            for number, line in enumerate(
                read_text(file, what="trainings", limit_bytes=1 << 28).splitlines(), start=1
            ):
                self._read(number, line)

    def _read(self, number: int, line: str) -> None:
        try:
            data = parse_json(line, "a training")
            self._keep(Job(**data["job"]), data)
        except (FileProblem, ValueError, TypeError, KeyError) as error:
            why = (
                f"must be one training as JSON, got {show(line)} ({type(error).__name__}: {error})"
            )
            raise FileProblem(
                f"trainings {str(self.file)!r}, line {number} {why}; delete that line"
            ) from None

    def __contains__(self, job: Job) -> bool:
        return job in self._found

    def __getitem__(self, job: Job) -> tuple[RoundRecord, ...]:
        return self._found[job]

    def add(self, job: Job, result: Mapping[str, Any]) -> None:
        """Write one down; it is on the disk when this returns."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.file.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps({"job": asdict(job)} | dict(result), allow_nan=False) + "\n")
            stream.flush()
            os.fsync(stream.fileno())
        self._keep(job, result)

    def _keep(self, job: Job, result: Mapping[str, Any]) -> None:
        self._found[job] = tuple(RoundRecord(**record) for record in result["records"])
        if "diverged" in result:
            self._diverged.add(job)

    def trials(self, jobs: Sequence[Job]) -> Trials:
        """The runs of jobs that differ in their seed only; one that diverged is as good as guessing wherever the others are evaluated."""
        longest = max((self[job] for job in jobs), key=len)
        guessed = tuple(replace(record, train_loss=None, **GUESSED) for record in longest)
        return Trials(tuple(guessed if job in self._diverged else self[job] for job in jobs))


def trained(
    jobs: Iterable[Job],
    done: Done,
    *,
    device: str = "cpu",
    compiled: bool = False,
    data: str | None = None,
    at_a_time: int = 1,
    until: float | None = None,
) -> Iterator[str]:
    """Train what is missing, several at a time, and say what is done.

    A training that fails ends no other.  Once the others are done it is tried again, alone, which gives it all the memory; what
    fails again is raised at the very end.

    until   the moment, as of time.monotonic, after which no more are begun
    """
    missing = [job for job in dict.fromkeys(jobs) if job not in done]
    work = partial(_train, device=device, compiled=compiled, data=data, until=until)
    if not missing:
        return
    failed = yield from _attempted(work, missing, done, at_a_time)
    if failed:
        yield f"{len(failed)} failed; each is tried again, alone"
        again = yield from _attempted(work, list(failed), done, 1, apart=at_a_time > 1)
        failed = {job: again.get(job, why) for job, why in failed.items() if job not in done}
    left = [job for job in missing if job not in done and job not in failed]
    if left:
        yield f"{len(left)} of {len(missing)} were not begun: time is up"
    if failed:
        raise FailedTrainings(failed, len(missing))


class FailedTrainings(AirsplitError):
    """Trainings failed, alone as well; all others are kept.

    reasons  why, for each of them
    """

    def __init__(self, reasons: Mapping[Job, str], of: int) -> None:
        self.reasons = reasons
        each = "; ".join(f"{job}: {why}" for job, why in reasons.items())
        super().__init__(f"{len(reasons)} of {of} trainings failed, the others are kept; {each}")


Results = dict[str, Any] | None
"""What a training gives; None if it was not begun."""


def _attempted(
    work: Callable[[Job], Results],
    jobs: Sequence[Job],
    done: Done,
    at_a_time: int,
    *,
    apart: bool = False,
) -> Generator[str, None, dict[Job, str]]:
    """Train these, write down what they give, and say so; return the reasons of those that failed."""
    failed, told = dict[Job, str](), set[int]()
    for outcomes in attempt_all(work, jobs, jobs=at_a_time, apart=apart):
        for number in sorted(outcomes.keys() - told):
            told.add(number)
            job, outcome = jobs[number], outcomes[number]
            if isinstance(outcome, Failure):
                failed[job] = str(outcome)
                yield f"{len(told)} of {len(jobs)}: {job} failed: {outcome}"
            elif outcome is not None:
                done.add(job, outcome)
                yield f"{len(told)} of {len(jobs)}: {job} took {outcome['seconds']:.0f} s, {_ending(outcome)}"
    return failed


def _ending(result: Mapping[str, Any]) -> str:
    if "diverged" in result:
        return f"diverged: {result['diverged']}"
    return f"accuracy {result['records'][-1]['test_accuracy']:.4f}"


def _train(
    job: Job, *, device: str, compiled: bool, data: str | None, until: float | None
) -> Results:
    from airsplit.training.coordinator import Training  # torch: only where something is trained

    if until is not None and time.monotonic() > until:
        return None
    start = time.perf_counter()
    scenario = job.scenario(device)
    if compiled:
        scenario = scenario.replace(**{"training.compile": True})
    records, went = list[dict[str, Any]](), dict[str, Any]()
    try:
        for record in Training(scenario, data=data).rounds():
            if record.test_accuracy is not None:
                records.append({name: getattr(record, name) for name in KEPT})
    except Diverged as error:
        records, went = [_nothing()], {"diverged": str(error)}
    return (
        {"records": records, "seconds": round(time.perf_counter() - start, 1)}
        | went
        | _machine(device)
    )


def _nothing() -> dict[str, Any]:
    """The record of a training that went wrong: as good as guessing."""
    return {"round": 1, "virtual_time_s": 0.0, "latency_s": 0.0, "train_loss": None} | GUESSED


def _machine(device: str) -> dict[str, Any]:
    import torch

    name = torch.cuda.get_device_name(device) if device.startswith("cuda") else "CPU"
    return {"machine": name, "torch": torch.__version__}


# ---- which there are -----------------------------------------------------------------------------------------------------------
Tuned = Mapping[tuple[str, str], tuple[float, int]]
"""Learning rate and iterations a round, for each data set and algorithm."""

DATASETS = ("mnist", "cifar10")
DEVICES = (5, 20, 100)
SPLITS = (4, 10, 15)
SEEDS = (0, 1, 2)


def with_seeds(job: Job, seeds: Sequence[int] = SEEDS) -> list[Job]:
    """Three seeds for 20 devices, one elsewhere."""
    return [
        replace(job, seed=seed)
        for seed in (seeds if job.devices == SEARCHED_DEVICES else seeds[:1])
    ]


def with_done_seeds(job: Job, done: Done) -> list[Job]:
    """The first seed, and the next ones as far as they are done: so the n-th of any two curves are of the same seed."""
    further = [replace(job, seed=seed) for seed in SEEDS[1:]]
    return [replace(job, seed=SEEDS[0]), *takewhile(lambda each: each in done, further)]


TUNED: Tuned = {
    ("mnist", "sfl"): (0.002, 1),
    ("mnist", "fedavg"): (0.001, 100),
    ("cifar10", "sfl"): (0.002, 1),
    ("cifar10", "fedavg"): (0.001, 100),
}
"""What the search found for 20 devices: `python benchmarks/accuracy.py search`, benchmarks/results/accuracy/search.jsonl."""


def job_of(
    tuned: Tuned, dataset: str, algorithm: str, *, devices: int = SEARCHED_DEVICES, **others: Any
) -> Job:
    """A job with the learning rate and iterations that were found for it.

    More iterations than one are as many passes over a device's samples as in the search, however many samples it has.
    """
    rate, iterations = tuned[dataset, algorithm]
    if iterations > 1:
        iterations = max(1, round(iterations * SEARCHED_DEVICES / devices))
    return Job(dataset, algorithm, rate, iterations, EPOCHS[dataset], devices=devices, **others)


def searched(dataset: str, algorithm: str) -> list[Job]:
    """The small search for learning rate and iterations a round: as many tries for each algorithm, with a seed of their own."""
    grid = [
        (rate, iterations) for iterations in (1, 10, 100) for rate in (0.001, 0.002, 0.005, 0.01)
    ]
    return [
        Job(dataset, algorithm, rate, iterations, SEARCHED_EPOCHS, seed=SEARCHED_SEED)
        for rate, iterations in grid
    ]


def best(dataset: str, algorithm: str, done: Done) -> tuple[float, int]:
    """What the search found: the highest accuracy by the virtual time at which the first of the tries has seen all samples."""
    jobs = searched(dataset, algorithm)
    missing = [job for job in jobs if job not in done]
    if missing:
        left = f"{len(missing)} of its {len(jobs)} trainings are missing in {str(done.file)!r}"
        raise FileProblem(
            f"the search for {algorithm} on {dataset} must be complete, but {left}; go on with it first"
        )
    ended = min(done[job][-1].virtual_time_s for job in jobs if done[job][-1].virtual_time_s > 0)
    reached = {job: Trials((done[job],)).accuracy_by(ended, GUESSING)[0] for job in jobs}
    chosen = max(jobs, key=lambda job: reached[job])
    return chosen.learning_rate, chosen.iterations_per_round


def of_figures(dataset: str, tuned: Tuned) -> list[Job]:
    """All that the figures show of a data set, what is needed most first."""
    several = [
        *of_figure_9(dataset, tuned),
        *of_figure_10(dataset, tuned),
        *of_figure_14(dataset, tuned),
    ]
    return sorted(dict.fromkeys(several), key=lambda job: job.seed)


def of_figure_9(dataset: str, tuned: Tuned) -> list[Job]:
    """SFL and FedAvg for several numbers of devices."""
    return [
        seeded
        for devices in DEVICES
        for algorithm in ("sfl", "fedavg")
        for seeded in with_seeds(job_of(tuned, dataset, algorithm, devices=devices))
    ]


def of_figure_10(dataset: str, tuned: Tuned) -> list[Job]:
    """SFL at several splits, with both partitions."""
    return [
        seeded
        for partition in PARTITIONS
        for split in SPLITS
        for seeded in with_seeds(job_of(tuned, dataset, "sfl", split=split, partition=partition))
    ]


def of_figure_14(dataset: str, tuned: Tuned) -> list[Job]:
    """Besides: SFL at another split and with fronts that are averaged, all layers averaged (SplitFed), and FedAvg; one seed.

    SplitFed V1 averages all layers after every round: it trains as FedAvg does with as many iterations.
    """
    kinds: list[dict[str, Any]] = [
        {"algorithm": "sfl", "split": 8},
        {"algorithm": "sfl", "split": 4, "average_fronts_every": FRONTS_EVERY},
        {"algorithm": "sfl", "split": 15, "average_fronts_every": FRONTS_EVERY},
        {"algorithm": "fedavg"},
    ]
    found = [
        job_of(tuned, dataset, **kind, partition=partition)
        for partition in PARTITIONS
        for kind in kinds
    ]
    everything_averaged = {(dataset, "fedavg"): tuned[dataset, "sfl"]}
    return found + [
        job_of(everything_averaged, dataset, "fedavg", partition=partition)
        for partition in PARTITIONS
    ]
