"""A metric of the user's own, wherever models are evaluated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from airsplit import InvalidValue, Scenario
from airsplit.runs.record import RoundRecord
from airsplit.scenario.settings import TrainingSettings
from airsplit.training import evaluation
from airsplit.training.coordinator import Training
from airsplit.training.metrics import load_metric
from training import tiny

HERE = __name__


def wrong(outputs: Tensor, labels: Tensor) -> Tensor:
    """The part of the answers that is wrong."""
    return (outputs.argmax(dim=1) != labels).double().mean()


def above(outputs: Tensor, labels: Tensor, *, threshold: float) -> float:
    """The part of the scores above a threshold."""
    assert not torch.is_grad_enabled()
    return float((outputs > threshold).double().mean())


def spoiling(outputs: Tensor, labels: Tensor) -> float:
    """Changes what it is given."""
    outputs.zero_()
    labels.zero_()
    return 1.0


def failing(outputs: Tensor, labels: Tensor) -> float:
    raise RuntimeError("there is no\nsuch class")


def returning_nan(outputs: Tensor, labels: Tensor) -> Any:
    return np.float32("nan")


def returning_text(outputs: Tensor, labels: Tensor) -> Any:
    return "0.5"


def returning_several(outputs: Tensor, labels: Tensor) -> Any:
    return torch.zeros(2)


def failing_later(outputs: Tensor, labels: Tensor) -> float:
    """Not on the batch with which it is tried, but on the test set."""
    if len(labels) > 4:
        raise ValueError("too many")
    return 0.0


def scenario(metric: str = "wrong", **settings: Any) -> Scenario:
    return tiny.scenario(splits=[2, 3, 1, 2, 2], metric=f"{HERE}:{metric}", **settings)


def records(metric: str = "wrong", **settings: Any) -> list[RoundRecord]:
    return list(Training(scenario(metric, **settings)).rounds())


@pytest.mark.parametrize(
    "algorithm", ["sfl", "fedavg", "split-learning", "splitfed-v1", "splitfed-v2"]
)
def test_a_metric_is_in_the_records_beside_the_accuracy(algorithm: str) -> None:
    last = records(algorithm=algorithm, metric_goal="min")[-1]
    assert last.test_accuracy is not None
    assert last.test_metric == pytest.approx(1 - last.test_accuracy, abs=1e-12)
    assert last.test_metric_spread == pytest.approx(last.test_accuracy_spread, abs=1e-12)


def test_the_worst_model_is_the_one_farthest_from_the_goal() -> None:
    last = records(metric_goal="min")[-1]
    assert last.test_metric_worst == pytest.approx(1 - last.test_accuracy_worst, abs=1e-12)  # type: ignore[operator]
    assert last.test_metric_worst > last.test_metric  # type: ignore[operator]
    highest = records(metric_goal="max")[-1]
    assert highest.test_metric_worst < highest.test_metric  # type: ignore[operator]


def test_batches_count_by_their_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = records()[-1].test_metric
    monkeypatch.setattr(evaluation, "BATCH", 4)  # 21 samples: the last batch has one
    assert records()[-1].test_metric == pytest.approx(whole, abs=1e-12)


def test_without_a_metric_of_ones_own_there_is_none() -> None:
    last = list(Training(tiny.scenario(splits=[2] * 5)).rounds())[-1]
    assert last.test_metric is None
    assert "test_metric" not in last.to_json()


def test_a_metric_is_computed_only_where_models_are_evaluated() -> None:
    made = records(rounds=5, evaluate_every=2)
    assert [record.round for record in made if record.test_metric is not None] == [2, 4, 5]


def test_arguments_reach_the_metric() -> None:
    everything, nothing = (
        records("above", metric_arguments={"threshold": level})[-1].test_metric
        for level in (-1e9, 1e9)
    )
    assert (everything, nothing) == (1.0, 0.0)


def test_labels_that_are_quantities_have_a_metric_too() -> None:
    settings = {
        "model": "line",
        "data": "numbers",
        "splits": [1, 2, 1],
        "loss": f"{tiny.__name__}:squared_error",
        "rounds": 2,
    }
    (*_, last) = Training(
        tiny.scenario(**settings, metric=f"{tiny.__name__}:squared_error", metric_goal="min")
    ).rounds()
    assert last.test_accuracy is None
    assert last.test_metric == pytest.approx(last.test_loss, rel=1e-5)


def test_a_metric_that_changes_what_it_is_given_spoils_nothing() -> None:
    for one, other in zip(records("spoiling"), records("wrong"), strict=True):
        assert (one.test_loss, one.test_accuracy, one.train_loss) == (
            other.test_loss,
            other.test_accuracy,
            other.train_loss,
        )


@pytest.mark.parametrize(
    ("metric", "why"),
    [
        ("failing", "failed: RuntimeError: there is no such class"),
        ("returning_nan", "must return one finite number, got nan"),
        ("returning_text", "must return one finite number, got '0.5'"),
        ("returning_several", "must return one finite number, got tensor"),
    ],
)
def test_a_metric_that_fails_is_told_before_any_round(metric: str, why: str) -> None:
    with pytest.raises(InvalidValue, match=rf"^training\.metric '{HERE}:{metric}' {why}") as told:
        Training(scenario(metric))
    assert "\n" not in str(told.value)


def test_a_metric_that_fails_later_ends_the_run_in_one_line() -> None:
    training = Training(scenario("failing_later"))
    with pytest.raises(
        InvalidValue,
        match=rf"^evaluation on the test set stopped: training\.metric '{HERE}:failing_later' failed: ValueError: too many ",
    ):
        next(training.rounds())


def test_a_metric_that_cannot_be_called_or_found_is_refused() -> None:
    with pytest.raises(InvalidValue, match=r"training\.metric 'math:pi' must be a function"):
        load_metric(TrainingSettings(metric="math:pi"))
    with pytest.raises(InvalidValue, match=r"training\.metric 'nowhere:at_all' cannot be imported"):
        load_metric(TrainingSettings(metric="nowhere:at_all"))
