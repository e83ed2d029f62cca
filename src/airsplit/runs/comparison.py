"""Comparisons of algorithms, each trained with several seeds."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
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
from airsplit.runs.record import RoundRecord
from airsplit.runs.seeds import Estimate, Trials, common_target, estimate
from airsplit.runs.wording import format_algorithm
from airsplit.scenario.scenario import Scenario


@dataclass(frozen=True)
class AlgorithmSummary:
    """The results of one algorithm: means over the seeds that did not diverge.

    A field is None if there is no such seed, or if the runs do not have the quantity.

    Attributes:
        accuracy: Accuracy after the last round, on the common test set.
        worst_accuracy: Accuracy of the worst device's model.
        own_accuracy: Accuracy with classes weighted as each device has them.
        metric: Value of the user's metric after the last round.
        worst_metric: Value of the user's metric for the worst device's model.
        time_to_target_s: Median over all seeds of the virtual time to reach the target; None if
            half of them never do.
        reached: Number of seeds that reach the target; one that diverged does not.
        virtual_time_s: Duration of all rounds.
        sent_bytes: Bytes that all devices send to the server, in all rounds.
        received_bytes: Bytes that they receive.
        device_macs: Their multiply-adds.
        energy_j: Their energy; None if computing would be missing from it.
        diverged: Seeds whose training diverged, and the rounds in which it did.
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
        target: Value of the metric to which times are compared.
        trials: The runs of each algorithm that did not diverge.
        diverged: The seeds of each algorithm whose training diverged, and how.
        has_energy: Whether the devices' energy is known, computing included.
    """

    scenario: Scenario
    seeds: tuple[int, ...]
    target: float
    trials: dict[str, Trials]
    diverged: dict[str, dict[int, Divergence]]
    has_energy: bool

    @property
    def finished_trials(self) -> dict[str, Trials]:
        """The trials of each algorithm with at least one run that did not diverge."""
        return {algorithm: trials for algorithm, trials in self.trials.items() if trials.runs}

    @property
    def metric(self) -> Metric:
        """The metric by which the algorithms are compared."""
        return get_metric(self.scenario.training)

    @property
    def has_metric(self) -> bool:
        """Whether all algorithms have the metric; there is no accuracy without class labels."""
        if not self.finished_trials:
            return False
        return all(trials.last(self.metric.field) for trials in self.finished_trials.values())

    @cached_property
    def rows(self) -> list[AlgorithmSummary]:
        """The results of each algorithm. Cached, because they are sums over all records."""
        return [self._summarize(algorithm, trials) for algorithm, trials in self.trials.items()]

    def _summarize(self, algorithm: str, trials: Trials) -> AlgorithmSummary:
        diverged = {
            seed: divergence.round for seed, divergence in self.diverged.get(algorithm, {}).items()
        }
        # A seed that never reaches the target, or diverges, counts as infinitely slow: without
        # it, an algorithm would look faster the more of its runs fail.
        times = trials.time_to(self.target)
        reached_s = [time_s for time_s in times if time_s is not None]
        missed = len(times) - len(reached_s) + len(diverged)
        median_s = float(np.median(reached_s + [np.inf] * missed))
        time_to_target_s = None
        if np.isfinite(median_s):
            time_to_target_s = median_s

        # Energy without computing would favor algorithms that compute most on the devices.
        energy_j = None
        if self.has_energy:
            energy_j = _mean(trials.total("energy_j"))
        return AlgorithmSummary(
            algorithm,
            accuracy=estimate(trials.last("test_accuracy")),
            worst_accuracy=estimate(trials.last("test_accuracy_worst")),
            own_accuracy=estimate(trials.last("own_accuracy")),
            metric=estimate(trials.last("test_metric")),
            worst_metric=estimate(trials.last("test_metric_worst")),
            time_to_target_s=time_to_target_s,
            reached=len(reached_s),
            virtual_time_s=_mean(trials.last("virtual_time_s")),
            sent_bytes=_mean(trials.total("sent_bytes")),
            received_bytes=_mean(trials.total("received_bytes")),
            device_macs=_mean(trials.total("macs")),
            energy_j=energy_j,
            diverged=diverged,
        )

    @property
    def columns(self) -> list[str]:
        """Titles of a table's columns, after that of the algorithm."""
        return [title for title, _ in self._cells(self.rows[0])]

    def format_row(self, row: AlgorithmSummary) -> list[str]:
        """Return the entries of an algorithm in these columns."""
        return [text for _, text in self._cells(row)]

    def _cells(self, row: AlgorithmSummary) -> Iterator[tuple[str, str]]:
        """Yield the title and entry of each column."""
        # Together, so that a column that does not apply is missing from the head and every row.
        worst = row.worst_metric
        if self.metric.is_accuracy:
            worst = row.worst_accuracy
        target = "a target"
        if self.has_metric:
            target = self._target

        yield f"final {self.metric.name}", self._format_final(row)
        yield "worst device", self._format_estimate(worst)
        yield f"time to {target}", self._format_time(row)
        yield "all rounds", _seconds_or_dash(row.virtual_time_s)
        yield "sent up", _quantity_or_dash(row.sent_bytes, "B")
        # Without downlink the clock charges nothing for it, and a comparison would mislead.
        if self.scenario.clock.downlink:
            yield "received", _quantity_or_dash(row.received_bytes, "B")
        yield "devices' work", _quantity_or_dash(row.device_macs, "MAC")
        if self.has_energy:
            yield "energy", _quantity_or_dash(row.energy_j, "J")

    @property
    def _target(self) -> str:
        """The target, formatted."""
        if self.metric.is_accuracy:
            return format_percent(self.target, 0)
        return self.metric.show(self.target)

    def _get_score(self, row: AlgorithmSummary) -> Estimate | None:
        """Return the estimate of the metric after the last round."""
        if self.metric.is_accuracy:
            return row.accuracy
        return row.metric

    def _format_estimate(self, value: Estimate | None) -> str:
        if self.metric.is_accuracy or value is None:
            return format_accuracy(value)
        if value.half_width is None:
            return self.metric.show(value.mean)
        return f"{self.metric.show(value.mean)} ± {self.metric.show(value.half_width)}"

    def _format_final(self, row: AlgorithmSummary) -> str:
        """Return the metric after the last round, and the number of seeds that diverged."""
        score = self._format_estimate(self._get_score(row))
        if not row.diverged:
            return score
        if len(row.diverged) < len(self.seeds):
            return f"{score} ({len(row.diverged)} of {len(self.seeds)} diverged)"
        # No seed has a score: say when they diverged instead.
        rounds = sorted(set(row.diverged.values()))
        noun = "round"
        if len(rounds) > 1:
            noun = "rounds"
        return f"diverged in {noun} {', '.join(map(str, rounds))}"

    def _format_time(self, row: AlgorithmSummary) -> str:
        """Return the time to the target, and how many seeds reach it unless all do."""
        if row.reached == 0:
            return "never"
        if row.reached == len(self.seeds):
            return _seconds_or_dash(row.time_to_target_s)
        count = f"{row.reached} of {len(self.seeds)}"
        # The median is over all seeds, so it is infinite if half of them never reach the target.
        if row.time_to_target_s is None:
            return f"only {count}"
        return f"{format_seconds(row.time_to_target_s)} ({count})"

    def describe(self, interval: str = "± is the 95 % interval") -> str:
        """Return the model, data and length of the trainings, and their seeds.

        Args:
            interval: Note on how a table or figure shows several seeds.
        """
        training = self.scenario.training
        seeds = f"seed {self.seeds[0]}"
        if len(self.seeds) > 1:
            seeds = f"seeds {self.seeds[0]} to {self.seeds[-1]}, {interval}"
        return (
            f"{self.scenario.model.name}, {training.dataset} ({training.partition}), "
            f"{pluralize(training.rounds, 'round')} of {training.iterations_per_round} "
            f"iterations, batch {training.batch_size}; {seeds}."
        )

    @property
    def headline(self) -> str:
        """The result in words: final scores, times to the target, and divergences."""
        sentences = [self._describe_scores(), self._describe_times()]
        divergences = [
            f"{format_algorithm(algorithm)} with seed {seed} in round {divergence.round}"
            for algorithm, by_seed in self.diverged.items()
            for seed, divergence in by_seed.items()
        ]
        if divergences:
            sentences.append(f"Diverged: {', '.join(divergences)}.")
        return " ".join(sentence for sentence in sentences if sentence)

    def _describe_scores(self) -> str:
        """Return a sentence on the metric after the last round, best algorithm first."""
        if not self.has_metric:
            return ""

        # Ascending order puts the best first: negate scores of which more is better.
        sign = 1
        if self.metric.goal == "max":
            sign = -1
        scores: list[tuple[float, str]] = []
        for row in self.rows:
            score = self._get_score(row)
            if score is not None:
                scores.append((sign * score.mean, format_algorithm(row.algorithm)))
        formatted = [(self.metric.show(sign * mean), name) for mean, name in sorted(scores)]

        if not self.metric.is_accuracy:
            listed = ", ".join(f"{value} with {name}" for value, name in formatted)
            return f"After the last round {self.metric.name} is {listed}."
        (best, first), *others = formatted
        listed = "".join(f", {name} {value}" for value, name in others)
        return f"After the last round {first} gets {best} right{listed}."

    def _describe_times(self) -> str:
        """Return a sentence on which algorithm is the first to the target, and on the others."""
        if not self.finished_trials:
            return ""
        if not self.has_metric:
            return "There is no accuracy that all of them reach."

        goal = f"to {self.metric.name} {self._target}"
        if self.metric.is_accuracy:
            goal = f"{self._target} right"

        times: list[tuple[float, str]] = []
        failures: list[str] = []
        for row in self.rows:
            name = format_algorithm(row.algorithm)
            if row.time_to_target_s is not None:
                times.append((row.time_to_target_s, name))
            elif row.reached:
                failures.append(
                    f"{name} does so with only {row.reached} of {len(self.seeds)} seeds"
                )
            else:
                failures.append(f"{name} never does")
        if not times:
            return f"None of them gets {goal}."

        (first_s, first), *others = sorted(times)
        clauses = [f"The first to get {goal} is {first}, after {format_seconds(first_s)}"]
        if others:
            ratios = [
                f"{name} takes {time_s / first_s:.1f} times as long" for time_s, name in others
            ]
            clauses.append(", ".join(ratios))
        return f"{'; '.join(clauses + failures)}."

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as JSON values."""
        return {
            "headline": self.headline,
            "metric": self.scenario.training.metric,
            "metric_goal": self.scenario.training.metric_goal,
            "target": self.target,
            "seeds": list(self.seeds),
            "algorithms": [asdict(row) for row in self.rows],
        }


def load_comparison(
    folder: str | os.PathLike[str],
    scenario: Scenario | None,
    algorithms: Sequence[str],
    seeds: tuple[int, ...],
    target: float | None,
) -> Comparison:
    """Load the runs of a comparison from their folders.

    Args:
        folder: Folder that contains the runs' folders.
        scenario: Scenario of the comparison (None: that of the first run).
        target: Value of the metric to which times are compared (None: the best round number that
            all runs reach).
    """
    first = RunFolder(Path(folder) / name_run_folder(algorithms[0], seeds[0]))
    if scenario is None:
        scenario = Scenario.from_toml(first.read_scenario())
    metric = get_metric(scenario.training)

    trials: dict[str, Trials] = {}
    diverged: dict[str, dict[int, Divergence]] = {}
    for algorithm in algorithms:
        runs: list[tuple[RoundRecord, ...]] = []
        diverged[algorithm] = {}
        for seed in seeds:
            run = RunFolder(Path(folder) / name_run_folder(algorithm, seed))
            # Runs that diverged are counted, but the scores before that mean nothing.
            divergence = run.read_divergence()
            if divergence is None:
                runs.append(tuple(run.read_records()))
            else:
                diverged[algorithm][seed] = divergence

        # Every run that did not diverge has the same number of rounds, and at least one.
        lengths = {len(records) for records in runs}
        if len(lengths) > 1 or lengths == {0}:
            raise FileProblem(
                f"runs of {algorithm} in {os.fspath(folder)!r} are incomplete; "
                "airsplit compare … --resume finishes them"
            )
        trials[algorithm] = Trials(tuple(runs), metric)

    if target is None:
        target = common_target(list(trials.values()))
    # Runs differ in algorithm and seed only, so any of their plans will do.
    energy_is_known = has_energy(first.read_plan(), scenario)
    return Comparison(scenario, seeds, target, trials, diverged, energy_is_known)


def name_run_folder(algorithm: str, seed: int) -> str:
    """Return the name of a run's folder within the comparison's.

    >>> name_run_folder("sfl", 0), name_run_folder("mine:MEDIAN", 1)
    ('sfl-seed0', 'mine.MEDIAN-seed1')
    """
    # Windows allows no colon in a file name.
    return f"{algorithm.replace(':', '.')}-seed{seed}"


def format_accuracy(value: Estimate | None) -> str:
    """Format an accuracy and its interval in percent; a dash for None.

    >>> format_accuracy(Estimate(0.912, 0.013)), format_accuracy(Estimate(0.9, None))
    ('91.2 ± 1.3 %', '90.0 %')
    """
    if value is None:
        return "–"
    if value.half_width is None:
        return format_percent(value.mean)
    # One percent sign for both numbers.
    return f"{100 * value.mean:.1f} ± {format_percent(value.half_width)}"


def _seconds_or_dash(value: float | None) -> str:
    if value is None:
        return "–"
    return format_seconds(value)


def _quantity_or_dash(value: float | None, unit: str) -> str:
    if value is None:
        return "–"
    return format_quantity(value, unit)


def _mean(values: Sequence[float]) -> float | None:
    # numpy warns of an empty list, and returns NaN.
    if not values:
        return None
    return float(np.mean(values))
