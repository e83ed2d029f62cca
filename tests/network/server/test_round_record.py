"""Records of rounds over a network."""

from __future__ import annotations

import pytest

from airsplit.network.server.device_registry import Member, Work
from airsplit.network.server.round_record import _scores
from airsplit.network.wire import airsplit_pb2 as pb
from airsplit.runs.metric import Metric


def assessed(number: int, test_samples: int, **found: float) -> Member:
    work = Work(order=1, round=1, deadline=0.0, assessed=pb.Assessed(test_loss=1.0, **found))
    return Member(number, test_samples=test_samples, work=work)


def test_a_metric_counts_a_device_by_its_test_samples() -> None:
    members = [assessed(0, 30, test_metric=2.0), assessed(1, 10, test_metric=6.0), Member(2)]
    found = _scores(members, Metric("error", "test_metric", "min"))
    assert found["test_metric"] == pytest.approx(3.0)
    assert found["test_metric_spread"] == pytest.approx(2.0)
    assert found["test_metric_worst"] == 6.0
    assert _scores(members, Metric("dice", "test_metric", "max"))["test_metric_worst"] == 2.0


def test_without_a_metric_of_the_runs_own_there_is_none() -> None:
    assert "test_metric" not in _scores([assessed(0, 30, test_accuracy=0.5)], Metric())
