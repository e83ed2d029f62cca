"""The engine: rounds as a generator.  Printing, saving and stopping belong to the caller."""

from __future__ import annotations

import json
import math
import os
import warnings
import zlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from airsplit.core.arrays import Floats, Ints
from airsplit.core.errors import Diverged, FileProblem
from airsplit.core.formatting import format_percent
from airsplit.data.datasets import Dataset
from airsplit.data.partition import count_labels
from airsplit.runs.metric import get_metric
from airsplit.runs.record import RoundRecord, round_digits
from airsplit.scenario.scenario import Scenario
from airsplit.training import checkpoint
from airsplit.training.accelerator import accelerator_of
from airsplit.training.algorithms import algorithm_of
from airsplit.training.checkpoint import Progress
from airsplit.training.evaluation import Evaluation, scores, summary
from airsplit.training.local_steps import Bools, Crew, Task
from airsplit.training.memory import Halving
from airsplit.training.participation import evaluated_devices, evaluated_samples, is_evaluated
from airsplit.training.ranks import ALONE, Ranks, as_bytes
from airsplit.training.replica import kind_and_name, state_names
from airsplit.training.schedule import Agreed, Schedule
from airsplit.training.seeding import seeded
from airsplit.training.setup import (
    dataset_of,
    inputs_to,
    parts_of,
    replica_of,
    require_labels,
    require_metric,
)
from airsplit.training.state import State
from airsplit.training.step import are_finite, is_finite
from airsplit.training.virtual_time import RoundCosts


