"""The wire: tensors to messages and back, and messages to pieces and back.  Everything that arrives is checked before it is used.

Nothing is unpickled, no size is believed: a tensor's data must have exactly the bytes that its header says.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np
import torch
from google.protobuf.message import DecodeError
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from airsplit.errors import AirsplitError, InvalidValue, show
from airsplit.learn.compression import SCALE, VALUES, Coded, applies, coded, decoded, scale_count
from airsplit.network import airsplit_pb2 as pb
from airsplit.network.pacing import TokenBucket, pieces

DTYPES: dict[str, torch.dtype] = {
    name: getattr(torch, name)
    for name in ("float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool", "complex64", "complex128")
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}

MAX_DIMS = 16
MAX_ELEMENTS = 1 << 40
HEADER_BYTES = 1 << 10
"""What a message may have besides its tensors' numbers, for each tensor."""
COPIED_BYTES = 1 << 12
"""Data shorter than this are copied: Python may share the memory of short ones."""

M = TypeVar("M", pb.DeviceMessage, pb.ServerMessage)


class Malformed(AirsplitError):
    """A message that is not what it should be."""


# ---- tensors ---------------------------------------------------------------------------------------------------------------
def encode(tensor: Tensor, compression: str = "none", *, wants_gradient: bool = False) -> pb.Tensor:
    """A tensor as a message, with a checked header: type, shape, and how its numbers are coded."""
    message = pb.Tensor()
    encode_into(message, tensor, compression, wants_gradient=wants_gradient)
    return message


def encode_into(message: pb.Tensor, tensor: Tensor, compression: str = "none", *, wants_gradient: bool = False) -> None:
    """The same into an empty message that is part of another: to put a finished one there would copy its numbers."""
    if tensor.dtype not in NAMES:
        raise InvalidValue(f"a tensor that is sent must be one of {', '.join(DTYPES)}, got {tensor.dtype}")
    tensor = tensor.detach()
    message.dtype, message.wants_gradient = NAMES[tensor.dtype], wants_gradient
    message.shape.extend(tensor.shape)
    if not applies(tensor, compression):
        message.data = _bytes(tensor)
        return
    sent = coded(tensor, compression)
    message.coding, message.data = compression, _bytes(sent.values)
    if sent.scales is not None:
        message.scales = _bytes(sent.scales)


def absent() -> pb.Tensor:
    """The gradient that there is none of."""
    return pb.Tensor(absent=True)


def decode(message: pb.Tensor) -> Tensor:
    """The tensor in a message; raises Malformed where header and data do not agree."""
    if message.absent:
        raise Malformed("a tensor must have data, got one that says it is absent")
    dtype, coding = DTYPES.get(message.dtype), message.coding
    if dtype is None:
        raise Malformed(f"a tensor's dtype must be one of {', '.join(DTYPES)}, got {_short(message.dtype)}")
    shape = _shape(message)
    if not coding:
        if message.scales:
            raise Malformed("a tensor that is sent as it is has no scales")
        return _tensor(message.data, dtype, shape)
    if coding not in VALUES or not dtype.is_floating_point:
        raise Malformed(f"a tensor's coding must be one of {', '.join(VALUES)}, of floats, got {_short(coding)} of {message.dtype}")
    if not math.prod(shape) or not shape:
        raise Malformed("a tensor that is empty, or one number, is sent as it is")
    values = _tensor(message.data, VALUES[coding], shape)
    scales = _tensor(message.scales, SCALE, (scale_count(shape, coding),))
    return decoded(Coded(values, scales if len(scales) else None), dtype)


def _shape(message: pb.Tensor) -> tuple[int, ...]:
    """The shape that a header claims; an empty tensor must not have huge axes either, since strides are their products."""
    if len(message.shape) > MAX_DIMS:
        raise Malformed(f"a tensor must have at most {MAX_DIMS} axes, got {len(message.shape)}")
    shape = tuple(message.shape)
    if math.prod(max(length, 1) for length in shape) > MAX_ELEMENTS:
        raise Malformed(f"a tensor must have at most {MAX_ELEMENTS} elements, got shape {show(shape)}")
    return shape


def decode_gradient(message: pb.Tensor) -> Tensor | None:
    """A gradient; None where there is none."""
    if message.absent and (message.data or message.shape):
        raise Malformed("a gradient that is absent must have no data and no shape")
    return None if message.absent else decode(message)


def _bytes(tensor: Tensor) -> bytes:
    """The numbers of a tensor, row by row."""
    if tensor.numel() == 0:
        return b""
    plain = tensor.resolve_conj().resolve_neg().contiguous().cpu()
    return plain.reshape(-1).view(torch.uint8).numpy().tobytes()


def _short(text: str) -> str:
    """Text from a message for an error, however long it is."""
    return show(text[:64])


