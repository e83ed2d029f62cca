"""Evaluation and losses, by hand."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from airsplit import InvalidValue
from airsplit.data.datasets import Samples
from airsplit.scenario.settings import TrainingSettings
from airsplit.training.coordinator import Training
from airsplit.training.evaluation import Score, evaluating, summary
from airsplit.training.losses import cross_entropy, logits_of, loss_of
from airsplit.training.participation import evaluated_devices, evaluated_samples
from training import tiny


class Halving(nn.Sequential):
    """Changes what it is given."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.mul_(0.5))  # type: ignore[no-any-return]


@tiny.fixed_weights
def halving() -> nn.Module:
    return Halving(nn.Linear(tiny.FEATURES, 7), nn.Tanh(), nn.Linear(7, tiny.CLASSES))


def finished(**settings: Any) -> tuple[Training, Any]:
    training = Training(tiny.scenario(**settings))
    return training, list(training.rounds())


def models_of(training: Training, model: nn.Module, devices: int) -> list[nn.Module]:
    """The devices' models, from the state alone."""
    found = []
    for k in range(devices):
        own = {
            name.removeprefix("model:"): tensor
            for name, tensor in training.state.of(k).items()
            if name.startswith("model:")
        }
        each = copy.deepcopy(model)
        each.load_state_dict(own, strict=False)
        found.append(each.eval())
    return found


# ---- by hand ---------------------------------------------------------------------------------------------------------------
def test_accuracy_by_hand() -> None:
    score = Score(0.5, right=np.array([3.0, 0.0, 1.0]), present=np.array([4.0, 2.0, 4.0]))
    assert score.accuracy == 0.4
    # a device with 3 samples of class 0 and 1 of class 2: 3/4 · 3/4 + 1/4 · 1/4
    assert score.accuracy_on(np.array([0.75, 0.0, 0.25])) == 0.625
    assert score.accuracy_on(np.array([0.0, 1.0, 0.0])) == 0.0


def test_classes_that_the_test_set_does_not_have_count_for_nothing() -> None:
    score = Score(0.5, right=np.array([3.0, 0.0]), present=np.array([4.0, 0.0]))
    assert score.accuracy == 0.75
    assert score.accuracy_on(np.array([0.5, 0.5])) == 0.75
    assert score.accuracy_on(np.array([0.0, 1.0])) is None


def test_without_classes_there_is_no_accuracy() -> None:
    assert Score(0.5, np.zeros(0), np.zeros(0)).accuracy is None


# ---- in a run --------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("algorithm", ["sfl", "fedavg"])
@pytest.mark.parametrize("model", ["mlp", "norm_mlp", "dropout_mlp"])
def test_a_record_says_what_the_devices_models_get_right(algorithm: str, model: str) -> None:
    """Each model rebuilt from the state, in evaluation mode, one sample after the other."""
    arguments = {"model__arguments": {"front": 0.5, "back": 0.5}} if model == "dropout_mlp" else {}
    training, records = finished(
        model=model,
        splits=[2, 3, 2, 1, 2] if model == "mlp" else [2, 3, 2, 2, 3],
        algorithm=algorithm,
        **arguments,
    )
    devices, (inputs, labels) = tiny.parted()
    accuracy, own, losses = [], [], []
    fresh = getattr(tiny, model)(**arguments.get("model__arguments", {}))
    for each, (_, held) in zip(models_of(training, fresh, 5), devices, strict=True):
        with torch.no_grad():
            scores = torch.cat([each(row[None]) for row in inputs])
        right = scores.argmax(dim=1) == labels
        accuracy.append(float(right.double().mean()))
        by_class = [float(right[labels == c].double().mean()) for c in range(3)]
        own.append(sum(by_class[int(c)] for c in held) / len(held))
        losses.append(float(nn.functional.cross_entropy(scores, labels)))
    last = records[-1]
    assert last.test_accuracy == pytest.approx(np.mean(accuracy), abs=1e-12)
    assert last.test_accuracy_spread == pytest.approx(np.std(accuracy), abs=1e-12)
    assert last.test_accuracy_worst == pytest.approx(min(accuracy), abs=1e-12)
    assert last.own_accuracy == pytest.approx(np.mean(own), abs=1e-12)
    assert last.own_accuracy_spread == pytest.approx(np.std(own), abs=1e-12)
    assert last.own_accuracy_worst == pytest.approx(min(own), abs=1e-12)
    assert last.test_loss == pytest.approx(np.mean(losses), rel=1e-5)


