"""What is checked before a training begins, where a GPU could not say it later."""

from __future__ import annotations

import pytest
import torch

from airsplit.core.errors import InvalidValue
from airsplit.data.datasets import Samples, pass_through
from airsplit.training.setup import replica_of, require_labels
from training import tiny


def samples(labels: torch.Tensor) -> Samples:
    return Samples((torch.zeros(len(labels), tiny.FEATURES),), labels, pass_through)


def test_labels_beyond_the_models_classes_are_told_before_any_round() -> None:
    replica, _ = replica_of(tiny.scenario())
    require_labels(replica, samples(torch.tensor([0, 1, 2, 2])), "mine:data")
    with pytest.raises(
        InvalidValue,
        match=r"training\.dataset 'mine:data': labels must be below the number of classes",
    ):
        require_labels(
            replica, samples(torch.tensor([0, 1, 2, 3])), "mine:data"
        )  # also where the samples that are tried have none


@pytest.mark.parametrize(
    ("labels", "why"),
    [
        (torch.full((4,), 1.0), "needs labels that are whole numbers, got float32"),
        (
            torch.full((4, 2), 1),
            r"needs scores of shape \(2, 2, classes\) or \(2, classes, 2\) for labels of shape \(2, 2\), got \(2, 3\)",
        ),
        (torch.tensor([0, 1, -1, 2]), "labels must be classes, numbered from 0, got -1"),
    ],
    ids=["numbers", "a row of them", "below zero"],
)
def test_labels_that_cross_entropy_cannot_compare_are_refused_before_any_round(
    labels: torch.Tensor, why: str
) -> None:
    replica, _ = replica_of(tiny.scenario())
    with pytest.raises(InvalidValue, match=rf"training\.dataset 'mine:data': .*{why}"):
        require_labels(replica, samples(labels), "mine:data")


def test_without_samples_there_is_nothing_to_check() -> None:
    replica, _ = replica_of(tiny.scenario())
    assert require_labels(replica, samples(torch.empty(0, dtype=torch.int64)), "mine:data") is None


def test_a_loss_of_the_users_own_knows_its_labels_itself() -> None:
    replica, _ = replica_of(tiny.scenario(loss="training.tiny:flat_loss"))
    require_labels(replica, samples(torch.full((4,), 9)), "mine:data")


def test_a_model_that_fails_is_left_to_the_training_which_says_where() -> None:
    replica, _ = replica_of(tiny.scenario())
    wrong = Samples((torch.zeros(4, tiny.FEATURES + 1),), torch.tensor([9, 9, 9, 9]), pass_through)
    require_labels(replica, wrong, "mine:data")


def test_the_model_is_left_as_it_was() -> None:
    replica, _ = replica_of(tiny.scenario(model="norm_mlp"))
    before = {name: tensor.clone() for name, tensor in replica.tensors.items()}
    require_labels(replica, samples(torch.tensor([0, 1, 2, 2])), "mine:data")
    assert replica.model.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in replica.tensors.items())
