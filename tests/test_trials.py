"""What is said of several seeds."""

import numpy as np
import pytest
from scipy import stats

from airsplit.results import RoundRecord
from airsplit.trials import Estimate, Trials, common_target, estimate


def run(*points: tuple[float, float | None]) -> tuple[RoundRecord, ...]:
    return tuple(
        RoundRecord(round=n, virtual_time_s=time, latency_s=1.0, train_loss=0.5, test_accuracy=accuracy, sent_bytes=(n, 2 * n))
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
    trials = Trials((run((1.0, 0.2), (2.0, None), (3.0, 0.8)), run((1.5, 0.9), (2.5, None), (3.5, 0.7))))
    assert trials.time_to(0.5) == [3.0, 1.5]
    assert trials.time_to(0.85) == [None, 1.5]
    assert trials.accuracy_by(2.0, untrained=0.1) == [0.2, 0.9]
    assert trials.accuracy_by(0.5, untrained=0.1) == [0.1, 0.1]
    assert trials.best_accuracy() == [0.8, 0.9]
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