def test_more_test_samples_than_are_scored_at_once_are_all_scored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from airsplit.training import evaluation

    _, whole = finished(splits=[2] * 5, rounds=1)
    monkeypatch.setattr(evaluation, "BATCH", 4)
    _, parts = finished(splits=[2] * 5, rounds=1)
    assert parts[0].test_accuracy == whole[0].test_accuracy
    assert parts[0].test_loss == pytest.approx(whole[0].test_loss, rel=1e-6)


def test_models_that_are_equally_good_have_no_spread() -> None:
    assert (
        summary("test_accuracy", [0.1, 0.1, 0.1])["test_accuracy_spread"] == 0.0
    )  # numpy's deviation of them is 1e-17
    assert summary("test_accuracy", [0.1, 0.3])["test_accuracy_spread"] == pytest.approx(0.1)


def test_models_are_evaluated_as_often_as_asked_and_always_at_the_end() -> None:
    _, records = finished(splits=[2] * 5, rounds=5, evaluate_every=2)
    assert [r.round for r in records if r.test_accuracy is not None] == [2, 4, 5]
    assert [r.round for r in records if r.test_loss is not None] == [2, 4, 5]


def test_models_are_evaluated_in_evaluation_mode_and_go_on_in_training_mode() -> None:
    model = nn.Sequential(nn.BatchNorm1d(2), nn.Dropout())
    with evaluating(model):
        assert not any(part.training for part in model.modules())
    assert all(part.training for part in model.modules())


def test_evaluating_changes_nothing_of_the_training() -> None:
    for model in ("norm_mlp", "dropout_mlp"):
        arguments = (
            {"model__arguments": {"front": 0.5, "back": 0.5}} if model == "dropout_mlp" else {}
        )
        often, _ = finished(
            model=model, splits=[2] * 4, data="parted_evenly", evaluate_every=1, **arguments
        )
        never, _ = finished(
            model=model, splits=[2] * 4, data="parted_evenly", evaluate_every=100, **arguments
        )
        for k in range(4):
            assert all(
                torch.equal(tensor, never.state.of(k)[name])
                for name, tensor in often.state.of(k).items()
            )


def test_a_model_that_changes_its_inputs_leaves_the_test_set_as_it_is() -> None:
    training = Training(
        tiny.scenario(splits=[1] * 5).replace(**{"model.name": f"{__name__}:halving"})
    )
    (*_, last) = training.rounds()
    assert torch.equal(training._test.inputs[0], tiny.parted()[1][0])
    losses = []
    for each in models_of(training, halving(), 5):
        inputs, labels = tiny.parted()[1]
        losses.append(float(cross_entropy(each(inputs), labels).detach()))
    assert last.test_loss == pytest.approx(np.mean(losses), rel=1e-5)


def test_some_devices_can_stand_for_all() -> None:
    training, records = finished(splits=[2, 3, 1, 2, 2], rounds=3, evaluate_devices=2)
    _, every = finished(splits=[2, 3, 1, 2, 2], rounds=3)
    some = evaluated_devices(training.settings, len(training.fleet), 1)
    assert len(some) == 2
    for record, all_of_them in zip(records, every, strict=True):
        assert record.train_loss == all_of_them.train_loss
    _, (inputs, labels) = tiny.parted()
    models = models_of(training, tiny.mlp(), 5)
    with torch.no_grad():
        accuracy = [
            float((models[k](inputs).argmax(dim=1) == labels).double().mean()) for k in some
        ]
    assert records[-1].test_accuracy == pytest.approx(np.mean(accuracy))
    _, more = finished(splits=[2, 3, 1, 2, 2], rounds=1, evaluate_devices=99)
    assert more[0].test_accuracy == every[0].test_accuracy


def test_labels_that_are_numbers_have_a_loss_and_no_accuracy() -> None:
    _, records = finished(
        model="line",
        data="numbers",
        splits=[1, 2, 1],
        loss=f"{tiny.__name__}:squared_error",
        rounds=12,
        learning_rate=0.02,
    )
    assert records[-1].test_accuracy is None
    assert records[-1].own_accuracy is None
    assert records[-1].test_loss < records[0].test_loss


