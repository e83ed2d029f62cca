"""Comparison: what came of several algorithms, each with several seeds."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from airsplit.core.errors import FileProblem
from airsplit.core.formatting import format_percent, format_quantity, format_seconds, pluralize
from airsplit.runs.folder import Divergence, RunFolder
from airsplit.runs.history import has_energy
from airsplit.runs.metric import Metric, get_metric
from airsplit.runs.seeds import Estimate, Trials, common_target, estimate
from airsplit.runs.wording import format_algorithm
from airsplit.scenario.scenario import Scenario


@dataclass(frozen=True)
class AlgorithmSummary:
    """What an algorithm came to, as means over the seeds whose training did not diverge; None if there is no such seed.

    accuracy, worst_accuracy, own_accuracy   after the last round; None where labels are not classes, too
    metric, worst_metric   the same of a metric of the user's own; None without one, too
    time_to_target_s   median over all seeds of the virtual time to reach the target; None where half of them never do
    reached            how many seeds reach it; one that diverged never does
    sent_bytes, received_bytes, device_macs, energy_j   of all devices and rounds together; sent is up, to the server
    energy_j           None, too, where computing would be missing from it
    diverged           seeds whose training diverged, and the round in which it did
    """

    algorithm: str
    accuracy: Estimate | None
    worst_accuracy: Estimate | None
    own_accuracy: Estimate | None
    metric: Estimate | None
    worst_metric: Estimate | None
    time_to_target_s: float | None
    reached: int
    virtual_time_s: float | None
    sent_bytes: float | None
    received_bytes: float | None
    device_macs: float | None
    energy_j: float | None
    diverged: dict[int, int]


@dataclass(frozen=True, eq=False)
class Comparison:
    """Several algorithms, each with several seeds.

    Attributes:
        target: The test accuracy, or metric of the user's own, whose time is compared.
        trials: The runs of each algorithm that did not diverge.
        diverged: For each algorithm its seeds whose training diverged, and how.
        has_energy: Whether the devices' energy is known, computing included.
    """

    scenario: Scenario
    seeds: tuple[int, ...]
    target: float
    trials: dict[str, Trials]
    diverged: dict[str, dict[int, Divergence]]
    has_energy: bool

    @property
    def finished(self) -> dict[str, Trials]:
        """The algorithms that have a run to the end."""
        return {algorithm: trials for algorithm, trials in self.trials.items() if trials.runs}

    @property
    def metric(self) -> Metric:
        """The number by which they are compared."""
        return get_metric(self.scenario.training)

    @property
    def has_metric(self) -> bool:
        """Whether there is such a number: accuracy only where labels are classes."""
        return bool(self.finished) and all(
            trials.last(self.metric.field) for trials in self.finished.values()
        )

    @property
    def columns(self) -> list[str]:
        """What a table of its rows has besides the algorithm."""
        return [column for column, _ in self._cells(self.rows[0])]

    def format_row(self, row: AlgorithmSummary) -> list[str]:
        """A row of a table with these columns."""
        return [cell for _, cell in self._cells(row)]

    def _cells(self, row: AlgorithmSummary) -> Iterator[tuple[str, str]]:
        """Columns and what a row has in them."""
        yield f"final {self.metric.name}", self._final(row)
        yield (
            "worst device",
            self._shown(row.worst_accuracy if self.metric.is_accuracy else row.worst_metric),
        )
        yield (
            (f"time to {self._target}" if self.has_metric else "time to a target"),
            self._time(row),
        )
        yield "all rounds", _or_dash(row.virtual_time_s, format_seconds)
        yield "sent up", _or_dash(row.sent_bytes, _bytes)
        if self.scenario.clock.downlink:
            yield "received", _or_dash(row.received_bytes, _bytes)
        yield "devices' work", _or_dash(row.device_macs, lambda macs: format_quantity(macs, "MAC"))
        if self.has_energy:
            yield "energy", _or_dash(row.energy_j, lambda energy_j: format_quantity(energy_j, "J"))

    @property
    def _target(self) -> str:
        return (
            format_percent(self.target, 0)
            if self.metric.is_accuracy
            else self.metric.show(self.target)
        )

    def _judged(self, row: AlgorithmSummary) -> Estimate | None:
        """Return what a row is judged by."""
        return row.accuracy if self.metric.is_accuracy else row.metric

    def _shown(self, value: Estimate | None) -> str:
        if self.metric.is_accuracy or value is None:
            return format_accuracy(value)
        spread = "" if value.half_width is None else f" ± {self.metric.show(value.half_width)}"
        return f"{self.metric.show(value.mean)}{spread}"

    def _time(self, row: AlgorithmSummary) -> str:
        """Return the time to the target, and how many seeds reach it if not all do."""
        if row.reached == 0:
            return "never"
        if row.reached == len(self.seeds):
            return _or_dash(row.time_to_target_s, format_seconds)
        some = f"{row.reached} of {len(self.seeds)}"
        return (
            f"only {some}"
            if row.time_to_target_s is None
            else f"{format_seconds(row.time_to_target_s)} ({some})"
        )

    def _final(self, row: AlgorithmSummary) -> str:
        """Return the metric after the last round, and what became of seeds that never got there."""
        if not row.diverged:
            return self._shown(self._judged(row))
        if len(row.diverged) < len(self.seeds):
            return f"{self._shown(self._judged(row))} ({len(row.diverged)} of {len(self.seeds)} diverged)"
        rounds = sorted(set(row.diverged.values()))
        return f"diverged in round{'s' if len(rounds) > 1 else ''} {', '.join(map(str, rounds))}"

    def describe(self, of_seeds: str = "± is the 95 % interval") -> str:
        """What was trained, and what numbers are of several seeds."""
        training, seeds = self.scenario.training, self.seeds
        which = (
            f"seed {seeds[0]}"
            if len(seeds) == 1
            else f"seeds {seeds[0]} to {seeds[-1]}, {of_seeds}"
        )
        return (
            f"{self.scenario.model.name}, {training.dataset} ({training.partition}), {pluralize(training.rounds, 'round')} of "
            f"{training.iterations_per_round} iterations, batch {training.batch_size}; {which}."
        )

    @property
    def headline(self) -> str:
        """How good each algorithm is in the end, who is first to the target, and who never gets there."""
        return " ".join([*self._finals(), *self._times(), *self._divergences()])

    def _finals(self) -> Iterator[str]:
        """The metrics after the last round, the best first."""
        if not self.has_metric:
            return
        sign = -1 if self.metric.goal == "max" else 1
        judged = ((self._judged(row), format_algorithm(row.algorithm)) for row in self.rows)
        finals = sorted((sign * value.mean, name) for value, name in judged if value is not None)
        shown = [(self.metric.show(sign * mean), name) for mean, name in finals]
        if not self.metric.is_accuracy:
            yield f"After the last round {self.metric.name} is {', '.join(f'{value} with {name}' for value, name in shown)}."
            return
        (best, first), *rest = shown
        yield f"After the last round {first} gets {best} right{''.join(f', {name} {value}' for value, name in rest)}."

    def _times(self) -> Iterator[str]:
        """Who is first to the target, how much longer the others take, and who never gets there."""
        if not self.finished:
            return
        if not self.has_metric:
            yield "There is no accuracy that all of them reach."
            return
        right = (
            f"{self._target} right"
            if self.metric.is_accuracy
            else f"to {self.metric.name} {self._target}"
        )
        timed = sorted(
            (row.time_to_target_s, format_algorithm(row.algorithm))
            for row in self.rows
            if row.time_to_target_s is not None
        )
        if not timed:
            yield f"None of them gets {right}."
            return
        first_s, first = timed[0]
        parts = [f"The first to get {right} is {first}, after {format_seconds(first_s)}"]
        if len(timed) > 1:
            parts.append(
                ", ".join(
                    f"{name} takes {time_s / first_s:.1f} times as long"
                    for time_s, name in timed[1:]
                )
            )
        parts += [
            f"{format_algorithm(row.algorithm)} {self._seldom(row)}"
            for row in self.rows
            if row.time_to_target_s is None
        ]
        yield f"{'; '.join(parts)}."

    def _seldom(self, row: AlgorithmSummary) -> str:
        """Return what is said of an algorithm that does not reach the target with half of its seeds."""
        return (
            f"does with {row.reached} of {len(self.seeds)} seeds only"
            if row.reached
            else "never does"
        )

    def _divergences(self) -> Iterator[str]:
        """Which trainings diverged, and when."""
        each = [
            f"{format_algorithm(a)} with seed {seed} in round {end.round}"
            for a, ends in self.diverged.items()
            for seed, end in ends.items()
        ]
        if each:
            yield f"Diverged: {', '.join(each)}."

    @cached_property
    def rows(self) -> list[AlgorithmSummary]:
        """What each algorithm came to; made once, because it adds up all records."""
        return [self._row(algorithm, trials) for algorithm, trials in self.trials.items()]

    def _row(self, algorithm: str, trials: Trials) -> AlgorithmSummary:
        times = [np.inf if time is None else time for time in trials.time_to(self.target)]
        diverged = {
            seed: divergence.round for seed, divergence in self.diverged.get(algorithm, {}).items()
        }
        median = float(np.median(times + [np.inf] * len(diverged)))
        return AlgorithmSummary(
            algorithm,
            accuracy=estimate(trials.last("test_accuracy")),
            worst_accuracy=estimate(trials.last("test_accuracy_worst")),
            own_accuracy=estimate(trials.last("own_accuracy")),
            metric=estimate(trials.last("test_metric")),
            worst_metric=estimate(trials.last("test_metric_worst")),
            time_to_target_s=median if np.isfinite(median) else None,
            reached=int(np.isfinite(times).sum()),
            virtual_time_s=_mean(trials.last("virtual_time_s")),
            sent_bytes=_mean(trials.total("sent_bytes")),
            received_bytes=_mean(trials.total("received_bytes")),
            device_macs=_mean(trials.total("macs")),
            energy_j=_mean(trials.total("energy_j")) if self.has_energy else None,
            diverged=diverged,
        )

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        rows = [asdict(row) for row in self.rows]
        training = self.scenario.training
        about = {
            "metric": training.metric,
            "metric_goal": training.metric_goal,
            "target": self.target,
            "seeds": list(self.seeds),
        }
        return {"headline": self.headline} | about | {"algorithms": rows}


def load_comparison(
    folder: str | os.PathLike[str],
    scenario: Scenario | None,
    algorithms: Sequence[str],
    seeds: tuple[int, ...],
    target: float | None,
) -> Comparison:
    """Return the comparison of the runs in a folder.

    Args:
        scenario: What was compared; None: that of the first run.
        target: None: the best round number that all runs reach, whole percent of accuracy.
    """
    first = RunFolder(Path(folder) / name_run_folder(algorithms[0], seeds[0]))
    if scenario is None:
        scenario = Scenario.from_toml(first.read_scenario())
    metric = get_metric(scenario.training)
    trials, diverged = dict[str, Trials](), dict[str, dict[int, Divergence]]()
    for algorithm in algorithms:
        runs = {seed: RunFolder(Path(folder) / name_run_folder(algorithm, seed)) for seed in seeds}
        ends = {seed: run.read_divergence() for seed, run in runs.items()}
        diverged[algorithm] = {seed: end for seed, end in ends.items() if end is not None}
        records = [tuple(run.read_records()) for seed, run in runs.items() if ends[seed] is None]
        if records and (not records[0] or len({len(each) for each in records}) != 1):
            way = "airsplit compare … --resume finishes them"
            raise FileProblem(
                f"runs of {algorithm} in {os.fspath(folder)!r} are not all there; {way}"
            )
        trials[algorithm] = Trials(tuple(records), metric)

    if target is None:
        target = common_target(list(trials.values()))
    return Comparison(
        scenario, seeds, target, trials, diverged, has_energy(first.read_plan(), scenario)
    )


def name_run_folder(algorithm: str, seed: int) -> str:
    """The folder of one run, beside those of the others.

    >>> name_run_folder("sfl", 0), name_run_folder("mine:MEDIAN", 1)
    ('sfl-seed0', 'mine.MEDIAN-seed1')
    """
    return f"{algorithm.replace(':', '.')}-seed{seed}"


def format_accuracy(value: Estimate | None) -> str:
    """
    >>> format_accuracy(Estimate(0.912, 0.013)), format_accuracy(Estimate(0.9, None)), format_accuracy(None)
    ('91.2 ± 1.3 %', '90.0 %', '–')
    """
    if value is None:
        return "–"
    return (
        format_percent(value.mean)
        if value.half_width is None
        else f"{100 * value.mean:.1f} ± {format_percent(value.half_width)}"
    )


def _or_dash(value: float | None, show: Callable[[float], str]) -> str:
    return "–" if value is None else show(value)


def _bytes(count: float) -> str:
    return format_quantity(count, "B")


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None
