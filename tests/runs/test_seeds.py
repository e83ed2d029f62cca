"""What is said of several seeds."""

import numpy as np
import pytest
from scipy import stats

from airsplit.runs.metric import Metric
from airsplit.runs.record import RoundRecord
from airsplit.runs.seeds import Estimate, Trials, common_target, estimate


def run(*points: tuple[float, float | None]) -> tuple[RoundRecord, ...]:
    return tuple(
        RoundRecord(
            round=n,
            virtual_time_s=time,
            latency_s=1.0,
            train_loss=0.5,
            test_accuracy=accuracy,
            sent_bytes=(n, 2 * n),
        )
        for n, (time, accuracy) in enumerate(points, start=1)
    )


def test_an_interval_is_students():
    values = [0.8, 0.9, 0.85, 0.7]
    low, high = stats.t.interval(0.95, 3, loc=np.mean(values), scale=stats.sem(values))
    found = estimate(values)
    assert found is not None
    assert found.half_width == pytest.approx((high - low) / 2)


def test_one_seed_has_no_interval_and_none_no_mean():
    assert estimate([0.5]) == Estimate(0.5, None)
    assert estimate([]) is None


def test_times_and_accuracies_are_those_of_the_rounds_that_were_evaluated():
    trials = Trials(
        (run((1.0, 0.2), (2.0, None), (3.0, 0.8)), run((1.5, 0.9), (2.5, None), (3.5, 0.7)))
    )
    assert trials.time_to(0.5) == [3.0, 1.5]
    assert trials.time_to(0.85) == [None, 1.5]
    assert trials.accuracy_by(2.0, untrained=0.1) == [0.2, 0.9]
    assert trials.accuracy_by(0.5, untrained=0.1) == [0.1, 0.1]
    assert trials.best() == [0.8, 0.9]
    assert trials.last("test_accuracy") == [0.8, 0.7]
    assert trials.total("sent_bytes") == [18.0, 18.0]
    rounds, times, accuracies = trials.curve()
    assert rounds.tolist() == [1, 3]
    assert times.tolist() == [[1.0, 3.0], [1.5, 3.5]]
    assert accuracies.tolist() == [[0.2, 0.8], [0.9, 0.7]]


def test_the_common_target_is_reached_by_every_run():
    several = [Trials((run((1.0, 0.999)),)), Trials((run((1.0, 0.57)), run((2.0, 0.9))))]
    target = common_target(several)
    assert target == 0.57
    assert all(time is not None for trials in several for time in trials.time_to(target))


# ---- a metric of the user's own ---------------------------------------------------------------------------------------------
def errors(*values: tuple[float, float | None]) -> tuple[RoundRecord, ...]:
    """A run with an error at some virtual times, of which less is better."""
    return tuple(
        RoundRecord(
            round=n,
            virtual_time_s=time_s,
            latency_s=1.0,
            train_loss=0.0,
            test_metric=value,
            test_accuracy=0.9,
        )
        for n, (time_s, value) in enumerate(values, start=1)
    )


ERROR = Metric("error", "test_metric", "min")


def test_of_a_metric_with_the_goal_min_less_is_better() -> None:
    trials = Trials(
        (
            errors((1.0, 8.0), (2.0, None), (3.0, 2.0), (4.0, 3.0)),
            errors((1.0, 1.0), (2.0, None), (3.0, 9.0), (4.0, 9.0)),
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
    farther = best + 1 if goal == "max" else best - 1
    several = [
        Trials((errors((1.0, best)), errors((1.0, farther))), metric),
        Trials((errors((1.0, farther)),), metric),
    ]
    assert common_target(several) == target
    assert all(time_s is not None for trials in several for time_s in trials.time_to(target))


def test_without_runs_there_is_no_target_to_miss() -> None:
    assert common_target([Trials((), ERROR)]) == 0.0