def test_one_score_for_two_classes_is_not_an_accuracy_of_the_first_class() -> None:
    training, records = finished(
        model="line",
        data="two_classes",
        splits=[1, 2, 1],
        loss=f"{tiny.__name__}:yes_or_no",
        rounds=20,
    )
    _, (inputs, labels) = tiny.two_classes()
    with torch.no_grad():
        right = [
            float(((m(inputs).squeeze(-1) > 0) == labels).double().mean())
            for m in models_of(training, tiny.line(), 3)
        ]
    assert np.mean(right) > 0.8
    assert records[-1].test_accuracy is None or records[-1].test_accuracy == pytest.approx(
        np.mean(right)
    )


def test_scores_of_a_shape_that_only_the_users_loss_knows_do_not_end_a_run() -> None:
    _, records = finished(
        model="squeezed",
        data="two_classes",
        splits=[1, 2, 1],
        loss=f"{tiny.__name__}:yes_or_no",
        rounds=1,
    )
    assert records[-1].test_loss is not None


def test_classes_absent_from_the_test_set_or_from_the_training_set_do_no_harm() -> None:
    _, records = finished(data="one_class_to_test", splits=[2, 1, 2])
    assert 0 <= records[-1].test_accuracy <= 1
    assert 0 <= records[-1].own_accuracy <= 1


def test_a_device_without_any_class_of_the_test_set_has_no_accuracy_of_its_own() -> None:
    _, records = finished(data="parted_by_class", splits=[2, 1])
    assert records[-1].test_accuracy is not None
    assert records[-1].own_accuracy is not None  # of the one device that has one


def test_fewer_scores_than_classes_are_refused_before_any_work() -> None:
    with pytest.raises(InvalidValue, match="classes"):
        finished(model__arguments={"classes": 2}, splits=[2] * 5, rounds=1)


# ---- on some of the samples ------------------------------------------------------------------------------------------------
def test_the_samples_are_some_of_all_in_order_and_the_same_after_every_round() -> None:
    settings = TrainingSettings(rounds=5, evaluate_samples=8, seed=3)
    first = evaluated_samples(settings, 21, 1)
    assert len(first) == len(set(first.tolist())) == 8
    assert first.tolist() == sorted(first.tolist())
    assert 0 <= first.min() <= first.max() < 21
    assert first.tolist() != list(range(8))  # a test set may come in order of its classes
    assert all(
        evaluated_samples(settings, 21, number).tolist() == first.tolist() for number in range(1, 6)
    )
    assert (
        evaluated_samples(settings.model_copy(update={"seed": 4}), 21, 1).tolist() != first.tolist()
    )


@pytest.mark.parametrize("wanted", [None, 21, 22, 10**9])
def test_without_a_number_or_with_a_large_one_all_samples_are_evaluated(wanted: int | None) -> None:
    assert evaluated_samples(TrainingSettings(evaluate_samples=wanted), 21, 1).tolist() == list(
        range(21)
    )


def test_at_the_end_and_only_there_all_devices_and_samples_are_evaluated_where_that_is_wanted() -> (
    None
):
    some = TrainingSettings(rounds=5, evaluate_samples=8, evaluate_devices=2)
    whole = TrainingSettings(
        rounds=5, evaluate_samples=8, evaluate_devices=2, evaluate_all_at_end=True
    )
    for number in range(1, 5):
        assert (
            evaluated_samples(whole, 21, number).tolist()
            == evaluated_samples(some, 21, number).tolist()
        )
        assert evaluated_devices(whole, 6, number) == evaluated_devices(some, 6, number)
        assert (
            len(evaluated_samples(whole, 21, number)),
            len(evaluated_devices(whole, 6, number)),
        ) == (8, 2)
    assert (len(evaluated_samples(some, 21, 5)), len(evaluated_devices(some, 6, 5))) == (8, 2)
    assert evaluated_samples(whole, 21, 5).tolist() == list(range(21))
    assert evaluated_devices(whole, 6, 5) == list(range(6))


