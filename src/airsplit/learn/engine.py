"""The engine: rounds as a generator.  Printing, saving and stopping belong to the caller."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from airsplit.errors import Diverged
from airsplit.fleet import Fleet
from airsplit.learn import checkpoint
from airsplit.learn.algorithms import ALGORITHMS
from airsplit.learn.checkpoint import Progress
from airsplit.learn.crew import Bools, Crew, Task
from airsplit.learn.evaluation import scores, summary
from airsplit.learn.participation import evaluated_devices, is_evaluated, participants
from airsplit.learn.partition import label_counts
from airsplit.learn.preparation import dataset_of, inputs_to, parts_of, replica_of
from airsplit.learn.replica import kind_and_name, state_names
from airsplit.learn.seeding import seeded
from airsplit.learn.sfl import averages_fronts
from airsplit.learn.state import State
from airsplit.learn.step import is_finite
from airsplit.learn.virtual_time import RoundCosts, Terms, draw_fluctuations, time_round
from airsplit.planning.methods import plan
from airsplit.planning.plans import Plan
from airsplit.randomness import generator
from airsplit.results import RoundRecord, few_digits
from airsplit.scenario import Scenario
from airsplit.units import Floats, Ints


class Training:
    """A run: everything is loaded, planned and checked when it is made; `rounds` trains.

    data   the folder with data sets; None: the usual one
    """

    def __init__(self, scenario: Scenario, *, data: str | os.PathLike[str] | None = None) -> None:
        self.settings = settings = scenario.training
        self.fleet, self.clock = scenario.make_fleet(), scenario.make_clock()
        self.replica, self.profile = replica_of(scenario)
        self.scenario = scenario.resolved(self.profile)
        self.algorithm = ALGORITHMS[settings.algorithm]
        self.round, self.virtual_time_s = 0, 0.0
        self.plan = self._plan(1)
        dataset = dataset_of(settings, inputs_to(scenario, self.replica.model), data)
        parts = parts_of(settings, dataset, len(self.fleet))
        self._samples = np.array([len(part) for part in parts])
        self.device_names = [self.fleet.device_name(k) for k in range(len(self.fleet))]
        compression = "none" if settings.algorithm == "fedavg" else scenario.network.compression  # there nothing is cut
        self._crew = Crew(self.replica, dataset.train, parts, settings, self.device_names, compression)
        self._test, self._classes = dataset.test, dataset.classes
        self._mixes = None if dataset.classes is None else _mixes(dataset.train.labels.numpy(), parts, dataset.classes)
        self.state = State.begun(self.replica, self.algorithm.boundary(self.splits), len(self.fleet))

    # ---- plan and channels ---------------------------------------------------------------------------------------------------
    def _plan(self, round_number: int) -> Plan:
        """Plan for the channels at the beginning of a round, and keep to it from there on."""
        self.planned_round, self.planned_time_s = round_number, self.virtual_time_s
        made = plan(self.profile, self._fleet_at(round_number, self.virtual_time_s), **self.scenario.plan_arguments())
        self.splits, self.shares = made.splits, made.shares
        return made

    def _fleet_at(self, round_number: int, time_s: float) -> Fleet:
        """The devices with their channels in a round: fixed, drawn anew, or replayed."""
        if self.fleet.trace is not None:
            return self.fleet.at(time_s)
        return self.fleet.redrawn(self.settings.seed, round_number) if self.scenario.fleet.redraw_fading else self.fleet

    def _replan_if_due(self, number: int) -> bool:
        every = self.settings.replan_every
        if every is None or number == 1 or (number - 1) % every:
            return False
        self._plan(number)
        boundary = self.algorithm.boundary(self.splits)
        if boundary != self.state.boundary:
            self.state.move(self.replica, boundary, self._weights(np.ones(len(self.fleet), dtype=bool)).tolist())
        return True

    # ---- rounds --------------------------------------------------------------------------------------------------------------
    def rounds(self) -> Iterator[RoundRecord]:
        """Train the rounds that are left.  Between two records the state is whole."""
        while self.round < self.settings.rounds:
            yield self._advance(self.round + 1)

    def _advance(self, number: int) -> RoundRecord:
        planned = self._replan_if_due(number)
        task = self._task(number)
        loss = self.algorithm.round(self._crew, self.state, task)
        self.replica.require_constants()
        self._require_finite(number)
        costs = self._costs(task)
        evaluated = self._evaluate(number)
        self.round, self.virtual_time_s = number, self.virtual_time_s + costs.latency_s
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
        E, K, seed = self.settings.iterations_per_round, len(self.fleet), self.settings.seed
        lost = generator(seed, "dropout", number).random(K) < self.settings.dropout_probability
        moment = generator(seed, "moment of dropout", number).integers(0, E, K)
        asked = np.zeros(K, dtype=bool)
        asked[participants(self.settings, number, K)] = True
        iterations = np.where(asked, np.where(lost, moment, E), 0)
        return Task(number, self.splits, asked, iterations, self._weights(iterations == E), E)

    def _weights(self, finishing: Bools) -> Floats:
        """Weights in the average: the same for all that finish, or by their samples."""
        weights = np.where(finishing, 1.0 if self.settings.weighting == "uniform" else self._samples, 0.0)
        total = weights.sum()
        return weights / total if total else weights

    def _costs(self, task: Task) -> RoundCosts:
        planned_for = self._fleet_at(self.planned_round, self.planned_time_s)
        bits, batch = self.scenario.element_bits, self.settings.batch_size
        fronts = averages_fronts(self.settings.average_fronts_every, task.number)
        charges = self.algorithm.charges(Terms(self.profile, planned_for, self.clock, self.splits, self.shares, batch, bits, fronts))
        draws = draw_fluctuations(self.settings.seed, task.number, task.iterations_per_round, len(self.fleet))
        return time_round(charges, self._fleet_at(task.number, self.virtual_time_s), self.clock, draws, task.iterations)

    def _require_finite(self, number: int) -> None:
        """Raise where a round has left a number that is not finite: its checkpoint would be of no use."""
        stuck = f"training stopped after round {number}: {{}} not finite, because a gradient was not; {self._way_out()}"
        for name, tensor in (*self.state.common.items(), *self.state.personal.items()):
            if not is_finite(tensor):
                _, layer = kind_and_name(name)
                if name in self.state.common:
                    raise Diverged(stuck.format(f"{layer}, which is common to all devices, is"))
                bad = next(k for k, own in enumerate(tensor) if not is_finite(own))
                raise Diverged(stuck.format(f"{layer} of device {self.device_names[bad]} is"))

    def _way_out(self) -> str:
        return f"lower training.learning_rate, now {self.settings.learning_rate:g}"

    # ---- evaluation ------------------------------------------------------------------------------------------------------------
    def _evaluate(self, number: int) -> dict[str, Any]:
        """The fields of a record that say how good the models are; none where that is not due."""
        if not is_evaluated(self.settings, number):
            return {}
        devices = evaluated_devices(self.settings, len(self.fleet))
        with seeded(self.settings.seed, "evaluation", number):
            found = scores(self.replica, self.state, devices, self._test, self._classes)
        bad = next((k for k, score in zip(devices, found, strict=True) if not math.isfinite(score.loss)), None)
        if bad is not None:
            rate = self._way_out()
            raise Diverged(
                f"training stopped after round {number}: the test loss of device {self.fleet.device_name(bad)} is not finite; {rate}"
            )
        fields = {"test_loss": float(np.mean([score.loss for score in found]))}
        if self._mixes is not None:
            fields |= summary("test_accuracy", [score.accuracy for score in found])
            fields |= summary("own_accuracy", [score.accuracy_on(self._mixes[k]) for k, score in zip(devices, found, strict=True)])
        return fields

    # ---- stopping and going on -------------------------------------------------------------------------------------------------
    def save(self, folder: Path) -> None:
        """Replace the checkpoint in a folder."""
        checkpoint.save(folder, self.state, self.replica, self._progress())

    def _progress(self) -> Progress:
        return Progress(
            round=self.round,
            virtual_time_s=self.virtual_time_s,
            boundary=self.state.boundary,
            splits=self.splits.tolist(),
            shares=self.shares.tolist(),
            planned_round=self.planned_round,
            planned_time_s=self.planned_time_s,
            fingerprint=self.profile.fingerprint,
            names=state_names(self.replica.model),
        )

    def restore(self, folder: Path) -> bool:
        """Go on from the checkpoint in a folder; False where there is none."""
        progress = checkpoint.progress_of(folder)
        if progress is None:
            return False
        self.state = checkpoint.restore(folder, self.replica, progress)
        self.round, self.virtual_time_s = progress.round, progress.virtual_time_s
        self.splits, self.shares = np.array(progress.splits), np.array(progress.shares)
        self.planned_round, self.planned_time_s = progress.planned_round, progress.planned_time_s
        return True


def _mixes(labels: Any, parts: list[Ints], classes: int) -> Floats:
    """The share of each class in what each device holds, K × classes."""
    counts = label_counts(labels, parts, classes).astype(np.float64)
    shares: Floats = counts / counts.sum(axis=1, keepdims=True)
    return shares


def _columns(costs: RoundCosts) -> dict[str, Any]:
    """What each device took, in few digits: there are many of them."""
    times = ("compute_s", "transmit_s", "server_s", "idle_s", "macs", "energy_j")
    few = {name: tuple(map(few_digits, getattr(costs, name).tolist())) for name in times}
    return few | {name: tuple(getattr(costs, name).tolist()) for name in ("sent_bytes", "received_bytes")}
