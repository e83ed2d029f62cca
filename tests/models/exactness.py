"""The oracle for cuts: a split step, done as the network does it, against the unsplit model."""

from collections.abc import Iterable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from airsplit.core.errors import InvalidValue
from airsplit.models.cut import Back, Front, cut_in_halves
from airsplit.models.inputs import make_example_inputs
from airsplit.models.profiling import profile
from airsplit.models.splits import ModelSplits, find_splits
from airsplit.models.tracing.tensors import list_tensors

Gradients = dict[str, Tensor | None]


def look_at(model: nn.Module, *inputs: Tensor) -> ModelSplits:
    return find_splits(model, make_example_inputs(model, None, inputs))


def assert_exact(
    model: nn.Module,
    *inputs: Tensor,
    modes: tuple[bool, ...] = (False, True),
    differs_in_training: bool = False,
) -> ModelSplits:
    """At every split and in both modes: outputs, gradients, statistics and random draws are those of the unsplit model."""
    found = look_at(model, *inputs)
    table, before = found.profile(), buffers_of(model)
    for training in modes:
        put_back(model, before)
        model.train(training)
        output, weights, gradients = whole_step(model, inputs)
        after = buffers_of(model)
        for split in range(1, len(table) + 1):
            name = table.names[split - 1]
            put_back(model, before)
            front, back = cut_in_halves(found, split)
            assert_apart(model, front, back, int(table.parameters[:split].sum()))
            sent, received = split_step(front, back, inputs, weights)
            elements = sum(tensor.numel() for tensor in sent)
            if not (training and differs_in_training):
                assert elements == len(inputs[0]) * table.activation_elements[split - 1], name
            assert_same(list_tensors(received), list_tensors(output), name)
            assert_same_gradients(gradients_of(model), gradients, name)
            assert_same(model.buffers(), after, name)
    return found


def assert_refused(model: nn.Module, message: str) -> None:
    """A model for samples of eight numbers that cannot be followed is told so in one line."""
    with pytest.raises(InvalidValue, match=message) as caught:
        profile(model, (8,))
    assert "\n" not in str(caught.value)


def buffers_of(model: nn.Module) -> list[Tensor]:
    return [buffer.clone() for buffer in model.buffers()]


def put_back(model: nn.Module, buffers: list[Tensor]) -> None:
    for buffer, value in zip(model.buffers(), buffers, strict=True):
        buffer.copy_(value)


def whole_step(model: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Any, list[Tensor], Gradients]:
    """Output, the weights of its elements in the loss, and the gradients of the unsplit model."""
    model.zero_grad()
    torch.manual_seed(5)
    output = model(*inputs)
    weights = [torch.randn(tensor.shape, dtype=tensor.dtype) for tensor in _floats(output)]
    loss_of(output, weights).backward()
    return output, weights, gradients_of(model)


def split_step(
    front: Front, back: Back, inputs: tuple[Tensor, ...], weights: list[Tensor]
) -> tuple[tuple[Tensor, ...], Any]:
    """The device's forward pass, the server's step on what it received, and the device's backward pass; what was sent, the output."""
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
        (tensor, copy_.grad)
        for tensor, copy_ in zip(sent, received, strict=True)
        if copy_.grad is not None
    ]
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
    """Every parameter is on one side, under the model's name, and is the model's own."""
    of_front, of_back = ({id(p) for p in half.parameters()} for half in (front, back))
    assert not of_front & of_back
    assert of_front | of_back == {id(p) for p in model.parameters()}
    assert sum(p.numel() for p in front.parameters()) == parameters_in_front
    assert front.state_dict().keys() | back.state_dict().keys() == model.state_dict().keys()


def assert_same(found: Iterable[Tensor], wanted: Iterable[Tensor], name: str) -> None:
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, msg=lambda text: f"{name}: {text}")


def assert_same_gradients(found: Gradients, wanted: Gradients, name: str) -> None:
    assert {key for key, value in found.items() if value is not None} == {
        key for key, value in wanted.items() if value is not None
    }, name
    largest = max(
        (float(value.abs().max()) for value in wanted.values() if value is not None), default=0.0
    )
    for key, value in wanted.items():
        if value is not None and not torch.equal(found[key], value):  # type: ignore[arg-type]
            size = float(value.abs().max())
            torch.testing.assert_close(
                found[key],
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