@pytest.mark.parametrize("algorithm", ["sfl", "fedavg"])
@pytest.mark.parametrize("at_end", [False, True])
def test_a_record_is_of_the_samples_and_devices_that_are_evaluated(
    algorithm: str, at_end: bool
) -> None:
    """After every round, with the models of that round."""
    chosen = {
        "evaluate_samples": 8,
        "evaluate_devices": 2,
        "evaluate_all_at_end": at_end,
        "algorithm": algorithm,
    }
    training = Training(tiny.scenario(splits=[2, 3, 1, 2, 2], rounds=3, **chosen))
    _, (inputs, labels) = tiny.parted()
    for record in training.rounds():
        whole = at_end and record.round == 3
        rows = (
            list(range(21))
            if whole
            else evaluated_samples(training.settings, 21, record.round).tolist()
        )
        some = list(range(5)) if whole else evaluated_devices(training.settings, 5, record.round)
        assert (len(rows), len(some)) == ((21, 5) if whole else (8, 2))
        models = models_of(training, tiny.mlp(), 5)
        with torch.no_grad():
            scores = [models[k](inputs[rows]) for k in some]
        right = [float((each.argmax(dim=1) == labels[rows]).double().mean()) for each in scores]
        assert record.test_accuracy == pytest.approx(np.mean(right), abs=1e-12)
        assert record.test_accuracy_worst == pytest.approx(min(right), abs=1e-12)
        lost = [float(nn.functional.cross_entropy(each, labels[rows])) for each in scores]
        assert record.test_loss == pytest.approx(np.mean(lost), rel=1e-5)


def test_evaluating_fewer_samples_changes_nothing_of_the_training() -> None:
    (all_of_them, every), (some, fewer) = (
        finished(splits=[2] * 5),
        finished(splits=[2] * 5, evaluate_samples=3),
    )
    assert [record.train_loss for record in fewer] == [record.train_loss for record in every]
    assert [record.virtual_time_s for record in fewer] == [
        record.virtual_time_s for record in every
    ]
    assert [record.test_loss for record in fewer] != [record.test_loss for record in every]
    for k in range(5):
        assert all(
            torch.equal(tensor, all_of_them.state.of(k)[name])
            for name, tensor in some.state.of(k).items()
        )
    assert len(some._test) == 21  # the others are still there


def test_only_some_samples_are_all_of_their_parts() -> None:
    """Of a model with several inputs, too."""
    samples = Samples(
        (torch.arange(10.0), torch.arange(20).reshape(10, 2)),
        torch.arange(10),
        lambda inputs: (inputs[0] * 2, inputs[1]),
    )
    some = samples.select(np.array([1, 4, 9]))
    assert len(some) == 3
    inputs, labels = some.batch(slice(0, 3))
    assert [tensor.tolist() for tensor in (*inputs, labels)] == [
        [2.0, 8.0, 18.0],
        [[2, 3], [8, 9], [18, 19]],
        [1, 4, 9],
    ]


# ---- losses ----------------------------------------------------------------------------------------------------------------
def test_cross_entropy_by_hand() -> None:
    scores = torch.tensor([[math.log(3.0), 0.0], [0.0, math.log(1.0)]])
    assert float(cross_entropy(scores, torch.tensor([0, 1]))) == pytest.approx(
        (math.log(4 / 3) + math.log(2)) / 2
    )


def test_sequences_are_laid_end_to_end() -> None:
    scores, labels = torch.randn(2, 5, 7), torch.randint(7, (2, 5))
    wanted = nn.functional.cross_entropy(
        scores.transpose(1, 2), labels
    )  # torch's own way to say it
    assert float(cross_entropy(scores, labels)) == pytest.approx(float(wanted), rel=1e-6)


@pytest.mark.parametrize("shape", [(4,), (4, 2, 3), (2, 3), (5, 3)])
def test_scores_that_do_not_fit_the_labels_are_told_so(shape: tuple[int, ...]) -> None:
    with pytest.raises(InvalidValue, match="needs scores of shape"):
        cross_entropy(torch.zeros(shape), torch.zeros(4, dtype=torch.int64))


def test_the_scores_are_found_in_whatever_a_model_returns() -> None:
    class Output:
        logits = torch.ones(2)

    one, two = torch.zeros(1), torch.ones(2)
    assert logits_of(one) is one
    assert logits_of((one, two)) is one
    assert logits_of([3, two]) is two
    assert logits_of({"hidden": one, "logits": two}) is two
    assert logits_of({"hidden": one}) is one
    assert logits_of(Output()) is Output.logits
    for nothing in (3, None, {}, (), {"logits": None}):
        with pytest.raises(InvalidValue, match="must be a tensor"):
            logits_of(nothing)


def test_a_loss_is_named_or_found_by_its_path() -> None:
    assert loss_of("cross-entropy") is cross_entropy
    assert (
        float(loss_of("torch.nn.functional:mse_loss")(torch.zeros(2), torch.full((2,), 3.0))) == 9.0
    )
    with pytest.raises(InvalidValue, match=r"training\.loss"):
        loss_of("torch.nn.functional:no_such_loss")
    with pytest.raises(InvalidValue, match=r"training\.loss"):
        loss_of("no_such_module:loss")
