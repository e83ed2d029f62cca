"""Convolutions whose kernels differ from device to device, as batches of matrix products.

vmap makes one grouped convolution of them, with a group for each device, for which cuDNN has slow kernels.  Where a pixel has many
channels, writing out the patches and multiplying is faster: on an H200 a third of the time for the last four of AlexNet's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad
from torch.overrides import TorchFunctionMode

LEAST_CHANNELS = 16
"""With fewer, as in a first layer, the patches are large beside the work."""


class PatchedConvolutions(TorchFunctionMode):
    """A context in which vmapped convolutions with many channels and stride 1 are matrix products of their patches."""

    def __torch_function__(self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.conv2d and not kwargs and _suits(*args):
            x, weight, bias, _, padding, *_ = args
            return _convolved(x, weight, bias, padding)
        return function(*args, **(kwargs or {}))


def _suits(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,  # noqa: ARG001 - as torch.conv2d has it
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> bool:
    """Whether it is a convolution of this kind, with a kernel for each device."""
    plain = _pair(stride) == _pair(dilation) == (1, 1) and groups == 1 and not isinstance(padding, str)
    if not plain or x.dim() != 4 or weight.shape[1] < LEAST_CHANNELS or not torch._C._functorch.is_batchedtensor(weight):
        return False
    return all(around < size for around, size in zip(_pair(padding), weight.shape[2:], strict=True))  # else the way back would crop


def _pair(value: Any) -> tuple[int, int]:
    """
    >>> _pair(2), _pair((1, 2)), _pair([3])
    ((2, 2), (1, 2), (3, 3))
    """
    several = tuple(value) if isinstance(value, tuple | list) else (value,)
    return (several[0], several[-1])


def _convolved(x: Tensor, weight: Tensor, bias: Tensor | None, padding: Any) -> Tensor:
    kind = x.device.type
    if torch.is_autocast_enabled(kind):
        dtype = torch.get_autocast_dtype(kind)
        x, weight, bias = x.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype)
    made: Tensor = _Convolution.apply(x, weight, *_pair(padding))  # type: ignore[no-untyped-call]
    return made if bias is None else made + bias.view(-1, 1, 1)


class _Convolution(torch.autograd.Function):
    """With stride 1 the gradient of the input is again a convolution: of the gradient, with the kernel turned around."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, weight: Tensor, above: int, left: int) -> Tensor:
        return _by_patches(x, weight, above, left)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG004 - one shape for all
        x, weight, ctx.above, ctx.left = inputs
        ctx.save_for_backward(x, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        height, width = weight.shape[2:]
        turned = weight.flip(2, 3).transpose(0, 1)
        of_input = _by_patches(gradient, turned, height - 1 - ctx.above, width - 1 - ctx.left) if ctx.needs_input_grad[0] else None
        patches = _patches(x, height, width, ctx.above, ctx.left)
        with _precise_as_convolutions():
            of_weight = gradient.movedim(1, 0).flatten(1) @ patches
        return of_input, of_weight.reshape(weight.shape), None, None


def _by_patches(x: Tensor, weight: Tensor, above: int, left: int) -> Tensor:
    filters, _, height, width = weight.shape
    patches = _patches(x, height, width, above, left)
    with _precise_as_convolutions():
        made = patches @ weight.reshape(filters, -1).T
    rows, columns = (size + 2 * around - side + 1 for size, around, side in zip(x.shape[2:], (above, left), (height, width), strict=True))
    return made.reshape(x.shape[0], rows, columns, filters).movedim(3, 1)


def _patches(x: Tensor, height: int, width: int, above: int, left: int) -> Tensor:
    """What the kernel sees at each place: samples · rows · columns × channels · height · width."""
    seen = pad(x, (left, left, above, above)).unfold(2, height, 1).unfold(3, width, 1)
    samples, _, rows, columns, _, _ = seen.shape
    return seen.permute(0, 2, 3, 1, 4, 5).reshape(samples * rows * columns, -1)


@contextmanager
def _precise_as_convolutions() -> Iterator[None]:
    """Matrix products may round their factors where torch lets convolutions do so."""
    before = torch.get_float32_matmul_precision()
    if before != "highest" or not torch.backends.cudnn.allow_tf32:
        yield
        return
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
