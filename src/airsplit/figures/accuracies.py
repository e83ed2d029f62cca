"""What the accuracy figures 9, 10 and 14 share: small trainings with several seeds, each run once however many figures ask for it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from airsplit import __version__
from airsplit.figures.sweeps import Progress
from airsplit.learn.parallel import in_parallel
from airsplit.models.loading import profile_for
from airsplit.results import RoundRecord
from airsplit.scenario import Scenario
from airsplit.trials import Trials, estimate

SEEDS = 3
ROUNDS = 6
EVALUATED = 5
JOBS: int | None = None  # as many as there are cores
NON_IID = {"training.partition": "dirichlet", "training.alpha": 0.3}
PARTITIONS: dict[str, dict[str, Any]] = {"iid": {}, "non-iid": NON_IID}
PARTITION_TITLES = {"iid": "IID", "non-iid": "non-IID"}
BASE = {"training.rounds": ROUNDS, "training.evaluate_devices": EVALUATED}

_TRAINED: dict[str, tuple[RoundRecord, ...]] = {}
"""Runs of this process by their scenario: the same scenario gives the same run."""


def scenario(**changes: Any) -> Scenario:
    """The preset "demo" with fewer rounds and these changes."""
    return Scenario.load("demo").replace(**BASE | changes)


def fixed(split: int) -> dict[str, Any]:
    """Every device cut at the same split, with optimal shares."""
    return {"plan.method": "fixed", "plan.split": split, "plan.max_split": None}


def trained(scenarios: Sequence[Scenario], progress: Progress) -> list[Trials]:
    """Each scenario with its seeds, as many at a time as there are cores."""
    wanted = {seeded.to_toml(): seeded for each in scenarios for seeded in _with_seeds(each)}
    missing = {text: seeded for text, seeded in wanted.items() if text not in _TRAINED}
    done: dict[int, tuple[RoundRecord, ...]] = {}
    told = -1
    for done in in_parallel(_train, list(missing.values()), jobs=JOBS) if missing else ():
        if len(done) != told:
            told = len(done)
            progress(f"{told} of {len(missing)} trainings, {os.cpu_count()} at a time")
    _TRAINED.update({text: done[number] for number, text in enumerate(missing)})
    return [Trials(tuple(_TRAINED[seeded.to_toml()] for seeded in _with_seeds(each))) for each in scenarios]


def with_each_partition(splits: Sequence[int], devices: int, progress: Progress) -> dict[tuple[str, int], Trials]:
    """SFL with every device cut at each of these splits, with each partition."""
    keys = [(part, split) for part in PARTITIONS for split in splits]
    scenarios = [scenario(**fixed(split), **PARTITIONS[part], **{"fleet.devices": devices}) for part, split in keys]
    return dict(zip(keys, trained(scenarios, progress), strict=True))


def _with_seeds(each: Scenario) -> list[Scenario]:
    return [each.replace(**{"training.seed": seed}) for seed in range(SEEDS)]


def _train(seeded: Scenario) -> tuple[RoundRecord, ...]:
    from airsplit.learn.engine import Training  # torch: only where something is trained

    return tuple(Training(seeded).rounds())


def curve(trials: Trials) -> dict[str, Any]:
    """Accuracy over rounds and time, of each seed."""
    rounds, times, accuracies = trials.curve()
    return {"rounds": rounds, "virtual_time_s": times, "test_accuracy": accuracies}


def difference(one: Sequence[float], other: Sequence[float]) -> dict[str, float | None]:
    """How much more one is than the other, seed by seed: the mean and half its 95 % interval.

    >>> difference([0.9, 0.8], [0.7, 0.6])["mean"].__round__(6)
    0.2
    """
    found = estimate([a - b for a, b in zip(one, other, strict=True)])
    assert found is not None  # noqa: S101 - there is a seed
    return {"mean": found.mean, "half_width": found.half_width}


def training_settings() -> dict[str, Any]:
    """What the numbers of all these figures depend on."""
    each = scenario()
    model, training = each.model, each.training
    kept = ("dataset", "rounds", "iterations_per_round", "batch_size", "learning_rate", "momentum", "evaluate_devices")
    return {
        "airsplit_version": __version__,
        "model": model.name,
        "arguments": model.arguments,
        "models": {model.name: profile_for(each).fingerprint},
        **{key: getattr(training, key) for key in kept},
        "seeds": list(range(SEEDS)),
        "non_iid": "each device's classes drawn from Dir(0.3), equal sizes",
        "fleet": {key: value for key, value in each.fleet.settings().items() if key != "devices"},
        "statistic": "mean over seeds with Student's 95 % interval; test accuracy is the mean over the evaluated devices' models",
    }
