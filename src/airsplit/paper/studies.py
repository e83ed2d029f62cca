"""Studies: the trainings behind figures 9, 10 and 14, at each scale.

At the scale "smoke", small trainings on the built-in digits, run when they are needed. At "paper",
those of `jobs`, which are kept in a file.
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

# Trainings of the scale "smoke". Three seeds are the fewest for a useful interval.
SEEDS = 3
BASE = {"training.rounds": 6, "training.evaluate_devices": 5}
# Processes; None: as many as there are cores.
JOBS: int | None = None
# Unless the number of devices is swept.
DEVICES = 20

# Runs of this process by scenario as TOML: figures 9, 10 and 14 have trainings in common.
_RUNS: dict[str, tuple[RoundRecord, ...]] = {}


@dataclass(frozen=True)
class Case:
    """One way to train on one data set, with all devices cut at `split`: a curve of a figure."""

    dataset: str
    algorithm: str = "sfl"
    devices: int = DEVICES
    split: int = 4
    partition: str = "iid"
    average_fronts_every: int | None = None


@dataclass(frozen=True)
class Sweep:
    """The values that are varied at a scale.

    Attributes:
        datasets: Names of data sets.
        devices: Numbers of devices, ascending.
        splits: Splits, from shallow to deep.
        limits: Limits on the split, for figure 14.
        targets: Accuracies of each data set that trainings are timed to.
    """

    datasets: tuple[str, ...]
    devices: tuple[int, ...]
    splits: tuple[int, ...]
    limits: tuple[int, ...]
    targets: Mapping[str, tuple[float, ...]]


class Study(ABC):
    """All trainings of a scale."""

    def __init__(self, sweep: Sweep) -> None:
        self.sweep = sweep

    @abstractmethod
    def scenario(self, case: Case, seed: int = 0) -> Scenario:
        """Return the scenario of a case."""

    @abstractmethod
    def train(self, cases: Iterable[Case], progress: Progress) -> dict[Case, Trials]:
        """Train the cases, each with its seeds."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """Return everything that the numbers of these figures depend on."""

    def _common_settings(self) -> dict[str, Any]:
        # Any case will do: all of them have these settings in common.
        scenario = self.scenario(Case(self.sweep.datasets[0]))
        fleet = scenario.fleet.settings()
        # Figures that sweep the number of devices list it themselves.
        del fleet["devices"]
        return {
            "airsplit_version": VERSION,
            "model": scenario.model.name,
            "arguments": scenario.model.arguments,
            "models": {scenario.model.name: profile_scenario(scenario).fingerprint},
            "datasets": list(self.sweep.datasets),
            "batch_size": scenario.training.batch_size,
            "momentum": scenario.training.momentum,
            "non_iid": "each device's classes drawn from Dir(0.3), equal sizes",
            "fleet": fleet,
            "statistic": (
                "mean over seeds with Student's 95 % interval; test accuracy is the mean over the "
                "evaluated devices' models"
            ),
        }


SMOKE = Sweep(("digits",), (5, 20), (4, 15), (4, 8, 15), {"digits": (0.8, 0.9)})


class SmokeStudy(Study):
    """Small trainings on digits, with three seeds per case."""

    def scenario(self, case: Case, seed: int = 0) -> Scenario:
        changes: dict[str, Any] = {
            "fleet.devices": case.devices,
            "plan.method": "fixed",
            "plan.split": case.split,
            "plan.max_split": None,
            "training.algorithm": case.algorithm,
            "training.average_fronts_every": case.average_fronts_every,
            "training.seed": seed,
        }
        return Scenario.load("demo").replace(**BASE | changes | PARTITIONS[case.partition])

    def train(self, cases: Iterable[Case], progress: Progress) -> dict[Case, Trials]:
        scenarios = {
            case: [self.scenario(case, seed) for seed in range(SEEDS)]
            for case in dict.fromkeys(cases)
        }
        missing = {
            scenario.to_toml(): scenario
            for of_case in scenarios.values()
            for scenario in of_case
            if scenario.to_toml() not in _RUNS
        }
        if missing:
            runs: dict[int, tuple[RoundRecord, ...]] = {}
            reported = -1
            for runs in in_parallel(_train, list(missing.values()), jobs=JOBS):
                # in_parallel also yields when nothing has ended, about once a second.
                if len(runs) != reported:
                    reported = len(runs)
                    progress(f"{reported} of {len(missing)} trainings, {os.cpu_count()} at a time")
            _RUNS.update({text: runs[number] for number, text in enumerate(missing)})
        return {
            case: Trials(tuple(_RUNS[scenario.to_toml()] for scenario in of_case))
            for case, of_case in scenarios.items()
        }

    def settings(self) -> dict[str, Any]:
        training = self.scenario(Case("digits")).training
        keys = ("rounds", "iterations_per_round", "learning_rate", "evaluate_devices")
        return self._common_settings() | {key: getattr(training, key) for key in keys}


class PaperStudy(Study):
    """The trainings of `jobs`, each with the seeds that are done.

    Trainings missing in their file are run, on a GPU if there is one, but only with the first seed.
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
        self._done = Done(scale.trainings or Path("runs.jsonl"))
        self._data = scale.data

    def _make_job(self, case: Case) -> Job:
        options: dict[str, Any] = {"devices": case.devices, "partition": case.partition}
        if case.algorithm == "splitfed-v1":
            # It averages all layers after each round, so it trains as FedAvg does with the
            # iterations and learning rate of SFL.
            tuned = {(case.dataset, "fedavg"): jobs.TUNED[case.dataset, "sfl"]}
            return jobs.make_job(tuned, case.dataset, "fedavg", **options)
        if case.algorithm != "fedavg":
            options["split"] = case.split
            options["average_fronts_every"] = case.average_fronts_every
        return jobs.make_job(jobs.TUNED, case.dataset, case.algorithm, **options)

    def scenario(self, case: Case, seed: int = 0) -> Scenario:
        changes = {
            "plan.split": case.split,
            "training.algorithm": case.algorithm,
            "training.seed": seed,
        }
        return self._make_job(case).scenario().replace(**changes)

    def train(self, cases: Iterable[Case], progress: Progress) -> dict[Case, Trials]:
        by_case = {
            case: jobs.add_finished_seeds(self._make_job(case), self._done) for case in cases
        }
        missing = [job for of_case in by_case.values() for job in of_case if job not in self._done]
        if missing:
            # Drawing from kept trainings needs no torch.
            import torch

            device = "cuda" if torch.cuda.is_available() else "cpu"
            progress(
                f"{len(missing)} trainings on {device} are missing; each one is kept in "
                f"{self._done.file} when it ends"
            )
            for line in jobs.train_missing(missing, self._done, device=device, data=self._data):
                progress(line)
        return {case: self._done.trials(of_case) for case, of_case in by_case.items()}

    def settings(self) -> dict[str, Any]:
        # A list of objects, since JSON has no pairs as keys.
        tuned = [
            {"dataset": d, "algorithm": a, "learning_rate": rate, "iterations": e}
            for (d, a), (rate, e) in jobs.TUNED.items()
        ]
        training = self.scenario(Case(self.sweep.datasets[0])).training
        return self._common_settings() | {
            "epochs": {dataset: jobs.EPOCHS[dataset] for dataset in self.sweep.datasets},
            "tuned": tuned,
            "precision": "bf16",
            "evaluate_devices": training.evaluate_devices,
            "evaluate_samples": training.evaluate_samples,
        }


