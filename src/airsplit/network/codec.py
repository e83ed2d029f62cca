"""The wire: tensors to messages and back, and messages to pieces and back.  Everything that arrives is checked before it is used.

Nothing is unpickled, no size is believed: a tensor's data must have exactly the bytes that its header says.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import torch
from google.protobuf.message import DecodeError
from torch import Tensor

from airsplit.errors import AirsplitError, show
from airsplit.learn.compression import VALUES, Coded, applies, channel_axis, coded, decoded
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


M = TypeVar("M", pb.DeviceMessage, pb.ServerMessage)


class Malformed(AirsplitError):
    """A message that is not what it should be."""


# ---- tensors ---------------------------------------------------------------------------------------------------------------
def encode(tensor: Tensor, compression: str = "none", *, wants_gradient: bool = False) -> pb.Tensor:
    """A tensor as a message, with a checked header: type, shape, and how its numbers are coded."""
    tensor = tensor.detach()
    header: dict[str, Any] = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape), "wants_gradient": wants_gradient}
    if not applies(tensor, compression):
        return pb.Tensor(data=_bytes(tensor), **header)
    sent = coded(tensor, compression)
    scales = b"" if sent.scales is None else _bytes(sent.scales)
    return pb.Tensor(data=_bytes(sent.values), scales=scales, coding=compression, **header)


def absent() -> pb.Tensor:
    """The gradient that there is none of."""
    return pb.Tensor(absent=True)


def decode(message: pb.Tensor) -> Tensor:
    """The tensor in a message; raises Malformed where header and data do not agree."""
    if message.absent:
        raise Malformed("a tensor must have data, got one that says it is absent")
    dtype, shape = DTYPES.get(message.dtype), tuple(message.shape)
    if dtype is None:
        raise Malformed(f"a tensor's dtype must be one of {', '.join(DTYPES)}, got {show(message.dtype)}")
    if len(shape) > MAX_DIMS or math.prod(shape) > MAX_ELEMENTS:
        raise Malformed(f"a tensor must have at most {MAX_DIMS} axes and {MAX_ELEMENTS} elements, got shape {show(shape)}")
    if not message.coding:
        if message.scales:
            raise Malformed("a tensor that is sent as it is has no scales")
        return _tensor(message.data, dtype, shape)
    if message.coding not in VALUES or not dtype.is_floating_point:
        raise Malformed(f"a tensor's coding must be one of {', '.join(VALUES)}, of floats, got {show(message.coding)} of {message.dtype}")
    values = _tensor(message.data, VALUES[message.coding], shape)
    if not shape or not values.numel():
        raise Malformed("a tensor that is empty, or one number, is sent as it is")
    return decoded(Coded(values, _scales(message, shape)), dtype)


def decode_gradient(message: pb.Tensor) -> Tensor | None:
    """A gradient; None where there is none."""
    return None if message.absent else decode(message)


def _scales(message: pb.Tensor, shape: tuple[int, ...]) -> Tensor | None:
    count = {"bf16": 0, "fp16": 1}.get(message.coding, shape[channel_axis(len(shape))])
    scales = _tensor(message.scales, torch.float32, (count,))
    return scales if count else None


def _bytes(tensor: Tensor) -> bytes:
    """The numbers of a tensor, row by row."""
    if tensor.numel() == 0:
        return b""
    return tensor.contiguous().cpu().reshape(-1).view(torch.uint8).numpy().tobytes()


def _tensor(data: bytes, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    wanted = math.prod(shape) * dtype.itemsize
    if len(data) != wanted:
        raise Malformed(f"a tensor of {NAMES[dtype]} and shape {show(shape)} must have {wanted} bytes, got {len(data)}")
    if not wanted:
        return torch.empty(shape, dtype=dtype)
    if dtype is torch.bool and data.translate(None, b"\0\1"):
        raise Malformed("truth values must be bytes of 0 or 1")
    return torch.frombuffer(bytearray(data), dtype=dtype).reshape(shape)


# ---- several -----------------------------------------------------------------------------------------------------------------
def encode_named(tensors: Mapping[str, Tensor]) -> list[pb.NamedTensor]:
    """Tensors with their names, as they are: weights are never compressed."""
    return [pb.NamedTensor(name=name, tensor=encode(tensor)) for name, tensor in tensors.items()]


def decode_named(messages: Iterable[pb.NamedTensor], like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors in a message, which must be exactly those of `like`: names, types and shapes; all finite."""
    found: dict[str, Tensor] = {}
    for message in messages:
        wanted = like.get(message.name)
        if wanted is None or message.name in found:
            raise Malformed(f"a message must have the tensors that were asked for, once each, got {show(message.name)}")
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
    if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
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
    parts: list[bytes] = []
    size = 0
    for message in messages:
        if message.WhichOneof("body") != "piece":
            if parts:
                raise Malformed("a message came between the pieces of another")
            yield message
            continue
        size += len(message.piece.data)
        if size > limit_bytes:
            raise Malformed(f"a message in pieces must have at most {limit_bytes} bytes")
        if not message.piece.data:
            raise Malformed("a piece must have data")
        parts.append(message.piece.data)
        if message.piece.last:
            whole = parsed(type(message), b"".join(parts))
            parts, size = [], 0
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


def parsed(kind: type[M], data: bytes) -> M:
    """A message from its bytes."""
    try:
        return kind.FromString(data)
    except DecodeError:
        raise Malformed(f"bytes that are no {kind.__name__}") from None
