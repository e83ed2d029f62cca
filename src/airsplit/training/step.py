"""The split step: forward on the device, loss and backward on the server, backward on the device.

Its three parts are what a real network puts on two machines; together they give exactly the gradients of the unsplit model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from airsplit.core.errors import InvalidValue, show
from airsplit.training.compression import carried
from airsplit.training.losses import Loss

DEVICE_FORWARD, SERVER_STEP, DEVICE_BACKWARD = "training step", "server step", "backward step"
"""The three parts, which draw random numbers of their own: they may run on different machines."""

Chance = Callable[[str], AbstractContextManager[None]]
"""For each part a context with its random numbers."""

Tensors = tuple[Tensor, ...]


class NonFinite(Exception):
    """A number that is not finite, and where it was seen: "activations" or "loss"."""


def device_forward(front: nn.Module, inputs: Tensors) -> Tensors:
    """What the device computes, with its graph; it sends the values."""
    crossing: Tensors = front(*inputs)
    return crossing


def sent(crossing: Sequence[Tensor], compression: str = "none") -> Tensors:
    """What arrives at the server: the values, and a place for the gradient of each that leads to a trained parameter."""
    return tuple(
        carried(tensor, compression).requires_grad_(tensor.requires_grad) for tensor in crossing
    )


def server_step(
    back: Callable[..., Any], loss: Loss, arrived: Tensors, labels: Tensor
) -> tuple[float, list[Tensor | None]]:
    """Loss and backward pass on the server: the loss, and the gradient of each tensor that arrived."""
    require_finite(arrived)
    lost = loss(back(*arrived), labels)
    if not isinstance(lost, Tensor) or lost.numel() != 1 or not lost.requires_grad:
        rule = "one number, as a tensor, that depends on a parameter which is trained"
        raise InvalidValue(f"training.loss must return {rule}, got {show(lost)}")
    value = float(lost.detach())
    if not math.isfinite(value):
        raise NonFinite("loss")
    lost.backward()  # type: ignore[no-untyped-call]
    return value, [tensor.grad for tensor in arrived]


def device_backward(crossing: Tensors, gradients: Sequence[Tensor | None]) -> None:
    """The backward pass on the device, from the gradients that came back."""
    pairs = [
        (tensor, gradient)
        for tensor, gradient in zip(crossing, gradients, strict=True)
        if gradient is not None
    ]
    if pairs:
        torch.autograd.backward(
            [tensor for tensor, _ in pairs], [gradient for _, gradient in pairs]
        )


def as_it_comes(part: str) -> AbstractContextManager[None]:  # noqa: ARG001 - one shape for all
    """Random numbers from wherever torch's generators are."""
    return nullcontext()


def split_step(
    front: nn.Module,
    back: nn.Module,
    loss: Loss,
    inputs: Tensors,
    labels: Tensor,
    compression: str = "none",
    chance: Chance = as_it_comes,
) -> float:
    """All three parts: the gradients are in .grad, the loss comes back."""
    with chance(DEVICE_FORWARD):
        crossing = device_forward(front, inputs)
    with chance(SERVER_STEP):
        value, gradients = server_step(back, loss, sent(crossing, compression), labels)
    with chance(DEVICE_BACKWARD):
        device_backward(
            crossing,
            [
                None if gradient is None else carried(gradient, compression)
                for gradient in gradients
            ],
        )
    return value


def require_finite(tensors: Sequence[Tensor]) -> None:
    if not are_finite(tensors):
        raise NonFinite("activations")


def are_finite(tensors: Iterable[Tensor]) -> bool:
    """Whether all numbers are finite: by the largest of each, which takes a tenth of the time of torch.isfinite.

    They are looked at together: to look stops a GPU.
    """
    largest = [
        _largest(tensor)
        for tensor in tensors
        if tensor.numel() and (tensor.is_floating_point() or tensor.is_complex())
    ]
    return not largest or all(map(math.isfinite, torch.stack(largest).tolist()))


def _largest(tensor: Tensor) -> Tensor:
    return tensor.detach().abs().amax().double()


def is_finite(tensor: Tensor) -> bool:
    """
    >>> is_finite(torch.tensor([1.0, float("nan")]))
    False
    """
    return are_finite([tensor])