def get_study(scale: Scale) -> Study:
    """Return the study of a scale."""
    if scale.name == "paper":
        return PaperStudy(scale)
    return SmokeStudy(SMOKE)


def _train(scenario: Scenario) -> tuple[RoundRecord, ...]:
    # Imports torch, which figures without training do not need.
    from airsplit.training.coordinator import Training

    return tuple(Training(scenario).rounds())


def curve(trials: Trials) -> dict[str, Any]:
    """Return each seed's accuracy over rounds and time."""
    rounds, times, accuracies = trials.curve()
    return {
        "seeds": len(trials.runs),
        "rounds": rounds,
        "virtual_time_s": times,
        "test_accuracy": accuracies,
    }


def difference(left: Sequence[float], right: Sequence[float]) -> dict[str, float | int | None]:
    """Return left minus right, seed by seed, as far as both have seeds.

    As mean, half its 95 % interval, minimum and number of seeds.

    >>> difference([0.75, 0.5, 0.75], [0.5, 0.25])
    {'mean': 0.25, 'half_width': 0.0, 'least': 0.25, 'seeds': 2}
    """
    # Paired, because runs with one seed share their random draws. Extra seeds of one side have no
    # partner.
    differences = [a - b for a, b in zip(left, right, strict=False)]
    mean = estimate(differences)
    assert mean is not None  # noqa: S101 - there is at least one seed
    return {
        "mean": mean.mean,
        "half_width": mean.half_width,
        "least": min(differences),
        "seeds": len(differences),
    }


def find_round_ends(scenario: Scenario) -> Floats:
    """Return the virtual time at which each round of a scenario ends, without training it."""
    # The same schedule that charges the rounds of a simulation, so the clock is the same, too.
    schedule = Schedule(scenario, profile_scenario(scenario))
    ends = np.empty(scenario.training.rounds)
    for number in range(1, len(ends) + 1):
        schedule.replan_if_due(number)
        costs = schedule.costs(number, schedule.turnout(number).iterations)
        schedule.virtual_time_s += costs.latency_s
        ends[number - 1] = schedule.virtual_time_s
    return ends
