"""Convolutions and pooling of many devices at once, with the devices folded into the channels.

vmap makes one grouped convolution of convolutions whose kernels differ from device to device.  cuDNN is quick at it where the
channels of a pixel, of all devices, lie side by side in memory.  One convolution by itself gains nothing, since its numbers must be
laid out anew; a network that stays in this layout does: whole rounds at split 15 are a sixth to a quarter quicker (docs/gpus.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

LEAST_CHANNELS = 16
"""With fewer, as in a first layer, the usual layout is as quick, and nothing need be laid out anew."""


POOLING: tuple[object, ...] = (
    functional.max_pool2d,
    functional.avg_pool2d,
    functional.adaptive_avg_pool2d,
)


class Folding(TorchFunctionMode):
    """A context in which vmapped convolutions and pooling are computed with the devices folded into the channels."""

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        given = kwargs or {}
        if function is torch.conv2d and not given and _suits(*args):
            return _Convolution.apply(*_cast(*args[:3]), *args[3:])  # type: ignore[no-untyped-call]
        if (
            function in POOLING
            and args
            and _is_stacked(args[0])
            and args[0].dim() == 4
            and not given.get("return_indices")
        ):
            return _Pooling.apply(args[0], partial(_pooled, function, args[1:], given))  # type: ignore[no-untyped-call]
        if function is Tensor.view and not given and not isinstance(args[1], torch.dtype):
            return args[0].reshape(
                *args[1:]
            )  # what was folded does not lie in memory as the model thinks
        if function is functional.group_norm and args and _is_stacked(args[0]):
            args = (args[0].contiguous(), *args[1:])
        return function(*args, **given)


def _pooled(
    function: Callable[..., Tensor], more: tuple[Any, ...], options: dict[str, Any], x: Tensor
) -> Tensor:
    return function(x, *more, **options)


def _suits(x: Tensor, weight: Tensor, bias: Tensor | None = None, *options: Any) -> bool:
    """Whether devices have kernels of their own, with many channels; `options` are stride, padding, dilation and groups."""
    ungrouped = len(options) < 4 or options[3] == 1
    stacked = _is_stacked(x) and _is_stacked(weight) and (bias is None or _is_stacked(bias))
    return stacked and ungrouped and x.dim() == 4 and weight.shape[1] >= LEAST_CHANNELS


def _is_stacked(tensor: Tensor) -> bool:
    return torch._C._functorch.is_batchedtensor(tensor)


def _cast(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> tuple[Tensor | None, ...]:
    """As autocast would: it does not look into functions like the one below."""
    kind = x.device.type
    if not torch.is_autocast_enabled(kind) or x.dtype == torch.float64:
        return x, weight, bias
    dtype = torch.get_autocast_dtype(kind)
    return tuple(None if tensor is None else tensor.to(dtype) for tensor in (x, weight, bias))


class _Folded(torch.autograd.Function):
    """A function of which only the vmapped form is used; its gradient is that of the operations in it."""

    @staticmethod
    def forward(*given: Any) -> Tensor:
        raise NotImplementedError

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        raise NotImplementedError


class _Convolution(_Folded):
    @staticmethod
    def vmap(
        info: Any,
        in_dims: tuple[int | None, ...],
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        *options: Any,
    ) -> tuple[Tensor, int]:
        kernels = (
            weight.movedim(_axis(in_dims[1]), 0)
            .flatten(0, 1)
            .contiguous(memory_format=torch.channels_last)
        )
        biases = None if bias is None else bias.movedim(_axis(in_dims[2]), 0).flatten()
        folded = _folded(x, _axis(in_dims[0])).contiguous(memory_format=torch.channels_last)
        convolve: Callable[..., Tensor] = functional.conv2d
        made = convolve(folded, kernels, biases, *options[:3], groups=info.batch_size)
        return _unfolded(made, info.batch_size), 1


class _Pooling(_Folded):
    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], x: Tensor, pooled: Callable[[Tensor], Tensor]
    ) -> tuple[Tensor, int]:
        return _unfolded(pooled(_folded(x, _axis(in_dims[0]))), info.batch_size), 1


def _axis(dim: int | None) -> int:
    assert dim is not None  # noqa: S101 - it was looked at before
    return dim


def _folded(x: Tensor, axis: int) -> Tensor:
    """Samples × devices and channels × height × width."""
    return x.movedim(axis, 1).flatten(1, 2)


def _unfolded(x: Tensor, devices: int) -> Tensor:
    """Samples × devices × channels × height × width."""
    return x.view(x.shape[0], devices, -1, *x.shape[2:])


@contextmanager
def best_algorithms() -> Iterator[None]:
    """A context in which cuDNN tries its algorithms and takes the quickest: shapes stay the same from step to step."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


@contextmanager
def full_precision() -> Iterator[None]:
    """A context in which nothing is rounded more than float32 rounds it."""
    convolutions, products = torch.backends.cudnn.allow_tf32, torch.get_float32_matmul_precision()
    torch.backends.cudnn.allow_tf32 = False
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = convolutions
        torch.set_float32_matmul_precision(products)
