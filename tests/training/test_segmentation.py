"""Several labels a sample: segmentation in torch's own layout, and with classes last."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import nn

from airsplit import InvalidValue, Scenario, simulate
from airsplit.runs.record import RoundRecord
from airsplit.training.coordinator import Training
from airsplit.training.losses import cross_entropy, right_answers
from training import tiny

HERE = __name__
HEIGHT, WIDTH = 6, 5


def square() -> Any:
    return tiny.shaded(12, 1, 3, 3), tiny.shaded(12, 2, 3, 3)


def partly_labelled() -> Any:
    (inputs, labels), (others, answers) = tiny.pixels()
    labels, answers = labels.clone(), answers.clone()
    labels[:, 0], answers[:, :3] = -100, -100
    return (inputs, labels), (others, answers)


def with_the_usual_void() -> Any:
    (inputs, labels), test = tiny.pixels()
    labels = labels.clone()
    labels[3, 2, 1] = 255
    return (inputs, labels), test


def scenario(
    data: str = f"{tiny.__name__}:pixels", *, last: bool = False, **changes: Any
) -> Scenario:
    training = {"rounds": 6, "iterations_per_round": 3, "learning_rate": 0.5, "dataset": data}
    return tiny.scenario(
        "segmenter", "pixels", [1, 1, 2], model__arguments={"last": last}, **training | changes
    )


def records(data: str = f"{tiny.__name__}:pixels", **changes: Any) -> list[RoundRecord]:
    return list(simulate(scenario(data, **changes)))


@pytest.mark.parametrize("iterations", [1, 3])
@pytest.mark.parametrize("algorithm", ["sfl", "fedavg"])
def test_segmentation_in_the_layout_of_torch_learns(algorithm: str, iterations: int) -> None:
    made = records(algorithm=algorithm, iterations_per_round=iterations, rounds=30 // iterations)
    assert made[0].test_accuracy is not None
    assert made[-1].test_accuracy is not None
    assert made[-1].test_accuracy > max(0.85, made[0].test_accuracy)
    assert made[-1].test_loss < 0.6 * made[0].test_loss  # type: ignore[operator]


@pytest.mark.parametrize("iterations", [1, 3])
def test_both_layouts_train_to_the_same_numbers(iterations: int) -> None:
    first = records(iterations_per_round=iterations, rounds=3)
    last = records(iterations_per_round=iterations, rounds=3, last=True)
    for one, other in zip(first, last, strict=True):
        assert one.train_loss == pytest.approx(other.train_loss, rel=1e-6)
        assert one.test_loss == pytest.approx(other.test_loss, rel=1e-6)
        assert one.test_accuracy == other.test_accuracy


def test_both_layouts_have_the_loss_and_the_gradients_of_torch() -> None:
    scores, labels = (
        torch.randn(4, tiny.CLASSES, HEIGHT, WIDTH, dtype=torch.float64),
        torch.randint(tiny.CLASSES, (4, HEIGHT, WIDTH)),
    )
    labels[0, 0, 0] = -100
    gradients = []
    for moved, loss in (
        (scores, nn.functional.cross_entropy),
        (scores, cross_entropy),
        (scores.movedim(1, -1).contiguous(), cross_entropy),
    ):
        leaf = moved.clone().requires_grad_()
        lost = loss(leaf, labels)
        lost.backward()
        assert leaf.grad is not None
        gradients.append(
            (lost.detach(), leaf.grad if moved is scores else leaf.grad.movedim(-1, 1))
        )
    wanted, *found = gradients
    for lost, gradient in found:
        torch.testing.assert_close(lost, wanted[0])
        torch.testing.assert_close(gradient, wanted[1])


def test_accuracy_is_of_pixels_in_the_mean_over_the_devices_models() -> None:
    training = Training(scenario(rounds=2))
    (*_, last) = training.rounds()
    _, (inputs, labels) = tiny.pixels()
    right = []
    for k in range(3):
        model = tiny.segmenter()
        model.load_state_dict(
            {
                name.removeprefix("model:"): tensor
                for name, tensor in training.state.of(k).items()
                if "model:" in name
            }
        )
        with torch.no_grad():
            right.append(float((model(inputs).argmax(dim=1) == labels).double().mean()))
    assert last.test_accuracy == pytest.approx(sum(right) / 3, abs=1e-12)
    assert last.test_accuracy_worst == pytest.approx(min(right), abs=1e-12)
    assert (
        last.own_accuracy is None
    )  # no device has one mix of classes that its samples are drawn by


def test_pixels_that_are_not_labelled_count_for_nothing() -> None:
    made = records(f"{HERE}:partly_labelled")
    assert made[-1].test_accuracy is not None
    assert made[-1].test_accuracy > 0.6  # half of the test set's pixels can never be right


# ---- which axis ------------------------------------------------------------------------------------------------------------
def test_where_both_axes_fit_one_note_says_which_is_taken() -> None:
    what = r"output of shape \(2, 3, 3, 3\) for labels of shape \(2, 3, 3\) may have its classes last, .*; the last axis is taken, and"
    with pytest.warns(UserWarning, match=what) as told:
        list(simulate(scenario(f"{HERE}:square", rounds=2, model__input_shape=[1, 3, 3])))
    assert len(told) == 1


def test_where_both_axes_fit_the_last_is_taken() -> None:
    scores, labels = torch.randn(2, 4, 4), torch.randint(4, (2, 4))
    wanted = nn.functional.cross_entropy(scores.flatten(0, 1), labels.flatten())
    assert torch.equal(cross_entropy(scores, labels), wanted)
    hit = right_answers(scores, labels)
    assert hit is not None
    assert torch.equal(hit, scores.argmax(dim=-1) == labels)


def test_one_axis_that_fits_needs_no_note() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Training(scenario())


# ---- refused before training -----------------------------------------------------------------------------------------------
def test_scores_of_another_size_are_refused_with_the_shapes_found_and_wanted() -> None:
    wanted = r"scores of shape \(2, 3, 5, classes\) or \(2, classes, 3, 5\) for labels of shape \(2, 3, 5\), got \(2, 3, 6, 5\)"
    with pytest.raises(
        InvalidValue,
        match=rf"^training\.dataset .*smaller_labels': training\.loss \"cross-entropy\" needs {wanted}",
    ):
        Training(scenario(f"{HERE}:smaller_labels"))


def smaller_labels() -> Any:
    (inputs, labels), (others, answers) = tiny.pixels()
    return (inputs, labels[:, ::2]), (others, answers[:, ::2])


def test_a_label_beyond_the_classes_says_how_pixels_of_no_class_are_written() -> None:
    with pytest.raises(
        InvalidValue,
        match=r"below the number of classes .*, 3, got 255; .* or write -100 where a label is to count",
    ):
        Training(scenario(f"{HERE}:with_the_usual_void"))
