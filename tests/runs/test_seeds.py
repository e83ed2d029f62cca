"""Statistics over seeds: intervals, times to a target, and the targets themselves."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from airsplit.runs.metric import Metric
from airsplit.runs.record import RoundRecord
from airsplit.runs.seeds import Estimate, Trials, common_target, estimate

ERROR = Metric("error", "test_metric", "min")


def run_with_accuracies(*points: tuple[float, float | None]) -> tuple[RoundRecord, ...]:
    """Return a run of two devices from virtual times and accuracies."""
    return tuple(
        RoundRecord(
            round=n,
            virtual_time_s=time_s,
            latency_s=1.0,
            train_loss=0.5,
            test_accuracy=accuracy,
            sent_bytes=(n, 2 * n),
        )
        for n, (time_s, accuracy) in enumerate(points, start=1)
    )


def run_with_metrics(*points: tuple[float, float | None]) -> tuple[RoundRecord, ...]:
    """Return a run from virtual times and values of a user's metric; its accuracy stays equal."""
    return tuple(
        RoundRecord(
            round=n,
            virtual_time_s=time_s,
            latency_s=1.0,
            train_loss=0.0,
            test_metric=value,
            test_accuracy=0.9,
        )
        for n, (time_s, value) in enumerate(points, start=1)
    )


def test_the_interval_is_student_s() -> None:
    values = [0.8, 0.9, 0.85, 0.7]
    low, high = stats.t.interval(0.95, 3, loc=np.mean(values), scale=stats.sem(values))
    estimated = estimate(values)
    assert estimated is not None
    assert estimated.half_width == pytest.approx((high - low) / 2)


def test_a_single_seed_has_no_interval_and_no_seed_has_no_mean() -> None:
    assert estimate([0.5]) == Estimate(0.5, None)
    assert estimate([]) is None


def test_only_evaluated_rounds_count() -> None:
    trials = Trials(
        (
            run_with_accuracies((1.0, 0.2), (2.0, None), (3.0, 0.8)),
            run_with_accuracies((1.5, 0.9), (2.5, None), (3.5, 0.7)),
        )
    )
    assert trials.time_to(0.5) == [3.0, 1.5]
    assert trials.time_to(0.85) == [None, 1.5]
    assert trials.accuracy_by(2.0, untrained=0.1) == [0.2, 0.9]
    assert trials.accuracy_by(0.5, untrained=0.1) == [0.1, 0.1]
    assert trials.best() == [0.8, 0.9]
    assert trials.last("test_accuracy") == [0.8, 0.7]
    assert trials.total("sent_bytes") == [18.0, 18.0]

    rounds, times_s, accuracies = trials.curve()
    assert rounds.tolist() == [1, 3]
    assert times_s.tolist() == [[1.0, 3.0], [1.5, 3.5]]
    assert accuracies.tolist() == [[0.2, 0.8], [0.9, 0.7]]


def test_every_run_reaches_the_common_target() -> None:
    algorithms = [
        Trials((run_with_accuracies((1.0, 0.999)),)),
        Trials((run_with_accuracies((1.0, 0.57)), run_with_accuracies((2.0, 0.9)))),
    ]
    target = common_target(algorithms)
    assert target == 0.57
    assert all(time is not None for trials in algorithms for time in trials.time_to(target))


def test_less_is_better_for_a_metric_with_the_goal_min() -> None:
    trials = Trials(
        (
            run_with_metrics((1.0, 8.0), (2.0, None), (3.0, 2.0), (4.0, 3.0)),
            run_with_metrics((1.0, 1.0), (2.0, None), (3.0, 9.0), (4.0, 9.0)),
        ),
        ERROR,
    )
    assert trials.best() == [2.0, 1.0]
    assert trials.time_to(2.0) == [3.0, 1.0]
    assert trials.time_to(0.5) == [None, None]

    rounds, _, values = trials.curve()
    assert rounds.tolist() == [1.0, 3.0, 4.0]
    assert values.tolist() == [[8.0, 2.0, 3.0], [1.0, 9.0, 9.0]]


@pytest.mark.parametrize(
    ("goal", "best", "target"),
    [
        ("min", 0.1234, 0.13),
        ("min", 0.13, 0.13),
        ("min", -3.21, -3.2),
        ("min", 1234.5, 1300.0),
        ("max", 0.1234, 0.12),
        ("max", -3.21, -3.3),
        ("max", 2e-300, 2e-300),
        ("max", 0.0, 0.0),
        ("max", 5e-324, 0.0),
    ],
)
def test_the_target_of_a_metric_is_a_round_number_that_all_reach(
    goal: str, best: float, target: float
) -> None:
    metric = Metric("mine", "test_metric", goal)
    better = best + 1 if goal == "max" else best - 1
    algorithms = [
        Trials((run_with_metrics((1.0, best)), run_with_metrics((1.0, better))), metric),
        Trials((run_with_metrics((1.0, better)),), metric),
    ]
    assert common_target(algorithms) == target
    assert all(time is not None for trials in algorithms for time in trials.time_to(target))


def test_without_runs_the_common_target_is_zero() -> None:
    assert common_target([Trials((), ERROR)]) == 0.0
