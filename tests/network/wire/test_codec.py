"""The wire: whatever goes in comes out bit for bit, and whatever lies is refused before it costs anything."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import airsplit.network.wire
from airsplit.core.errors import InvalidValue
from airsplit.network.wire import airsplit_pb2 as pb
from airsplit.network.wire.codec import (
    ALIGNED,
    DTYPES,
    HEADER_BYTES,
    LONGEST_LENGTH,
    MAX_ELEMENTS,
    NAMES,
    PREFIX,
    TORCH_ALIGNED,
    Incoming,
    Malformed,
    Outgoing,
    joined,
    opened,
    paced,
    parsed,
    require_like,
)
from airsplit.network.wire.pacing import TokenBucket
from airsplit.training.compression import VALUES, applies, carried

FLOATS = [name for name, dtype in DTYPES.items() if dtype.is_floating_point]
NETWORK = Path(airsplit.network.wire.__file__).parent

shapes = st.lists(st.integers(0, 5), max_size=4).map(tuple)
full_shapes = st.lists(st.integers(1, 6), min_size=1, max_size=4).map(tuple)
seeds = st.integers(0, 2**32 - 1)


def any_bits(dtype: torch.dtype, shape: tuple[int, ...], seed: int) -> Tensor:
    """A tensor of random bits: among floats also what is not a number, with its payload."""
    rng = np.random.default_rng(seed)
    count = int(np.prod(shape, dtype=int))
    if dtype is torch.bool:
        return torch.from_numpy(rng.integers(0, 2, count).astype(bool)).reshape(shape)
    raw = torch.from_numpy(rng.integers(0, 256, count * dtype.itemsize, dtype=np.uint8))
    return raw.view(dtype).reshape(shape) if count else torch.empty(shape, dtype=dtype)


def outgoing(
    *tensors: Tensor, compression: str = "none", **options: Any
) -> Outgoing[pb.DeviceMessage]:
    """A step with these activations."""
    made = Outgoing(pb.DeviceMessage(step=pb.Step()))
    for tensor in tensors:
        made.put(made.message.step.activations.add(), tensor, compression, **options)
    return made


def header_of(sent: Outgoing[pb.DeviceMessage]) -> pb.Tensor:
    return sent.message.step.activations[0]


def arriving(sent: Outgoing[pb.DeviceMessage]) -> Incoming[pb.DeviceMessage]:
    return opened(pb.DeviceMessage, sent.frame())


def decoded_all(incoming: Incoming[Any]) -> list[Tensor | None]:
    return [incoming.gradient(header) for header in tensors_of(incoming.message)]


def through_the_wire(tensor: Tensor, compression: str = "none") -> Tensor:
    incoming = arriving(outgoing(tensor, compression=compression))
    return incoming.tensor(incoming.message.step.activations[0])


def framed(header: Any, payload: bytes = b"") -> bytes:
    """A frame as protobuf writes it, and any other language."""
    return bytes(
        pb.Frame(
            payload=payload,
            header=header if isinstance(header, bytes) else header.SerializeToString(),
        ).SerializeToString()
    )


def bits(tensor: Tensor) -> bytes:
    """By another way than the codec's: numpy's copy of each number, one after the other."""
    plain = tensor.detach().resolve_conj().resolve_neg()
    if plain.dtype is torch.bfloat16:
        plain = plain.contiguous().view(torch.int16)
    return plain.numpy().tobytes(order="C")


def assert_same(found: Tensor | None, wanted: Tensor) -> None:
    assert found is not None
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    assert bits(found) == bits(wanted)


def assert_same_message(found: Incoming[Any], wanted: Incoming[Any]) -> None:
    assert found.message == wanted.message
    pairs = zip(decoded_all(found), decoded_all(wanted), strict=True)
    assert all(
        bits(one) == bits(two) if one is not None and two is not None else one is two
        for one, two in pairs
    )


# ---- tensors there and back --------------------------------------------------------------------------------------------------
@given(st.sampled_from(list(DTYPES)), shapes, seeds)
def test_every_tensor_comes_back_bit_for_bit(dtype: str, shape: tuple[int, ...], seed: int) -> None:
    tensor = any_bits(DTYPES[dtype], shape, seed)
    assert_same(through_the_wire(tensor), tensor)


@given(
    st.lists(st.tuples(st.sampled_from(list(DTYPES)), shapes), max_size=6),
    seeds,
    st.sampled_from(["none", *VALUES]),
)
def test_several_tensors_come_back_beside_each_other(
    about: list[tuple[str, tuple[int, ...]]], seed: int, compression: str
) -> None:
    tensors = [any_bits(DTYPES[dtype], shape, seed + at) for at, (dtype, shape) in enumerate(about)]
    if compression != "none":
        tensors = [
            tensor if dtype_is_whole(tensor) else torch.nan_to_num(tensor) for tensor in tensors
        ]
    found = decoded_all(arriving(outgoing(*tensors, compression=compression)))
    for one, tensor in zip(found, tensors, strict=True):
        assert_same(one, carried(tensor, compression))


@pytest.mark.parametrize("dtype", FLOATS)
def test_numbers_that_are_none_and_signed_zeros_come_back_as_they_were(dtype: str) -> None:
    tensor = torch.tensor(
        [float("nan"), -float("nan"), float("inf"), -float("inf"), -0.0, 0.0], dtype=DTYPES[dtype]
    )
    assert_same(through_the_wire(tensor), tensor)


VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "transposed": lambda t: t.transpose(0, -1),
    "expanded": lambda t: t[:1].expand(3, *t.shape[1:]),
    "every other": lambda t: t[:, ::2],
    "part": lambda t: t[1:, 1:],
    "backwards": lambda t: t.flip(0),
    "one number": lambda t: t[0, 0, 0],
    "nothing": lambda t: t[:, :0],
    "channels last": lambda t: t[None].contiguous(memory_format=torch.channels_last),
    "with a graph": lambda t: t.clone().requires_grad_() * 1 if t.is_floating_point() else t,
    "a parameter": lambda t: torch.nn.Parameter(t) if t.is_floating_point() else t,
}


@pytest.mark.parametrize("dtype", list(DTYPES))
@pytest.mark.parametrize("view", list(VIEWS))
def test_how_a_tensor_lies_in_memory_does_not_matter(view: str, dtype: str) -> None:
    tensor = VIEWS[view](any_bits(DTYPES[dtype], (4, 3, 5), 1))
    assert_same(through_the_wire(tensor), tensor)


@pytest.mark.parametrize("lazy", [torch.conj, lambda t: t.conj().imag, lambda t: torch.conj(t).T])
def test_what_torch_has_not_yet_conjugated_or_negated_is(lazy: Callable[[Tensor], Tensor]) -> None:
    tensor = lazy(torch.complex(torch.randn(3, 4), torch.randn(3, 4)))
    assert_same(through_the_wire(tensor), tensor)


@pytest.mark.parametrize("dtype", list(DTYPES))
@pytest.mark.parametrize("count", [1, 511, 512, 100_001])
def test_long_and_short_data_come_back_alike(dtype: str, count: int) -> None:
    tensor = any_bits(DTYPES[dtype], (count,), 2)
    assert_same(through_the_wire(tensor), tensor)


@pytest.mark.parametrize("count", [1, 3, 5000])
@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_what_was_decoded_can_be_written_and_no_other_message_changes(
    dtype: str, count: int
) -> None:
    tensor = torch.ones(count, dtype=DTYPES[dtype])
    sent = outgoing(tensor)
    one, two = decoded_all(arriving(sent))[0], decoded_all(arriving(sent))[0]
    assert one is not None
    one.zero_()
    assert_same(two, torch.ones_like(tensor))
    assert_same(tensor, torch.ones_like(tensor))


def test_what_was_decoded_outlives_its_message() -> None:
    tensor = through_the_wire(torch.arange(5000.0))
    bytearray(50_000)
    assert torch.equal(tensor, torch.arange(5000.0))


def test_the_header_says_what_was_asked_for() -> None:
    header = header_of(outgoing(torch.zeros(2, 3, 4), compression="int8", wants_gradient=True))
    assert (header.dtype, list(header.shape), header.coding, header.wants_gradient) == (
        "float32",
        [2, 3, 4],
        "int8",
        True,
    )
    assert not header_of(outgoing(torch.zeros(2))).wants_gradient


def test_a_type_that_the_wire_has_no_name_for_is_said_by_its_name() -> None:
    with pytest.raises(InvalidValue, match=r"must be one of float16.*, got torch\.float8_e5m2"):
        outgoing(torch.zeros(2, dtype=torch.float8_e5m2))


# ---- when numbers are copied ---------------------------------------------------------------------------------------------------
def address_of(frame: Any) -> int:
    return int(np.frombuffer(frame, np.uint8).ctypes.data)


@pytest.mark.parametrize("dtype", list(DTYPES))
@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_numbers_lie_as_torchs_own_do_and_where_they_do_are_not_copied(
    kind: Any, dtype: str
) -> None:
    """Matrix products round differently elsewhere."""
    tensor = any_bits(DTYPES[dtype], (5, 3), 1)
    for at in range(TORCH_ALIGNED):
        message = pb.DeviceMessage(
            step=pb.Step(labels=pb.Tensor(dtype=dtype, shape=tensor.shape, at=at))
        )
        incoming = opened(pb.DeviceMessage, kind(framed(message, bytes(at) + bits(tensor))))
        found = incoming.tensor(incoming.message.step.labels)
        assert_same(found, tensor)
        there = address_of(incoming._payload) + at
        assert found.data_ptr() % TORCH_ALIGNED == 0
        assert (found.data_ptr() == there) == (there % TORCH_ALIGNED == 0)


@pytest.mark.parametrize("dtype", list(DTYPES))
def test_numbers_begin_at_multiples_of_eight_bytes_of_a_frame(dtype: str) -> None:
    sent = outgoing(*(any_bits(DTYPES[dtype], (count,), count) for count in (5, 3, 0, 1000)))
    assert {(PREFIX + header.at) % ALIGNED for header in tensors_of(sent.message)} == {0}
    assert sent.frame().index(pb.Frame.FromString(sent.frame()).payload) == PREFIX


def test_a_message_that_waits_has_the_numbers_of_when_it_is_sent() -> None:
    tensor = torch.zeros(6)
    sent = outgoing(tensor)
    tensor += 1
    assert_same(decoded_all(arriving(sent))[0], torch.ones(6))
    tensor += 1
    assert_same(decoded_all(arriving(sent))[0], torch.full((6,), 2.0))


@pytest.mark.parametrize("compression", ["none", *VALUES])
def test_a_message_that_is_sealed_has_the_numbers_of_when_it_was(compression: str) -> None:
    tensor = torch.linspace(0, 1, 60).reshape(3, 4, 5)
    wanted, plain = (
        carried(tensor.clone(), compression),
        outgoing(tensor, compression=compression).frame(),
    )
    sent = outgoing(tensor, compression=compression)
    assert sent.sealed() is sent
    tensor.zero_()
    assert sent.frame() == sent.frame() == plain
    assert_same(decoded_all(arriving(sent))[0], wanted)


def test_a_message_without_tensors_can_be_sealed_too() -> None:
    sent = Outgoing(pb.DeviceMessage(ready=pb.Ready())).sealed()
    assert opened(pb.DeviceMessage, sent.frame()).message == sent.message
    assert Outgoing(pb.DeviceMessage()).sealed().frame() == b"\x12\0"


# ---- compression -------------------------------------------------------------------------------------------------------------
@given(
    st.sampled_from(FLOATS), full_shapes, seeds, st.sampled_from(list(VALUES)), st.integers(-40, 40)
)
def test_compression_on_the_wire_is_the_simulators(
    dtype: str, shape: tuple[int, ...], seed: int, compression: str, scale: int
) -> None:
    tensor = (torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 2.0**scale).to(
        DTYPES[dtype]
    )
    sent = outgoing(tensor, compression=compression)
    assert_same(decoded_all(arriving(sent))[0], carried(tensor, compression))
    assert header_of(sent).coding == (compression if applies(tensor, compression) else "")


@given(st.sampled_from(FLOATS), full_shapes, seeds, st.sampled_from(list(VALUES)))
def test_compression_of_any_bits_is_the_simulators(
    dtype: str, shape: tuple[int, ...], seed: int, compression: str
) -> None:
    tensor = any_bits(DTYPES[dtype], shape, seed)
    found, wanted = through_the_wire(tensor, compression), carried(tensor, compression)
    torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)


@given(
    st.lists(st.tuples(st.sampled_from(list(DTYPES)), shapes), max_size=4),
    seeds,
    st.sampled_from(["none", *VALUES]),
)
def test_a_frame_is_never_larger_than_its_numbers_and_what_a_header_may_have(
    about: list[tuple[str, tuple[int, ...]]], seed: int, compression: str
) -> None:
    tensors = [any_bits(DTYPES[dtype], shape, seed) for dtype, shape in about]
    numbers = sum(tensor.numel() * tensor.dtype.itemsize for tensor in tensors)
    assert len(outgoing(*tensors, compression=compression).frame()) <= numbers + HEADER_BYTES * max(
        len(tensors), 1
    )


@pytest.mark.parametrize("compression", list(VALUES))
def test_whole_numbers_cross_as_they_are(compression: str) -> None:
    labels = torch.tensor([[3, -1], [2**40, 0]])
    assert outgoing(labels, compression=compression).frame() == outgoing(labels).frame()


# ---- several -----------------------------------------------------------------------------------------------------------------
def named(*several: dict[str, Tensor]) -> Incoming[pb.DeviceMessage]:
    sent = Outgoing(pb.DeviceMessage(moved=pb.Moved()))
    for tensors in several:
        sent.put_named(sent.message.moved.layers, tensors)
    return arriving(sent)


@given(
    st.dictionaries(
        st.text(max_size=8), st.tuples(st.sampled_from(list(DTYPES)), shapes), max_size=5
    ),
    seeds,
)
def test_named_tensors_come_back_by_name_in_the_order_that_was_asked_for(
    about: dict[str, Any], seed: int
) -> None:
    like = {name: any_bits(DTYPES[dtype], shape, seed) for name, (dtype, shape) in about.items()}
    like = {
        name: tensor if dtype_is_whole(tensor) else torch.nan_to_num(tensor)
        for name, tensor in like.items()
    }
    incoming = named(like)
    found = incoming.named(reversed(incoming.message.moved.layers), like)
    assert list(found) == list(like)
    for name, tensor in like.items():
        assert_same(found[name], tensor)


def dtype_is_whole(tensor: Tensor) -> bool:
    return not tensor.is_floating_point() and not tensor.is_complex()


LIKE = {"weight": torch.zeros(2, 3), "bias": torch.zeros(3, dtype=torch.int64)}
WRONG: dict[str, dict[str, Any]] = {
    "one is missing": {"weight": LIKE["weight"]},
    "all are missing": {},
    "one too many": LIKE | {"more": torch.zeros(1)},
    "another name": {"weights": LIKE["weight"], "bias": LIKE["bias"]},
    "another shape": LIKE | {"weight": torch.zeros(3, 2)},
    "another type": LIKE | {"weight": torch.zeros(2, 3, dtype=torch.float64)},
    "not finite": LIKE | {"weight": torch.full((2, 3), float("nan"))},
}


@pytest.mark.parametrize("wrong", list(WRONG))
def test_named_tensors_must_be_those_that_were_asked_for(wrong: str) -> None:
    incoming = named(WRONG[wrong])
    with pytest.raises(Malformed):
        incoming.named(incoming.message.moved.layers, LIKE)


def test_a_name_may_come_once_only() -> None:
    incoming = named(LIKE, LIKE)
    with pytest.raises(Malformed, match="once each, got 'weight'"):
        incoming.named(incoming.message.moved.layers, LIKE)


@pytest.mark.parametrize("dtype", [*FLOATS, "complex64", "complex128"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_what_must_be_like_another_must_be_finite(dtype: str, bad: float) -> None:
    tensor = torch.zeros(3, dtype=DTYPES[dtype])
    assert require_like("a gradient", tensor, tensor) is tensor
    with pytest.raises(Malformed, match="a gradient must be finite"):
        require_like("a gradient", torch.full((3,), bad, dtype=DTYPES[dtype]), tensor)


def test_a_gradient_may_be_absent_and_an_activation_not() -> None:
    sent = outgoing(torch.ones(2))
    sent.message.step.activations.add(absent=True)
    incoming = arriving(sent)
    one, two = incoming.message.step.activations
    assert_same(incoming.gradient(one), torch.ones(2))
    assert incoming.gradient(two) is None
    with pytest.raises(Malformed, match="says it is absent"):
        incoming.tensor(two)


def test_tensors_may_have_the_same_numbers() -> None:
    """A message need not have them twice; what is not at the beginning of a number is copied."""
    numbers = np.arange(12, dtype="<i4")
    like = {
        "a": torch.zeros(12, dtype=torch.int32),
        "b": torch.zeros(2, 3, dtype=torch.int32),
        "c": torch.zeros(40, dtype=torch.uint8),
    }
    at = {"a": 0, "b": 12, "c": 5}
    layers = [
        pb.NamedTensor(
            name=name, tensor=pb.Tensor(dtype=NAMES[t.dtype], shape=t.shape, at=at[name])
        )
        for name, t in like.items()
    ]
    incoming = opened(
        pb.DeviceMessage, framed(pb.DeviceMessage(moved=pb.Moved(layers=layers)), numbers.tobytes())
    )
    found = incoming.named(incoming.message.moved.layers, like)
    assert found["a"].tolist() == numbers.tolist()
    assert found["b"].tolist() == [[3, 4, 5], [6, 7, 8]]
    assert bits(found["c"]) == numbers.tobytes()[5:45]


@pytest.mark.parametrize("dtype", list(DTYPES))
def test_numbers_may_begin_anywhere(dtype: str) -> None:
    """As other languages write them: where in memory they come to lie is chance."""
    tensor = any_bits(DTYPES[dtype], (3, 2), 4)
    for at in range(17):
        header = pb.Tensor(dtype=dtype, shape=tensor.shape, at=at)
        frame = framed(pb.DeviceMessage(step=pb.Step(labels=header)), b"\xff" * at + bits(tensor))
        for data in (frame, bytearray(frame)):
            assert_same(decoded_all(opened(pb.DeviceMessage, data))[0], tensor)


@pytest.mark.parametrize("at", range(9))
def test_scales_may_begin_anywhere(at: int) -> None:
    tensor = torch.randn(4, 3, generator=torch.Generator().manual_seed(at))
    sent = pb.Frame.FromString(outgoing(tensor, compression="int8").frame())
    message = pb.DeviceMessage.FromString(sent.header)
    header = message.step.activations[0]
    scales = sent.payload[header.scales_at : header.scales_at + 16]
    payload = b"\xff" * at + scales + sent.payload[header.at : header.at + 12]
    header.at, header.scales_at = at + 16, at
    assert_same(
        decoded_all(opened(pb.DeviceMessage, framed(message, payload)))[0], carried(tensor, "int8")
    )


# ---- headers that lie --------------------------------------------------------------------------------------------------------
def lie(payload: bytes | None = None, **changes: Any) -> bytes:
    """Six floats and, where nothing is changed, all in order."""
    fields: dict[str, Any] = {"dtype": "float32", "shape": [2, 3]}
    return framed(
        pb.DeviceMessage(step=pb.Step(labels=pb.Tensor(**fields | changes))),
        bytes(24) if payload is None else payload,
    )


def believed(frame: bytes) -> Tensor:
    incoming = opened(pb.DeviceMessage, frame)
    return incoming.tensor(incoming.message.step.labels)


HUGE = 2**32 - 1
END = 2**64 - 1
LIES: dict[str, bytes] = {
    "nothing at all": framed(pb.DeviceMessage(step=pb.Step(labels=pb.Tensor())), bytes(24)),
    "a byte less": lie(bytes(23)),
    "no payload": lie(b""),
    "a byte too far": lie(at=1),
    "at the end": lie(at=24),
    "behind the end": lie(at=25),
    "far behind the end": lie(at=2**32),
    "as far as can be said": lie(at=END),
    "a sum that comes around to zero": lie(at=2**64 - 24),
    "a sum that comes around to one": lie(at=2**64 - 23),
    "a sum of 2^63": lie(at=2**63 - 24),
    "below zero, for who reads it so": lie(at=2**63),
    "nothing, as far as can be said": lie(shape=[0], at=END),
    "nothing, behind the end": lie(shape=[0], at=25),
    "an unknown type": lie(dtype="float33"),
    "no type": lie(dtype=""),
    "a type of another kind": lie(dtype="tensor"),
    "a type of another module": lie(dtype="torch.float32"),
    "a long type": lie(dtype="float32" * 100_000),
    "a larger type": lie(dtype="float64"),
    "a larger shape": lie(shape=[3, 3]),
    "an axis more": lie(shape=[2, 3, 2]),
    "minus one": lie(shape=[HUGE, 3]),
    "too large for memory": lie(shape=[2**31, 2**31]),
    "just too large": lie(shape=[MAX_ELEMENTS // 2**16, 2**16 + 1]),
    "as large as may be": lie(shape=[MAX_ELEMENTS // 2**16, 2**16]),
    "as large as may be, and far": lie(
        shape=[MAX_ELEMENTS // 2**16, 2**16], at=2**64 - 4 * MAX_ELEMENTS
    ),
    "a product of 2^64": lie(b"", shape=[2**31, 2**31, 4]),
    "a product that comes around to six": lie(shape=[2, 3, 2**31, 2**31, 4]),
    "seventeen axes": lie(shape=[2, 3, *[1] * 15]),
    "a million axes": lie(shape=[1] * 1_000_000),
    "sixteen huge axes": lie(b"", shape=[HUGE] * 16),
    "empty with huge axes": lie(b"", shape=[0, *[HUGE] * 15]),
    "empty and huge before": lie(b"", shape=[2**31, 2**31, 0]),
    "an unknown coding": lie(coding="int4"),
    "a coding that is none": lie(coding="none"),
    "a long coding": lie(coding="x" * 1_000_000),
    "fp16 without a scale": lie(bytes(12), coding="fp16", scales_at=12),
    "fp16 with part of a scale": lie(bytes(15), coding="fp16", scales_at=12),
    "fp16 with a scale behind the end": lie(coding="fp16", scales_at=24),
    "fp16 with a scale as far as can be said": lie(coding="fp16", scales_at=END),
    "fp16 with a scale that comes around": lie(coding="fp16", scales_at=2**64 - 4),
    "bf16 behind the end": lie(coding="bf16", at=13),
    "int8 without scales": lie(bytes(6), coding="int8", scales_at=6),
    "int8 with a scale too few": lie(bytes(10), coding="int8", scales_at=6),
    "int8 with scales that come around": lie(coding="int8", scales_at=2**64 - 8),
    "int8 behind the end": lie(coding="int8", at=END),
    "int8 of a huge shape": lie(coding="int8", shape=[2**20, 2**20]),
    "int8 of a long row": lie(coding="int8", shape=[1, HUGE, 1]),
    "coded whole numbers": lie(dtype="int64", coding="int8"),
    "coded complex numbers": lie(dtype="complex64", coding="bf16"),
    "coded truth": lie(dtype="bool", coding="bf16"),
    "coded and one number": lie(coding="bf16", shape=[]),
    "coded and empty": lie(b"", coding="bf16", shape=[0, 3]),
    "coded and seventeen axes": lie(coding="bf16", shape=[1] * 17),
    "truth of two": lie(b"\0\1\2\0\1\0", dtype="bool"),
    "long truth of two": lie(b"\1" * 5999 + b"\2", dtype="bool", shape=[6000]),
    "absent": lie(absent=True),
    "absent without shape": lie(b"", absent=True, shape=[]),
}


@pytest.mark.parametrize("name", list(LIES))
def test_a_header_that_lies_is_malformed_in_few_words_and_costs_no_memory(name: str) -> None:
    incoming = opened(pb.DeviceMessage, LIES[name])
    tracemalloc.start()
    try:
        with pytest.raises(Malformed) as caught:
            incoming.tensor(incoming.message.step.labels)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert 10 < len(str(caught.value)) < 300
    assert peak < 2 * len(LIES[name]) + 100_000


@pytest.mark.parametrize(
    "changes", [{"dtype": "float32", "shape": [2, 3]}, {"shape": [2, 3]}, {"dtype": "x"}]
)
def test_a_gradient_that_is_absent_has_nothing_else(changes: dict[str, Any]) -> None:
    with pytest.raises(Malformed, match="absent must have no type and no shape"):
        arriving(outgoing()).gradient(pb.Tensor(absent=True, **changes))


def test_the_largest_axes_that_an_empty_tensor_may_have_are_fine() -> None:
    assert believed(lie(b"", shape=[2**20, 0, 2**20])).shape == (2**20, 0, 2**20)


def test_truth_values_of_zero_and_one_are_fine() -> None:
    assert believed(lie(b"\0\1\1\0\1\0", dtype="bool")).tolist() == [
        [False, True, True],
        [False, True, False],
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"scales_at": END},
        {"shape": [6]},
        {"shape": [0, 3], "at": 24},
        {"dtype": "float16", "at": 12},
    ],
)
def test_what_is_not_used_does_no_harm(changes: dict[str, Any]) -> None:
    assert not believed(lie(**changes)).any()


# ---- bytes that are no message -----------------------------------------------------------------------------------------------
def tensors_of(message: Any) -> Iterator[pb.Tensor]:
    """Every tensor in a message, wherever it is."""
    for field, value in message.ListFields():
        for each in value if field.is_repeated else [value]:
            if isinstance(each, pb.Tensor):
                yield each
            elif hasattr(each, "ListFields"):
                yield from tensors_of(each)


def decode_each(kind: Any, data: bytes) -> int:
    """How many tensors of a frame could be decoded; nothing but Malformed may come out of this, and protobuf reads the same."""
    try:
        incoming = opened(kind, data)
    except Malformed:
        return 0
    frame = pb.Frame.FromString(data)
    assert incoming.message == kind.FromString(frame.header)
    assert bytes(incoming._payload) == frame.payload
    made = 0
    for header in tensors_of(incoming.message):
        try:
            tensor = incoming.tensor(header)
        except Malformed:
            continue
        assert (NAMES[tensor.dtype], list(tensor.shape)) == (header.dtype, list(header.shape))
        made += 1
    return made


def step_of_all() -> Outgoing[Any]:
    sent = Outgoing(pb.DeviceMessage(step=pb.Step(place=PLACE)))
    for coding in ("none", *VALUES):
        sent.put(
            sent.message.step.activations.add(), torch.randn(2, 3, 2), coding, wants_gradient=True
        )
    sent.put(sent.message.step.labels, torch.arange(2))
    return sent


def finished_with_a_model() -> Outgoing[Any]:
    sent = Outgoing(pb.DeviceMessage(finished=pb.Finished(place=PLACE)))
    sent.put_named(sent.message.finished.model, {"a": torch.randn(3), "b": torch.ones(2).bool()})
    return sent


def gradients_for_a_device() -> Outgoing[Any]:
    sent = Outgoing(pb.ServerMessage(gradient=pb.Gradient(place=PLACE)))
    sent.put(sent.message.gradient.gradients.add(), torch.randn(2, 3), "fp16")
    sent.message.gradient.gradients.add(absent=True)
    return sent


def round_with_a_model() -> Outgoing[Any]:
    sent = Outgoing(pb.ServerMessage(round=pb.Round(number=1)))
    sent.put_named(sent.message.round.model, {"w": torch.randn(2, 2)})
    return sent


PLACE = pb.Place(run="0123456789abcdef", round=3, order=4, step=1)
VALID: dict[str, Outgoing[Any]] = {
    "step": step_of_all(),
    "finished": finished_with_a_model(),
    "arrived": Outgoing(
        pb.DeviceMessage(
            arrived=pb.Arrived(fingerprint="f", samples=3, measurement=pb.Measurement(up_bps=1e6))
        )
    ),
    "gradient": gradients_for_a_device(),
    "round": round_with_a_model(),
}


def kind_of(name: str) -> Any:
    return type(VALID[name].message)


@settings(max_examples=300)
@given(st.sampled_from([pb.DeviceMessage, pb.ServerMessage]), st.binary(max_size=200))
def test_random_bytes_are_malformed_or_a_message(kind: Any, data: bytes) -> None:
    decode_each(kind, data)
    decode_each(kind, framed(data, data))
    decode_each(kind, b"\x0a" + data)
    decode_each(kind, b"\x12" + data)


@settings(max_examples=300)
@given(
    st.sampled_from(list(VALID)),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 7)), min_size=1, max_size=4),
    seeds,
)
def test_flipped_bits_are_malformed_or_as_their_header_says(
    name: str, flips: list[tuple[int, int]], cut: int
) -> None:
    whole = VALID[name].frame()
    data, header = bytearray(whole), bytearray(pb.Frame.FromString(whole).header)
    for at, bit in flips:
        data[at % len(data)] ^= 1 << bit
        header[at % len(header)] ^= 1 << bit
    decode_each(kind_of(name), bytes(data))
    decode_each(kind_of(name), framed(bytes(header), pb.Frame.FromString(whole).payload))
    decode_each(
        kind_of(name),
        framed(bytes(header[: cut % len(header)]), pb.Frame.FromString(whole).payload),
    )


@pytest.mark.parametrize("name", list(VALID))
def test_a_frame_that_is_cut_short_anywhere_or_goes_on_is_malformed(name: str) -> None:
    data = VALID[name].frame()
    for wrong in (
        *(data[:length] for length in range(len(data))),
        *(data + bytes([more]) for more in range(256)),
        data + data,
    ):
        with pytest.raises(Malformed):
            opened(kind_of(name), wrong)


@pytest.mark.parametrize("name", list(VALID))
def test_a_message_that_is_cut_short_anywhere_is_malformed_or_as_its_header_says(name: str) -> None:
    frame = pb.Frame.FromString(VALID[name].frame())
    wanted = sum(not each.absent for each in tensors_of(VALID[name].message))
    for length in range(len(frame.header)):
        assert decode_each(kind_of(name), framed(frame.header[:length], frame.payload)) <= wanted
    for length in range(len(frame.payload)):
        assert decode_each(kind_of(name), framed(frame.header, frame.payload[:length])) < wanted


@given(
    st.builds(
        pb.Tensor,
        dtype=st.one_of(st.sampled_from(list(DTYPES)), st.text(max_size=5)),
        shape=st.lists(st.one_of(st.integers(0, 4), st.integers(0, HUGE)), max_size=5),
        coding=st.sampled_from(["", "", *VALUES, "x"]),
        at=st.one_of(st.integers(0, 40), st.integers(0, END)),
        scales_at=st.one_of(st.integers(0, 40), st.integers(0, END)),
        absent=st.booleans(),
    ),
    st.binary(max_size=60),
)
def test_a_header_of_anything_is_malformed_or_as_it_says(header: pb.Tensor, payload: bytes) -> None:
    decode_each(
        pb.DeviceMessage, framed(pb.DeviceMessage(step=pb.Step(activations=[header])), payload)
    )


@pytest.mark.parametrize(
    "data",
    [b"\x0b" * 10_000, b"\x0a" * 10_000, b"\xff" * 100, b"\x2a\xff\xff\xff\xff\x0f", b"\x12\x80"],
)
def test_deep_and_endless_bytes_are_malformed(data: bytes) -> None:
    with pytest.raises(Malformed, match="bytes that are no DeviceMessage"):
        parsed(pb.DeviceMessage, data)
    with pytest.raises(Malformed, match="bytes that are no DeviceMessage"):
        opened(pb.DeviceMessage, framed(data))
    with pytest.raises(Malformed):
        opened(pb.DeviceMessage, data)


# ---- frames, here and in other languages -------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", list(VALID))
def test_protobuf_reads_our_frames(name: str) -> None:
    data = VALID[name].frame()
    frame, incoming = pb.Frame.FromString(data), opened(kind_of(name), data)
    assert {field.name for field, _ in frame.ListFields()} == (
        {"payload", "header"} if frame.payload else {"header"}
    )
    assert kind_of(name).FromString(frame.header) == VALID[name].message == incoming.message
    assert frame.payload == bytes(incoming._payload)


@pytest.mark.parametrize("size", [1, 127, 128, 300, 70_000, 3 << 20])
def test_protobuf_reads_our_frames_of_any_size(size: int) -> None:
    tensor = any_bits(torch.uint8, (size,), 1)
    sent = outgoing(tensor)
    frame, at = pb.Frame.FromString(sent.frame()), header_of(sent).at
    assert frame.payload[at:] == bits(tensor)
    assert frame.header == sent.message.SerializeToString()


@pytest.mark.parametrize("name", list(VALID))
def test_frames_that_protobuf_writes_are_read_the_same(name: str) -> None:
    data = VALID[name].frame()
    theirs = pb.Frame.FromString(data).SerializeToString()
    assert (theirs != data) == bool(
        pb.Frame.FromString(data).payload
    )  # a length has many ways to be written
    for each in (theirs, bytearray(theirs)):
        assert_same_message(opened(kind_of(name), each), opened(kind_of(name), data))


def length(number: int, size: int) -> bytes:
    """A whole number in exactly so many bytes."""
    return bytes((number >> 7 * at & 0x7F) | (0x80 if at < size - 1 else 0) for at in range(size))


@pytest.mark.parametrize("size", range(1, 13))
def test_lengths_may_have_as_many_bytes_as_protobuf_reads(size: int) -> None:
    frame = pb.Frame.FromString(outgoing(torch.ones(3, dtype=torch.uint8)).frame())
    data = (
        b"\x0a"
        + length(len(frame.payload), size)
        + frame.payload
        + b"\x12"
        + length(len(frame.header), size)
        + frame.header
    )
    if size <= LONGEST_LENGTH:
        assert pb.Frame.FromString(data) == frame
        assert_same(
            decoded_all(opened(pb.DeviceMessage, data))[0], torch.ones(3, dtype=torch.uint8)
        )
        return
    with pytest.raises(DecodeError):
        pb.Frame.FromString(data)
    with pytest.raises(Malformed, match="a length does not end"):
        opened(pb.DeviceMessage, data)


HEADER = VALID["arrived"].message.SerializeToString()
HEADED = b"\x12" + length(len(HEADER), 1) + HEADER
NO_FRAMES: dict[str, bytes] = {
    "nothing": b"",
    "zeros": bytes(100),
    "a payload and nothing else": b"\x0a\x03abc",
    "an empty payload and nothing else": b"\x0a\x00",
    "a payload that does not end": b"\x0a\x7fabc" + HEADED,
    "a payload of two gigabytes": b"\x0a\xff\xff\xff\xff\x07" + HEADED,
    "a payload as long as can be said": b"\x0a\xff\xff\xff\xff\x7f" + HEADED,
    "a payload as long as 64 bits can say": b"\x0a" + b"\xff" * 9 + b"\x01" + HEADED,
    "a length that does not end": b"\x0a" + b"\x80" * 10_000_000,
    "a length that is cut short": b"\x0a\x80",
    "a length of the message that does not end": b"\x0a\x00\x12" + b"\xff" * 1000,
    "a message as long as can be said": b"\x12\xff\xff\xff\xff\x7f" + HEADER,
    "no length": b"\x12",
    "the message first": HEADED + b"\x0a\x03abc",
    "the message twice": HEADED + HEADED,
    "the payload twice": b"\x0a\x01a" * 2 + HEADED,
    "a message without a frame": HEADER,
    "a byte less than was said": HEADED[:-1],
    "a byte more than was said": HEADED + b"\0",
    "the last of no pieces": HEADED + b"\x20\x01",
    "a field that there is none of": HEADED + b"\xc2\x3e\x04abcd",
    "a field of another kind": b"\x08\x03" + HEADED,
    "a message of another kind": b"\x10\x03",
    "a piece": pb.Frame(piece=HEADED, last=True).SerializeToString(),
}


@pytest.mark.parametrize("name", list(NO_FRAMES))
def test_what_is_no_frame_is_malformed_and_costs_no_memory(name: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(Malformed) as caught:
            opened(pb.DeviceMessage, NO_FRAMES[name])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert 10 < len(str(caught.value)) < 300
    assert peak < 100_000


def test_a_frame_may_have_a_payload_that_nobody_uses() -> None:
    assert opened(pb.DeviceMessage, b"\x0a\x03abc" + HEADED).message == VALID["arrived"].message
    assert opened(pb.DeviceMessage, b"\x0a\x00" + HEADED).message == VALID["arrived"].message


# ---- pieces ------------------------------------------------------------------------------------------------------------------
def fast(rate_bps: float | None) -> TokenBucket:
    """A bucket whose clock is never behind."""
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += 1000 * seconds

    return TokenBucket(rate_bps, 1 << 20, now=lambda: now[0], sleep=sleep)


def piece(data: bytes, last: bool = False, **more: Any) -> bytes:
    return bytes(pb.Frame(piece=data, last=last, **more).SerializeToString())


def in_pieces(data: bytes, sizes: list[int]) -> Iterator[bytes]:
    at = 0
    for size in [*sizes, len(data)]:
        if at < len(data):
            yield piece(data[at : at + size], last=at + size >= len(data))
            at += size


def assert_joined(frames: list[bytes], kind: Any, wanted: list[Outgoing[Any]]) -> None:
    for found, sent in zip(joined(kind, iter(frames), 1 << 20), wanted, strict=True):
        assert_same_message(found, opened(kind, sent.frame()))


@pytest.mark.parametrize("name", list(VALID))
@pytest.mark.parametrize("rate_bps", [None, 1e3, 1e9])
def test_what_is_paced_is_joined_again(name: str, rate_bps: float | None) -> None:
    assert_joined(list(paced(VALID[name], fast(rate_bps))), kind_of(name), [VALID[name]])


@pytest.mark.parametrize("rate_bps", [None, 1e3, 10e6, 1e9])
def test_a_large_message_is_joined_again_and_the_next_one_too(rate_bps: float | None) -> None:
    several = [outgoing(torch.randn(size)) for size in (40_000, 1, 1024, 70_000)]
    bucket = fast(rate_bps)
    sent = [data for message in several for data in paced(message, bucket)]
    assert (len(sent) > len(several)) == (rate_bps is not None)
    assert_joined(sent, pb.DeviceMessage, several)


@given(st.lists(st.integers(1, 300), max_size=8), st.sampled_from(["step", "finished", "arrived"]))
def test_pieces_of_any_size_are_joined(sizes: list[int], name: str) -> None:
    data = VALID[name].frame()
    sent = [*in_pieces(data, sizes), data, *in_pieces(data, []), *in_pieces(data, [1] * 1000)]
    assert_joined(sent, pb.DeviceMessage, [VALID[name]] * 4)


def test_what_was_joined_does_not_change_with_what_comes_next() -> None:
    several = [outgoing(torch.full((100,), float(value))) for value in range(3)]
    arrived = list(
        joined(
            pb.DeviceMessage,
            (each for sent in several for each in in_pieces(sent.frame(), [150])),
            1 << 20,
        )
    )
    for value, incoming in enumerate(arrived):
        assert_same(decoded_all(incoming)[0], torch.full((100,), float(value)))


WHOLE = VALID["step"].frame()
BROKEN: dict[str, list[bytes]] = {
    "an empty piece": [piece(b"")],
    "an empty piece that is said": [b"\x1a\x00"],
    "an empty last piece": [piece(WHOLE), piece(b"", last=True)],
    "an empty last piece that is said": [piece(WHOLE), b"\x1a\x00\x20\x01"],
    "a message between": [piece(WHOLE[:9]), WHOLE],
    "nothing between": [piece(WHOLE[:9]), b""],
    "an end too early": [piece(WHOLE)],
    "one too large": [piece(bytes(2000), last=True)],
    "too many": [piece(bytes(300))] * 4,
    "no message": [piece(b"\xff" * 9, last=True)],
    "a byte too few": [piece(WHOLE[:-1], last=True)],
    "a byte too many": [piece(WHOLE), piece(b"\0", last=True)],
    "pieces in a piece": [piece(piece(WHOLE, last=True), last=True)],
    "a message in a piece": [piece(WHOLE[:9], header=HEADER)],
    "a payload in a piece": [piece(WHOLE[:9], payload=b"abc")],
    "a message after a piece": [piece(WHOLE, last=True) + b"\x12\x01a"],
    "a piece that does not end": [piece(WHOLE)[:-1]],
    "a piece that is said to be huge": [b"\x1a\xff\xff\xff\xff\x07abc"],
}


@pytest.mark.parametrize("name", list(BROKEN))
def test_pieces_that_make_no_message_are_malformed(name: str) -> None:
    with pytest.raises(Malformed):
        list(joined(pb.DeviceMessage, iter(BROKEN[name]), 1000))


def test_pieces_of_two_bytes_take_no_more_memory_than_their_message() -> None:
    """Each as an object of its own would take twenty times as much."""
    limit = 100_000
    endless = (piece(b"ab") for _ in range(limit))
    tracemalloc.start()
    try:
        with pytest.raises(Malformed, match="at most 100000 bytes"):
            list(joined(pb.DeviceMessage, endless, limit))
        assert tracemalloc.get_traced_memory()[1] < 2 * limit
    finally:
        tracemalloc.stop()


# ---- generated code ----------------------------------------------------------------------------------------------------------
def test_the_generated_code_is_that_of_the_proto(tmp_path: Path) -> None:
    """With the grpcio-tools of constraints.txt; run the same command into src to bring it up to date."""
    options = [
        f"--proto_path={NETWORK}",
        f"--python_out={tmp_path}",
        f"--pyi_out={tmp_path}",
        str(NETWORK / "airsplit.proto"),
    ]
    subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "grpc_tools.protoc", *options],
        check=True,
        capture_output=True,
    )
    for name in ("airsplit_pb2.py", "airsplit_pb2.pyi"):
        assert (tmp_path / name).read_bytes() == (NETWORK / name).read_bytes()
