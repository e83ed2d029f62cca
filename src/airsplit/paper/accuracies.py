"""What the accuracy figures 9, 10 and 14 share: what is trained for them at each scale, and what is said of it.

At the scale "smoke" these are small trainings on the built-in digits, made when they are asked for; at "paper" they are those of
`jobs`, which are kept in a file.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from airsplit.core.arrays import Floats
from airsplit.models.profiling import profile_scenario
from airsplit.paper import jobs
from airsplit.paper.jobs import PARTITIONS, Done, Job
from airsplit.paper.sweeps import Progress, Scale
from airsplit.runs.provenance import VERSION
from airsplit.runs.record import RoundRecord
from airsplit.runs.seeds import Trials, estimate
from airsplit.scenario.scenario import Scenario
from airsplit.training.parallel import in_parallel
from airsplit.training.schedule import Schedule

SEEDS = 3
ROUNDS = 6
EVALUATED = 5
JOBS: int | None = None  # as many as there are cores
BASE = {"training.rounds": ROUNDS, "training.evaluate_devices": EVALUATED}
DEVICES = 20
"""Where they are not swept."""

_TRAINED: dict[str, tuple[RoundRecord, ...]] = {}
"""Runs of this process by their scenario: the same scenario gives the same run."""


@dataclass(frozen=True)
class Case:
    """What a curve shows: one way to train, on one data set; every device is cut at `split`."""

    dataset: str
    algorithm: str = "sfl"
    devices: int = DEVICES
    split: int = 4
    partition: str = "iid"
    average_fronts_every: int | None = None


@dataclass(frozen=True)
class Sweep:
    """What is varied at a scale.

    devices    numbers of them, from few to many
    splits     from shallow to deep
    limits     on the split, of figure 14
    targets    accuracies of each data set to which the time is of interest
    """

    datasets: tuple[str, ...]
    devices: tuple[int, ...]
    splits: tuple[int, ...]
    limits: tuple[int, ...]
    targets: Mapping[str, tuple[float, ...]]


class Study(ABC):
    """The trainings of a scale."""

    def __init__(self, sweep: Sweep) -> None:
        self.sweep = sweep

    @abstractmethod
    def scenario(self, case: Case, seed: int = 0) -> Scenario:
        """What is trained for a case."""

    @abstractmethod
    def trained(self, cases: Iterable[Case], progress: Progress) -> dict[Case, Trials]:
        """Each case with its seeds."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """What the numbers of all these figures depend on."""

    def _common_settings(self) -> dict[str, Any]:
        each = self.scenario(Case(self.sweep.datasets[0]))
        return {
            "airsplit_version": VERSION,
            "model": each.model.name,
            "arguments": each.model.arguments,
            "models": {each.model.name: profile_scenario(each).fingerprint},
            "datasets": list(self.sweep.datasets),
            "batch_size": each.training.batch_size,
            "momentum": each.training.momentum,
            "non_iid": "each device's classes drawn from Dir(0.3), equal sizes",
            "fleet": {
                key: value for key, value in each.fleet.settings().items() if key != "devices"
            },
            "statistic": "mean over seeds with Student's 95 % interval; test accuracy is the mean over the evaluated devices' models",
        }


SMOKE = Sweep(("digits",), (5, 20), (4, 15), (4, 8, 15), {"digits": (0.8, 0.9)})


class Smoke(Study):
    """Small trainings on the digits, with three seeds each."""

    def scenario(self, case: Case, seed: int = 0) -> Scenario:
        changes: dict[str, Any] = {
            "fleet.devices": case.devices,
            "plan.method": "fixed",
            "plan.split": case.split,
            "plan.max_split": None,
            "training.algorithm": case.algorithm,
            "training.seed": seed,
        }
        if case.average_fronts_every is not None:
            changes["training.average_fronts_every"] = case.average_fronts_every
        return Scenario.load("demo").replace(**BASE | changes | PARTITIONS[case.partition])

    def trained(self, cases: Iterable[Case], progress: Progress) -> dict[Case, Trials]:
        chosen = list(dict.fromkeys(cases))
        several = {case: [self.scenario(case, seed) for seed in range(SEEDS)] for case in chosen}
        missing = {
            each.to_toml(): each
            for seeded in several.values()
            for each in seeded
            if each.to_toml() not in _TRAINED
        }
        done: dict[int, tuple[RoundRecord, ...]] = {}
        told = -1
        for done in in_parallel(_train, list(missing.values()), jobs=JOBS) if missing else ():
            if len(done) != told:
                told = len(done)
                progress(f"{told} of {len(missing)} trainings, {os.cpu_count()} at a time")
        _TRAINED.update({text: done[number] for number, text in enumerate(missing)})
        return {
            case: Trials(tuple(_TRAINED[each.to_toml()] for each in seeded))
            for case, seeded in several.items()
        }

    def settings(self) -> dict[str, Any]:
        training = self.scenario(Case("digits")).training
        kept = ("iterations_per_round", "learning_rate", "evaluate_devices")
        return self._common_settings() | {key: getattr(training, key) for key in ("rounds", *kept)}


class Paper(Study):
    """The trainings of `jobs`, with as many seeds each as are done.

    What is missing in their file is trained, on a GPU where there is one; but of seeds only the first.
    """

    def __init__(self, scale: Scale) -> None:
        datasets = tuple(dict.fromkeys(dataset for dataset, _ in jobs.TUNED))
        super().__init__(
            Sweep(
                datasets,
                jobs.DEVICES,
                jobs.SPLITS,
                (4, 8, 15),
                {"mnist": (0.97, 0.985), "cifar10": (0.6, 0.7)},
            )
        )
        self._done, self._data = Done(scale.trainings or Path("runs.jsonl")), scale.data

    def _job(self, case: Case) -> Job:
        given: dict[str, Any] = {"devices": case.devices, "partition": case.partition}
        if (
            case.algorithm == "splitfed-v1"
        ):  # averages all layers after a round, so it trains as FedAvg does with its iterations
            tuned = {(case.dataset, "fedavg"): jobs.TUNED[case.dataset, "sfl"]}
            return jobs.job_of(tuned, case.dataset, "fedavg", **given)
        split: dict[str, Any] = (
            {}
            if case.algorithm == "fedavg"
            else {"split": case.split, "average_fronts_every": case.average_fronts_every}
        )
        return jobs.job_of(jobs.TUNED, case.dataset, case.algorithm, **given, **split)

    def scenario(self, case: Case, seed: int = 0) -> Scenario:
        changed = {
            "plan.split": case.split,
            "training.algorithm": case.algorithm,
            "training.seed": seed,
        }
        return self._job(case).scenario().replace(**changed)

    def trained(self, cases: Iterable[Case], progress: Progress) -> dict[Case, Trials]:
        wanted = {case: jobs.with_done_seeds(self._job(case), self._done) for case in cases}
        missing = [job for several in wanted.values() for job in several if job not in self._done]
        if missing:
            import torch

            device = "cuda" if torch.cuda.is_available() else "cpu"
            progress(
                f"{len(missing)} trainings on {device} are missing; each that is done is kept in {self._done.file}"
            )
            for line in jobs.trained(missing, self._done, device=device, data=self._data):
                progress(line)
        return {case: self._done.trials(several) for case, several in wanted.items()}

    def settings(self) -> dict[str, Any]:
        tuned = [
            {"dataset": d, "algorithm": a, "learning_rate": rate, "iterations": e}
            for (d, a), (rate, e) in jobs.TUNED.items()
        ]
        epochs = {dataset: jobs.EPOCHS[dataset] for dataset in self.sweep.datasets}
        training = self.scenario(Case(self.sweep.datasets[0])).training
        tested = {
            "evaluate_devices": training.evaluate_devices,
            "evaluate_samples": training.evaluate_samples,
        }
        return (
            self._common_settings()
            | {"epochs": epochs, "tuned": tuned, "precision": "bf16"}
            | tested
        )


def study_of(scale: Scale) -> Study:
    """What is trained at a scale."""
    return Paper(scale) if scale.name == "paper" else Smoke(SMOKE)


def _train(seeded: Scenario) -> tuple[RoundRecord, ...]:
    from airsplit.training.coordinator import Training  # torch: only where something is trained

    return tuple(Training(seeded).rounds())


def curve(trials: Trials) -> dict[str, Any]:
    """Accuracy over rounds and time, of each seed."""
    rounds, times, accuracies = trials.curve()
    return {
        "seeds": len(trials.runs),
        "rounds": rounds,
        "virtual_time_s": times,
        "test_accuracy": accuracies,
    }


def difference(one: Sequence[float], other: Sequence[float]) -> dict[str, float | int | None]:
    """How much more one is than the other, seed by seed as far as both have them.

    Gives the mean, half its 95 % interval, the least and the number of seeds.

    >>> difference([0.75, 0.5, 0.75], [0.5, 0.25])
    {'mean': 0.25, 'half_width': 0.0, 'least': 0.25, 'seeds': 2}
    """
    pairs = [a - b for a, b in zip(one, other, strict=False)]
    found = estimate(pairs)
    assert found is not None  # noqa: S101 - there is a seed
    return {
        "mean": found.mean,
        "half_width": found.half_width,
        "least": min(pairs),
        "seeds": len(pairs),
    }


def round_ends(scenario: Scenario) -> Floats:
    """The virtual time at which each round of a scenario ends, without training it."""
    schedule = Schedule(scenario, profile_scenario(scenario))
    ends = np.empty(scenario.training.rounds)
    for number in range(1, len(ends) + 1):
        schedule.replan_if_due(number)
        schedule.virtual_time_s += schedule.costs(
            number, schedule.turnout(number).iterations
        ).latency_s
        ends[number - 1] = schedule.virtual_time_s
    return ends