def _tensor(data: bytes, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    """A tensor of these bytes; where they are many, in place: protobuf has made them for this call, nobody else has them."""
    wanted = math.prod(shape) * dtype.itemsize
    if len(data) != wanted:
        raise Malformed(f"a tensor of {NAMES[dtype]} and shape {show(shape)} must have {wanted} bytes, got {len(data)}")
    if not wanted:
        return torch.empty(shape, dtype=dtype)
    if dtype is torch.bool and data.translate(None, b"\0\1"):
        raise Malformed("truth values must be bytes of 0 or 1")
    if wanted < COPIED_BYTES:
        return torch.frombuffer(bytearray(data), dtype=dtype).reshape(shape)
    return from_dlpack(np.frombuffer(data, np.uint8)).view(dtype).reshape(shape)


# ---- several -----------------------------------------------------------------------------------------------------------------
def encode_named(tensors: Mapping[str, Tensor]) -> list[pb.NamedTensor]:
    """Tensors with their names, as they are: weights are never compressed."""
    messages = [pb.NamedTensor(name=name) for name in tensors]
    for message, tensor in zip(messages, tensors.values(), strict=True):
        encode_into(message.tensor, tensor)
    return messages


def decode_named(messages: Iterable[pb.NamedTensor], like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors in a message, which must be exactly those of `like`: names, types and shapes; all finite."""
    found: dict[str, Tensor] = {}
    for message in messages:
        wanted = like.get(message.name)
        if wanted is None or message.name in found:
            raise Malformed(f"a message must have the tensors that were asked for, once each, got {_short(message.name)}")
        found[message.name] = require_like(message.name, decode(message.tensor), wanted)
    missing = like.keys() - found.keys()
    if missing:
        raise Malformed(f"a message must have all tensors that were asked for, {show(min(missing))} is missing")
    return {name: found[name] for name in like}


def require_like(name: str, tensor: Tensor, like: Tensor) -> Tensor:
    """A tensor, if it has the type and shape of another, and is finite."""
    if tensor.dtype != like.dtype or tensor.shape != like.shape:
        wanted, got = (f"{tuple(each.shape)} of {NAMES.get(each.dtype, each.dtype)}" for each in (like, tensor))
        raise Malformed(f"{name} must be {wanted}, got {got}")
    if (tensor.is_floating_point() or tensor.is_complex()) and not bool(torch.isfinite(tensor).all()):
        raise Malformed(f"{name} must be finite")
    return tensor


def payload_bytes(tensors: Sequence[Tensor], compression: str = "none") -> int:
    """At most as many bytes as these tensors take in a message, headers included."""
    bits = {"fp16": 16, "bf16": 16, "int8": 8}
    total = 0
    for tensor in tensors:
        small = applies(tensor, compression)
        total += tensor.numel() * bits[compression] // 8 if small else tensor.numel() * tensor.dtype.itemsize
        total += HEADER_BYTES + (4 * max(tensor.shape, default=1) if small else 0)
    return total


# ---- pieces ------------------------------------------------------------------------------------------------------------------
def joined(messages: Iterable[M], limit_bytes: int) -> Iterator[M]:
    """Whole messages, where some came in pieces."""
    parts = bytearray()  # not a list: that would take many times the memory of pieces of a byte or two
    for message in messages:
        if message.WhichOneof("body") != "piece":
            if parts:
                raise Malformed("a message came between the pieces of another")
            yield message
            continue
        piece = message.piece.data
        if not piece:
            raise Malformed("a piece must have data")
        if len(parts) + len(piece) > limit_bytes:
            raise Malformed(f"a message in pieces must have at most {limit_bytes} bytes")
        parts += piece
        if message.piece.last:
            whole = parsed(type(message), parts)
            parts = bytearray()
            if whole.WhichOneof("body") == "piece":
                raise Malformed("a piece must not have pieces in it")
            yield whole
    if parts:
        raise Malformed("a message in pieces was cut short")


def paced(message: M, bucket: TokenBucket) -> Iterator[M]:
    """A message as it is or, where there is a rate to keep to, in pieces that come at that rate."""
    if math.isinf(bucket.rate_bps):
        yield message
        return
    data = message.SerializeToString()
    bucket.empty()
    left = len(data)
    for piece in pieces(data, bucket.rate_bps):
        left -= len(piece)
        bucket.take(len(piece))
        yield type(message)(piece=pb.Piece(data=piece, last=left == 0))


def parsed(kind: type[M], data: bytes | bytearray) -> M:
    """A message from its bytes."""
    try:
        return kind.FromString(data)  # type: ignore[arg-type]  # it takes any buffer
    except DecodeError:
        raise Malformed(f"bytes that are no {kind.__name__}") from None
