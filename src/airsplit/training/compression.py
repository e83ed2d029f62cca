"""Smaller messages: activations and gradients in fewer bits, as they cross the cut.

    none   as they are
    fp16   16-bit floats times a power of two, one for each tensor, so that small gradients do not vanish
    bf16   16-bit floats with the range of 32-bit ones
    int8   whole numbers from -127 to 127 times a scale for each channel; where there are no channels, for each row;
           numbers with one axis are one row

Whole numbers and truth values always cross as they are, and so does what would not get smaller.  The simulator does the same as
the network does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

VALUES = {"fp16": torch.float16, "bf16": torch.bfloat16, "int8": torch.int8}
"""The type in which each way of compressing sends its values."""
SCALE = torch.float32
SMALLEST = torch.finfo(SCALE).tiny
"""The smallest number that a float has with all its digits, 2^-126."""


@dataclass(frozen=True, eq=False)
class Coded:
    """A tensor as it is sent: values in a smaller type, and what they are multiplied by."""

    values: Tensor
    scales: Tensor | None


def channel_axis(dims: int) -> int:
    """The axis along which int8 has its scales: samples come first, channels second.

    >>> channel_axis(4), channel_axis(2)
    (1, 0)
    """
    return 1 if dims > 2 else 0


def scale_count(shape: Sequence[int], compression: str) -> int:
    """How many scales go with a tensor of this shape, which has an axis at least.

    >>> [scale_count(shape, "int8") for shape in ((32, 16, 8, 8), (32, 10), (32,))], scale_count((32, 10), "fp16")
    ([16, 32, 1], 1)
    """
    channels = shape[channel_axis(len(shape))] if len(shape) > 1 else 1
    return {"bf16": 0, "fp16": 1}.get(compression, channels)


def applies(tensor: Tensor, compression: str) -> bool:
    """Whether a tensor is changed by compression: floats that take fewer bytes after it, scales included.

    >>> [applies(torch.zeros(32, features), "int8") for features in (1, 2)]
    [False, True]
    """
    if compression == "none" or not tensor.is_floating_point() or not tensor.dim():
        return False
    scales_bytes = SCALE.itemsize * scale_count(tensor.shape, compression)
    return (
        tensor.numel() * VALUES[compression].itemsize + scales_bytes
        < tensor.numel() * tensor.dtype.itemsize
    )


def coded(tensor: Tensor, compression: str) -> Coded:
    """A tensor in fewer bits.

    >>> coded(torch.tensor([[1.0, -0.5]]), "int8").values
    tensor([[127, -64]], dtype=torch.int8)
    """
    tensor = tensor.detach()
    if compression == "bf16":
        return Coded(tensor.to(torch.bfloat16), None)
    wide = tensor.to(torch.float32)
    if compression == "fp16":
        scales = _power_of_two(wide.abs().amax().reshape(1))
        return Coded((wide / scales).to(torch.float16), scales)
    axis = channel_axis(wide.dim())
    largest = wide.abs().amax(dim=[at for at in range(wide.dim()) if at != axis]).reshape(-1)
    scales = (largest / 127).clamp(
        min=SMALLEST
    )  # below that a scale is too coarse to keep values within 127
    return Coded((wide / along(scales, wide.dim(), axis)).round_().to(torch.int8), scales)


def _power_of_two(largest: Tensor) -> Tensor:
    """The scale that brings the largest number just below 2^15, so that small ones keep clear of where 16 bits end.

    >>> _power_of_two(torch.tensor([1.0, 0.75])) * 2**15
    tensor([2., 1.])
    """
    exponents = torch.frexp(largest).exponent - 15
    scales = torch.exp2(exponents.clamp(min=-126).to(SCALE))
    return torch.where(torch.isfinite(largest), scales, largest)


def decoded(sent: Coded, dtype: torch.dtype) -> Tensor:
    """What arrives; a number that was not finite makes its whole channel, or tensor, not finite, so that it is seen."""
    values = sent.values.to(torch.float32)
    if sent.scales is None:
        return values.to(dtype)
    if sent.values.dtype == torch.int8:
        return (values * along(sent.scales, values.dim(), channel_axis(values.dim()))).to(dtype)
    return (values * sent.scales).to(dtype)


def carried(tensor: Tensor, compression: str) -> Tensor:
    """A tensor after it has crossed: in one piece, and with what compression has made of its values.

    >>> carried(torch.tensor([1.0, 0.3]), "bf16")
    tensor([1.0000, 0.3008])
    """
    tensor = tensor.detach().contiguous()
    return (
        decoded(coded(tensor, compression), tensor.dtype)
        if applies(tensor, compression)
        else tensor
    )


def along(scales: Tensor, dims: int, axis: int) -> Tensor:
    """Scales, shaped so that each goes with its channel."""
    return scales.reshape([-1 if at == axis else 1 for at in range(dims)])
