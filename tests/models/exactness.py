"""An oracle for cuts: compare a split step, as the network does it, with the unsplit model."""

from collections.abc import Iterable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import airsplit as air
from airsplit.core.errors import InvalidValue
from airsplit.models.cut import Back, Front, cut_in_halves
from airsplit.models.example_inputs import make_example_inputs
from airsplit.models.splits import ModelSplits, find_splits
from airsplit.models.tracing.tensors import list_tensors

Gradients = dict[str, Tensor | None]


def find_model_splits(model: nn.Module, *inputs: Tensor) -> ModelSplits:
    return find_splits(model, make_example_inputs(model, None, inputs))


def assert_exact(
    model: nn.Module,
    *inputs: Tensor,
    modes: tuple[bool, ...] = (False, True),
    differs_in_training: bool = False,
) -> ModelSplits:
    """Assert that the model is the same at every split as without a cut.

    Outputs, gradients, statistics and random draws are compared in both modes.

    Args:
        differs_in_training: Whether the model sends other tensors in training mode than the
            profile says, which is that of evaluation mode.
    """
    splits = find_model_splits(model, *inputs)
    profile = splits.profile()
    before = copy_buffers(model)
    for training in modes:
        restore_buffers(model, before)
        model.train(training)
        output, weights, gradients = run_unsplit_step(model, inputs)
        after = copy_buffers(model)
        for split in range(1, len(profile) + 1):
            name = profile.names[split - 1]
            restore_buffers(model, before)
            front, back = cut_in_halves(splits, split)
            assert_apart(model, front, back, int(profile.parameters[:split].sum()))
            sent, split_output = run_split_step(front, back, inputs, weights)
            elements = sum(tensor.numel() for tensor in sent)
            if not (training and differs_in_training):
                assert elements == len(inputs[0]) * profile.activation_elements[split - 1], name
            assert_same(list_tensors(split_output), list_tensors(output), name)
            assert_same_gradients(gradients_of(model), gradients, name)
            assert_same(model.buffers(), after, name)
    return splits


def assert_rejected(model: nn.Module, message: str) -> None:
    """Assert that a model for samples of eight numbers is rejected in one line."""
    with pytest.raises(InvalidValue, match=message) as caught:
        air.profile(model, (8,))
    assert "\n" not in str(caught.value)


def copy_buffers(model: nn.Module) -> list[Tensor]:
    return [buffer.clone() for buffer in model.buffers()]


def restore_buffers(model: nn.Module, buffers: list[Tensor]) -> None:
    for buffer, value in zip(model.buffers(), buffers, strict=True):
        buffer.copy_(value)


def run_unsplit_step(
    model: nn.Module, inputs: tuple[Tensor, ...]
) -> tuple[Any, list[Tensor], Gradients]:
    """Return output, random weights of its elements in the loss, and gradients."""
    model.zero_grad()
    torch.manual_seed(5)
    output = model(*inputs)
    weights = [torch.randn(tensor.shape, dtype=tensor.dtype) for tensor in _floats(output)]
    loss_of(output, weights).backward()
    return output, weights, gradients_of(model)


def run_split_step(
    front: Front, back: Back, inputs: tuple[Tensor, ...], weights: list[Tensor]
) -> tuple[tuple[Tensor, ...], Any]:
    """Run the device's forward pass, the server's step, and the device's backward pass.

    Returns what the device sent, and the output.
    """
    front.zero_grad()
    back.zero_grad()
    torch.manual_seed(5)
    sent = front(*inputs)
    received = [tensor.detach().clone().requires_grad_(tensor.requires_grad) for tensor in sent]
    output = back(*received)
    loss = loss_of(output, weights)
    if loss.requires_grad:
        loss.backward()
    returned = [
        (tensor, copied.grad)
        for tensor, copied in zip(sent, received, strict=True)
        if copied.grad is not None
    ]
    # Nothing comes back to a front without parameters.
    if returned:
        torch.autograd.backward(
            [tensor for tensor, _ in returned], [gradient for _, gradient in returned]
        )
    return sent, output


def loss_of(output: Any, weights: list[Tensor]) -> Tensor:
    return torch.stack(
        [
            (tensor * weight).sum().real.float()
            for tensor, weight in zip(_floats(output), weights, strict=True)
        ]
    ).sum()


def gradients_of(model: nn.Module) -> Gradients:
    return {name: p.grad for name, p in model.named_parameters()}


def assert_apart(
    model: nn.Module, front: nn.Module, back: nn.Module, parameters_in_front: int
) -> None:
    """Assert that each parameter is the model's own, on one side, under its name."""
    front_ids = {id(p) for p in front.parameters()}
    back_ids = {id(p) for p in back.parameters()}
    assert not front_ids & back_ids
    assert front_ids | back_ids == {id(p) for p in model.parameters()}
    assert sum(p.numel() for p in front.parameters()) == parameters_in_front
    assert front.state_dict().keys() | back.state_dict().keys() == model.state_dict().keys()


def assert_same(actual: Iterable[Tensor], expected: Iterable[Tensor], name: str) -> None:
    for tensor, expected_tensor in zip(actual, expected, strict=True):
        torch.testing.assert_close(tensor, expected_tensor, msg=lambda text: f"{name}: {text}")


def assert_same_gradients(actual: Gradients, expected: Gradients, name: str) -> None:
    def names_with_gradient(gradients: Gradients) -> set[str]:
        return {key for key, gradient in gradients.items() if gradient is not None}

    assert names_with_gradient(actual) == names_with_gradient(expected), name
    largest = max(
        (float(value.abs().max()) for value in expected.values() if value is not None), default=0.0
    )
    for key, value in expected.items():
        if value is not None and not torch.equal(actual[key], value):  # type: ignore[arg-type]
            # Small next to the largest of all gradients, a gradient may be cancelled noise.
            size = float(value.abs().max())
            torch.testing.assert_close(
                actual[key],
                value,
                rtol=1e-4,
                atol=1e-5 * size + 1e-6 * largest,
                msg=lambda t, k=key: f"{name}, {k}: {t}",
            )


def _floats(output: Any) -> list[Tensor]:
    return [
        tensor
        for tensor in list_tensors(output)
        if tensor.is_floating_point() and tensor.requires_grad
    ]
