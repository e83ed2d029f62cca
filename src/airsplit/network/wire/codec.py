"""The wire: messages and their tensors to frames and back, and frames to pieces and back.  What arrives is checked before it is used.

Nothing is unpickled, and no size is believed: the numbers of a tensor must be where its header says, within what has arrived.

A Frame is written and read here by hand, as protobuf would: so the numbers of a tensor are copied once when they are sent, and
once at most when they arrive.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from google.protobuf.message import DecodeError, Message
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from airsplit.core.errors import AirsplitError, InvalidValue, show
from airsplit.network.wire import airsplit_pb2 as pb
from airsplit.network.wire.pacing import TokenBucket, pieces
from airsplit.training.compression import SCALE, VALUES, Coded, applies, coded, decoded, scale_count
from airsplit.training.step import is_finite

DTYPES: dict[str, torch.dtype] = {
    name: getattr(torch, name)
    for name in (
        "float16",
        "bfloat16",
        "float32",
        "float64",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "bool",
        "complex64",
        "complex128",
    )
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}

MAX_DIMS = 16
MAX_ELEMENTS = 1 << 40
HEADER_BYTES = 1 << 10
"""What a message may have besides its tensors' numbers, for each tensor."""
HEADER_LIMIT = 4 << 20
"""What a device lets a message have besides numbers: it cannot know the server's model."""
ALIGNED = 8
"""Numbers begin at multiples of so many bytes in the frame."""
TORCH_ALIGNED = 64
"""Where torch puts its own tensors: at multiples of so many bytes."""
LONGEST_LENGTH = 5
"""Bytes in which a length is written; protobuf reads no longer ones."""
PREFIX = 1 + LONGEST_LENGTH
"""Bytes before a payload: the field, and a length that takes as many bytes however long the payload is."""

P = TypeVar("P", bound=Message)


class Malformed(AirsplitError):
    """A message that is not what it should be."""


# ---- messages with tensors -------------------------------------------------------------------------------------------------------
class Outgoing(Generic[P]):
    """A message to be sent, and the numbers of its tensors, which are copied once: into the frame."""

    def __init__(self, message: P) -> None:
        self.message = message
        self._parts: list[bytes | memoryview] = []
        self._size = 0
        self._frame = b""

    def put(
        self,
        header: pb.Tensor,
        tensor: Tensor,
        compression: str = "none",
        *,
        wants_gradient: bool = False,
    ) -> None:
        """Add a tensor; `header`, which is part of the message, says what it is: type, shape, and how its numbers are coded."""
        if tensor.dtype not in NAMES:
            raise InvalidValue(
                f"a tensor that is sent must be one of {', '.join(DTYPES)}, got {tensor.dtype}"
            )
        tensor = tensor.detach()
        header.dtype, header.wants_gradient = NAMES[tensor.dtype], wants_gradient
        header.shape.extend(tensor.shape)
        if not applies(tensor, compression):
            header.at = self._add(tensor)
            return
        sent = coded(tensor, compression)
        header.coding, header.at = compression, self._add(sent.values)
        if sent.scales is not None:
            header.scales_at = self._add(sent.scales)

    def put_named(self, headers: Any, tensors: Mapping[str, Tensor]) -> None:
        """Add tensors with their names, as they are: weights are never compressed."""
        for name, tensor in tensors.items():
            self.put(headers.add(name=name).tensor, tensor)

    def _add(self, tensor: Tensor) -> int:
        """Where the numbers of a tensor begin."""
        gap = -(PREFIX + self._size) % ALIGNED
        if gap:
            self._parts.append(bytes(gap))
        at = self._size + gap
        data = _numbers(tensor)
        self._parts.append(data)
        self._size = at + len(data)
        return at

    def frame(self) -> bytes:
        """The bytes of a Frame."""
        return self._frame or self._made()

    def sealed(self) -> Outgoing[P]:
        """The same, with the numbers as they are now: tensors may change before it is sent."""
        self._frame, self._parts = self._made(), []
        return self

    def _made(self) -> bytes:
        header = self.message.SerializeToString()
        head = (b"\x12", _varint(len(header)), header)
        return b"".join(
            head
            if not self._size
            else (b"\x0a", _varint(self._size, LONGEST_LENGTH), *self._parts, *head)
        )