class Training:
    """A run: everything is loaded, planned and checked when it is made; `rounds` trains.

    data   the folder with data sets; None: the usual one
    ranks  the processes that train together; each makes its own Training, and gets the same records
    tell   is told how far a round is, after every step: whoever shows that, shows it now and then
    """

    def __init__(
        self,
        scenario: Scenario,
        *,
        data: str | os.PathLike[str] | None = None,
        ranks: Ranks = ALONE,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.settings = settings = scenario.training
        self._tell = tell
        with ranks.together():
            self.accelerator = accelerator_of(settings, ranks.local)
        self.ranks = ranks = ranks.with_gpus(self.accelerator.device)
        with ranks.together():
            self.fleet = scenario.make_fleet()  # before anything slow
            self.replica, self.profile = replica_of(scenario, self.accelerator.device)
            self.schedule = Schedule(scenario, self.profile, self.fleet)
            self.scenario, self.clock, self.plan = (
                self.schedule.scenario,
                self.schedule.clock,
                self.schedule.plan,
            )
            self.algorithm = algorithm_of(settings.algorithm)
            self.algorithm.require_fit(ranks.size)
            self.round = 0
            dataset = dataset_of(settings, inputs_to(scenario, self.replica.model), data)
            parts = parts_of(settings, dataset, len(self.fleet))
            self.sample_counts = np.array([len(part) for part in parts])
            self.device_names = [self.fleet.device_name(k) for k in range(len(self.fleet))]
            compression = (
                "none" if settings.algorithm == "fedavg" else scenario.network.compression
            )  # there nothing is cut
            self._tested_at_once = Halving("test samples")
            self._test, self._classes = dataset.test.to(self.accelerator.device), dataset.classes
            self._mixes = (
                None
                if dataset.classes is None
                else _mixes(dataset.train.labels.numpy(), parts, dataset.classes)
            )
            samples = dataset.train.to(self.accelerator.device)
            self._crew = Crew(
                self.replica,
                samples,
                parts,
                settings,
                self.device_names,
                compression,
                self.accelerator,
                ranks,
            )
            layouts = [
                require_labels(self.replica, each, settings.dataset)
                for each in (samples, self._test)
            ]
            if layouts[0] is not None:
                warnings.warn(layouts[0], stacklevel=2)
            require_metric(self.replica, self._test, settings.batch_size)
            about_data = "" if ranks.size == 1 else _checksum(dataset, parts)
        ranks.require_same("the scenario", self.scenario.to_toml() if ranks.size > 1 else "")
        ranks.require_same("what training.dataset gives", about_data)
        self._keep_to_first_plan()
        ranks.spread([*self.replica.tensors.values(), *self.replica.fixed.values()])
        self.replica.keep_constants()
        self.state = State.begun(
            self.replica, self.algorithm.boundary(self.splits), ranks.share(len(self.fleet))
        )

    # ---- the schedule's ------------------------------------------------------------------------------------------------------
    @property
    def virtual_time_s(self) -> float:
        return self.schedule.virtual_time_s

    @property
    def splits(self) -> Ints:
        """Where each device is cut now."""
        return self.schedule.agreed.splits

    @splits.setter
    def splits(self, splits: Ints) -> None:
        self.schedule.agreed = replace(self.schedule.agreed, splits=splits)

    @property
    def shares(self) -> Floats:
        """What each device has of the band now."""
        return self.schedule.agreed.shares

    def _replan_if_due(self, number: int) -> bool:
        with self.ranks.together():
            made = self.schedule.replan_if_due(number)
        if made is None:
            return False
        self._keep_to_first_plan()
        boundary = self.algorithm.boundary(self.splits)
        if boundary != self.state.boundary:
            self.state.move(
                self.replica,
                boundary,
                self._weights(np.ones(len(self.fleet), dtype=bool)).tolist(),
                self.ranks,
            )
        return True

    def _keep_to_first_plan(self) -> None:
        """Do as the first process planned: another machine may round otherwise, and so choose another of two splits that are as good."""
        now = self.schedule.agreed
        text = self.ranks.told(
            json.dumps([now.splits.tolist(), now.shares.tolist()]) if self.ranks.is_first else ""
        )
        if not self.ranks.is_first:
            splits, shares = map(np.array, json.loads(text))
            self.schedule.agreed = Agreed(splits, shares, now.round, now.time_s)

    # ---- rounds --------------------------------------------------------------------------------------------------------------
    def rounds(self) -> Iterator[RoundRecord]:
        """Train the rounds that are left.  Between two records the state is whole."""
        while self.round < self.settings.rounds:
            yield self._advance(self.round + 1)

    def _advance(self, number: int) -> RoundRecord:
        planned = self._replan_if_due(number)
        task = self._task(number)
        self._crew.steps, self._crew.on_steps = 0, self._tell_steps(task)
        loss = self.algorithm.round(self._crew, self.state, task)
        with self.ranks.together():
            self.replica.require_constants()
            self._require_finite(number)
            costs = self.schedule.costs(number, task.iterations)
        evaluated = self._evaluate(number)
        self.round = number
        self.schedule.virtual_time_s += costs.latency_s
        return RoundRecord(
            round=number,
            virtual_time_s=self.virtual_time_s,
            latency_s=costs.latency_s,
            train_loss=loss,
            participants=tuple(task.participants),
            dropped=tuple(task.dropped),
            splits=tuple(self.splits.tolist()) if planned else None,
            shares=tuple(self.shares.tolist()) if planned else None,
            **evaluated,
            **_columns(costs),
        )

    def _task(self, number: int) -> Task:
        E, turnout = self.settings.iterations_per_round, self.schedule.turnout(number)
        return Task(
            number,
            self.splits,
            turnout.asked,
            turnout.iterations,
            self._weights(turnout.iterations == E),
            E,
        )

    def _tell_steps(self, task: Task) -> Callable[[int], None]:
        """Return a function that is given the steps taken in this process, and tells how far the round is."""
        steps = sum(k in self.state.held for k in task.finishing) * task.iterations_per_round

        def tell(done: int) -> None:
            trained = min(done / max(steps, 1), 1.0)  # devices that drop out may take steps, too
            self._tell(
                f"round {task.number} of {self.settings.rounds}: {format_percent(trained, 0)} trained"
            )

        return tell

    def _weights(self, finishing: Bools) -> Floats:
        """Weights in the average: the same for all that finish, or by their samples."""
        weights = np.where(
            finishing, 1.0 if self.settings.weighting == "uniform" else self.sample_counts, 0.0
        )
        total = weights.sum()
        return weights / total if total else weights

    def _require_finite(self, number: int) -> None:
        """Raise where a round has left a number that is not finite: its checkpoint would be of no use."""
        if are_finite((*self.state.common.values(), *self.state.personal.values())):
            return
        stuck = f"training stopped after round {number}: {{}} not finite, because a gradient was not; {self._way_out()}"
        for name, tensor in (*self.state.common.items(), *self.state.personal.items()):
            if not is_finite(tensor):
                _, layer = kind_and_name(name)
                if name in self.state.common:
                    raise Diverged(stuck.format(f"{layer}, which is common to all devices, is"))
                bad = next(
                    k for k, own in zip(self.state.held, tensor, strict=True) if not is_finite(own)
                )
                raise Diverged(stuck.format(f"{layer} of device {self.device_names[bad]} is"))

    def _way_out(self) -> str:
        return f"lower training.learning_rate, now {self.settings.learning_rate:g}"

    # ---- evaluation ------------------------------------------------------------------------------------------------------------
    def _evaluate(self, number: int) -> dict[str, Any]:
        """The fields of a record that say how good the models are; none where that is not due."""
        if not is_evaluated(self.settings, number):
            return {}
        devices = evaluated_devices(self.settings, len(self.fleet), number)
        rows = evaluated_samples(self.settings, len(self._test), number)
        test = self._test if len(rows) == len(self._test) else self._test.select(rows)

        def tell(done: float) -> None:
            self._tell(
                f"round {number} of {self.settings.rounds}: trained, {format_percent(done, 0)} tested"
            )

        chance = partial(seeded, self.settings.seed, "evaluation", number)
        how = Evaluation(
            self.accelerator,
            self.ranks,
            tell,
            chance,
            f"the evaluation of round {number}",
            self._tested_at_once,
        )
        found = scores(self.replica, self.state, devices, test, self._classes, how)
        bad = next(
            (k for k, score in zip(devices, found, strict=True) if not math.isfinite(score.loss)),
            None,
        )
        with self.ranks.together():
            if bad is not None:
                whose = f"device {self.device_names[bad]}"
                raise Diverged(
                    f"training stopped after round {number}: the test loss of {whose} is not finite; {self._way_out()}"
                )
        fields = {"test_loss": float(np.mean([score.loss for score in found]))}
        fields |= summary("test_accuracy", [score.accuracy for score in found])
        fields |= summary(
            "test_metric", [score.metric for score in found], get_metric(self.settings).worst
        )
        if self._mixes is not None:
            fields |= summary(
                "own_accuracy",
                [
                    score.accuracy_on(self._mixes[k])
                    for k, score in zip(devices, found, strict=True)
                ],
            )
        return fields

    # ---- stopping and going on -------------------------------------------------------------------------------------------------
    def save(self, folder: Path | None) -> None:
        """Replace the checkpoint in a folder, which only the first of several processes needs to have."""
        whole = {
            name: self.ranks.gathered(stacked, len(self.fleet))
            for name, stacked in self.state.personal.items()
        }
        with self.ranks.together():
            if self.ranks.is_first and folder is not None:
                personal = {name: stacked for name, stacked in whole.items() if stacked is not None}
                whole_state = replace(self.state, personal=personal)
                checkpoint.save(
                    folder,
                    whole_state,
                    self.replica,
                    self._progress(),
                    self.settings.checkpoints_kept,
                )

    def _progress(self) -> Progress:
        return Progress(
            round=self.round,
            virtual_time_s=self.virtual_time_s,
            boundary=self.state.boundary,
            splits=self.splits.tolist(),
            shares=self.shares.tolist(),
            planned_round=self.schedule.agreed.round,
            planned_time_s=self.schedule.agreed.time_s,
            fingerprint=self.profile.fingerprint,
            names=state_names(self.replica.model),
        )

    def restore(self, folder: Path | None) -> bool:
        """Go on from the checkpoint in a folder, which only the first of several processes needs to have; False where there is none."""
        first, found = folder if self.ranks.is_first else None, None
        with self.ranks.together():
            found = checkpoint.read_checkpoint(first) if first is not None else None
            if found is not None and len(found.progress.splits) != len(self.fleet):
                devices = len(found.progress.splits)
                raise FileProblem(
                    f"checkpoint {str(folder)!r} must be of {len(self.fleet)} devices, got one of {devices}"
                )
        text = self.ranks.told(json.dumps(asdict(found.progress)) if found is not None else "")
        if not text:
            return False
        progress = Progress(**json.loads(text))
        with self.ranks.together():
            whole = None
            if first is not None and found is not None:
                whole = checkpoint.restore(first, found, self.replica, self.profile.fingerprint)
        self.ranks.spread(list(self.replica.fixed.values()))
        self.replica.keep_constants()
        self.state = State.dealt(
            whole, self.replica, progress.boundary, len(self.fleet), self.ranks
        )
        self.round, self.schedule.virtual_time_s = progress.round, progress.virtual_time_s
        agreed = Agreed(
            np.array(progress.splits),
            np.array(progress.shares),
            progress.planned_round,
            progress.planned_time_s,
        )
        self.schedule.agreed = agreed
        return True


def _checksum(dataset: Dataset, parts: list[Ints]) -> str:
    """A number that is another where data, or who holds what of it, are others."""
    found = 0
    for samples in (dataset.train, dataset.test):
        for tensor in (*samples.inputs, samples.labels):
            found = zlib.crc32(as_bytes(tensor.contiguous()).numpy().data, found)
    for part in parts:
        found = zlib.crc32(np.ascontiguousarray(part).data, found)
    return str(found)


def _mixes(labels: Any, parts: list[Ints], classes: int) -> Floats:
    """The share of each class in what each device holds, K × classes."""
    counts = count_labels(labels, parts, classes).astype(np.float64)
    shares: Floats = counts / counts.sum(axis=1, keepdims=True)
    return shares


def _columns(costs: RoundCosts) -> dict[str, Any]:
    """What each device took, in few digits: there are many of them."""
    times = ("compute_s", "transmit_s", "server_s", "idle_s", "macs", "energy_j")
    few = {name: tuple(map(round_digits, getattr(costs, name).tolist())) for name in times}
    return few | {
        name: tuple(getattr(costs, name).tolist()) for name in ("sent_bytes", "received_bytes")
    }