class Incoming(Generic[P]):
    """A message that has arrived, and the numbers of its tensors, which stay where they are."""

    def __init__(self, message: P, payload: memoryview) -> None:
        self.message, self._payload = message, payload

    def tensor(self, header: pb.Tensor) -> Tensor:
        """A tensor of the message; raises Malformed where its header and the payload do not agree."""
        if header.absent:
            raise Malformed("a tensor must have numbers, got one that says it is absent")
        dtype, coding = DTYPES.get(header.dtype), header.coding
        if dtype is None:
            raise Malformed(
                f"a tensor's dtype must be one of {', '.join(DTYPES)}, got {_short(header.dtype)}"
            )
        shape = _shape(header)
        if not coding:
            return self._numbers(header.at, dtype, shape)
        if coding not in VALUES or not dtype.is_floating_point:
            raise Malformed(
                f"a tensor's coding must be one of {', '.join(VALUES)}, of floats, got {_short(coding)} of {header.dtype}"
            )
        if not math.prod(shape) or not shape:
            raise Malformed("a tensor that is empty, or one number, is sent as it is")
        values = self._numbers(header.at, VALUES[coding], shape)
        scales = self._numbers(header.scales_at, SCALE, (scale_count(shape, coding),))
        return decoded(Coded(values, scales if len(scales) else None), dtype)

    def gradient(self, header: pb.Tensor) -> Tensor | None:
        """A gradient; None where there is none."""
        if header.absent and (header.dtype or header.shape):
            raise Malformed("a gradient that is absent must have no type and no shape")
        return None if header.absent else self.tensor(header)

    def named(
        self, headers: Iterable[pb.NamedTensor], like: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """Tensors of the message, which must be exactly those of `like`: names, types and shapes; all finite."""
        found: dict[str, Tensor] = {}
        for header in headers:
            wanted = like.get(header.name)
            if wanted is None or header.name in found:
                raise Malformed(
                    f"a message must have the tensors that were asked for, once each, got {_short(header.name)}"
                )
            found[header.name] = require_like(header.name, self.tensor(header.tensor), wanted)
        missing = like.keys() - found.keys()
        if missing:
            raise Malformed(
                f"a message must have all tensors that were asked for, {show(min(missing))} is missing"
            )
        return {name: found[name] for name in like}

    def _numbers(self, at: int, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
        """A tensor of the payload's bytes, in place unless they lie in memory as they must not."""
        size = math.prod(shape) * dtype.itemsize
        if at + size > len(self._payload):
            there = f"the payload has {len(self._payload)}"
            raise Malformed(
                f"a tensor of {NAMES[dtype]} and shape {show(shape)} takes {size} bytes at {at}, but {there}"
            )
        if not size:
            return torch.empty(shape, dtype=dtype)
        data = np.frombuffer(self._payload, np.uint8, size, at)
        if dtype is torch.bool and data.max() > 1:
            raise Malformed("truth values must be bytes of 0 or 1")
        if (
            data.ctypes.data % TORCH_ALIGNED
        ):  # matrix products round differently there: the same numbers must give the same bits
            return (
                torch.empty(size, dtype=torch.uint8)
                .copy_(from_dlpack(data))
                .view(dtype)
                .reshape(shape)
            )
        return from_dlpack(data).view(dtype).reshape(shape)


def _shape(header: pb.Tensor) -> tuple[int, ...]:
    """The shape that a header claims; an empty tensor must not have huge axes either, since strides are their products."""
    if len(header.shape) > MAX_DIMS:
        raise Malformed(f"a tensor must have at most {MAX_DIMS} axes, got {len(header.shape)}")
    shape = tuple(header.shape)
    if math.prod(max(length, 1) for length in shape) > MAX_ELEMENTS:
        raise Malformed(
            f"a tensor must have at most {MAX_ELEMENTS} elements, got shape {show(shape)}"
        )
    return shape


def _numbers(tensor: Tensor) -> bytes | memoryview:
    """The numbers of a tensor, row by row, where they are if they lie so."""
    if tensor.numel() == 0:
        return b""
    plain = tensor.resolve_conj().resolve_neg().contiguous().cpu()
    return memoryview(plain.reshape(-1).view(torch.uint8).numpy())  # type: ignore[arg-type]  # arrays are buffers


def _short(text: str) -> str:
    """Text from a message for an error, however long it is."""
    return show(text[:64])


def require_like(name: str, tensor: Tensor, like: Tensor) -> Tensor:
    """A tensor, if it has the type and shape of another, and is finite."""
    if tensor.dtype != like.dtype or tensor.shape != like.shape:
        wanted, got = (
            f"{tuple(each.shape)} of {NAMES.get(each.dtype, each.dtype)}" for each in (like, tensor)
        )
        raise Malformed(f"{name} must be {wanted}, got {got}")
    if not is_finite(tensor):
        raise Malformed(f"{name} must be finite")
    return tensor


# ---- frames ------------------------------------------------------------------------------------------------------------------------
def opened(kind: type[P], data: bytes | bytearray, header_limit: int = HEADER_LIMIT) -> Incoming[P]:
    """The message in a frame that is whole.

    header_limit   the bytes that it may have besides numbers: parsed, they take up to 45 times as much
    """
    payload, at = memoryview(b""), 0
    if data[:1] == b"\x0a":
        size, start = _read_varint(data, 1)
        payload, at = memoryview(data)[start : start + size], start + size
    if data[at : at + 1] != b"\x12":
        raise Malformed("bytes that are no frame: there is no message in them")
    size, start = _read_varint(data, at + 1)
    if size > header_limit:
        raise Malformed(
            f"a message without its numbers must have at most {header_limit} bytes, got {size}"
        )
    if start + size != len(data):
        raise Malformed(f"a frame of {start + size} bytes was announced, got {len(data)}")
    return Incoming(parsed(kind, bytes(memoryview(data)[start:])), payload)


def joined(
    kind: type[P], arrived: Iterable[bytes], limit_bytes: int, header_limit: int = HEADER_LIMIT
) -> Iterator[Incoming[P]]:
    """Whole messages from the frames that arrive, where some come in pieces."""
    parts = (
        bytearray()
    )  # not a list: that would take many times the memory of pieces of a byte or two
    for data in arrived:
        if data[:1] != b"\x1a":
            if parts:
                raise Malformed("a message came between the pieces of another")
            yield opened(kind, data, header_limit)
            continue
        frame = parsed(pb.Frame, data)
        if not frame.piece or frame.header or frame.payload:
            raise Malformed("a piece must have bytes, and nothing besides")
        if len(parts) + len(frame.piece) > limit_bytes:
            raise Malformed(f"a message in pieces must have at most {limit_bytes} bytes")
        parts += frame.piece
        if frame.last:
            whole, parts = parts, bytearray()
            yield opened(kind, whole, header_limit)
    if parts:
        raise Malformed("a message in pieces was cut short")


def paced(outgoing: Outgoing[Any], bucket: TokenBucket) -> Iterator[bytes]:
    """A message's frame or, where there is a rate to keep to, its pieces, which come at that rate."""
    data = outgoing.frame()
    if math.isinf(bucket.rate_bps):
        yield data
        return
    bucket.empty()
    left = len(data)
    for piece in pieces(data, bucket.rate_bps):
        left -= len(piece)
        bucket.take(len(piece))
        yield pb.Frame(piece=piece, last=left == 0).SerializeToString()


def parsed(kind: type[P], data: bytes) -> P:
    """A message from its bytes."""
    try:
        return kind.FromString(data)
    except DecodeError:
        raise Malformed(f"bytes that are no {kind.__name__}") from None


def _varint(number: int, length: int = 1) -> bytes:
    """A whole number as protobuf writes it, in so many bytes at least.

    >>> _varint(300).hex(), _varint(300, 4).hex()
    ('ac02', 'ac828000')
    """
    out = bytearray()
    while True:
        number, low = number >> 7, number & 0x7F
        if not number and len(out) + 1 >= length:
            out.append(low)
            return bytes(out)
        out.append(low | 0x80)


def _read_varint(data: bytes | bytearray, at: int) -> tuple[int, int]:
    """A whole number, and where what comes after it begins."""
    number = 0
    for place, byte in enumerate(data[at : at + LONGEST_LENGTH]):
        number |= (byte & 0x7F) << 7 * place
        if not byte & 0x80:
            return number, at + place + 1
    raise Malformed("bytes that are no frame: a length does not end")
