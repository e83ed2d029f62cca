"""Compression against its theory: how far a number may move, and what must not move at all."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from airsplit.scenario.settings import COMPRESSIONS
from airsplit.training.compression import (
    VALUES,
    along,
    applies,
    carried,
    channel_axis,
    coded,
    decoded,
    scale_count,
)
from airsplit.training.coordinator import Training
from training.tiny import scenario

WAYS = list(VALUES)
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
SMALLEST = 2.0**-126  # the smallest 32-bit float with all its digits

shapes = st.lists(st.integers(1, 7), min_size=1, max_size=4).map(tuple)
seeds = st.integers(0, 2**32 - 1)
powers = st.integers(-120, 120)


def drawn(shape: tuple[int, ...], seed: int, power: int = 0, spread: float = 1.0) -> Tensor:
    """Numbers about 2^power; with a large spread, of very different sizes."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(shape) * np.exp2(power + spread * rng.uniform(-1, 1, shape))
    return torch.from_numpy(np.clip(values, -3e38, 3e38)).to(torch.float32)


def sent_and_found(tensor: Tensor, compression: str) -> tuple[Tensor, Tensor]:
    """What is sent and what arrives, with digits to spare; whether or not it is worth while for so few numbers."""
    return tensor.double(), decoded(coded(tensor, compression), tensor.dtype).double()


# ---- how far a number may move -------------------------------------------------------------------------------------------------
@given(shapes, seeds, powers, st.floats(0, 6))
def test_bf16_keeps_eight_digits(
    shape: tuple[int, ...], seed: int, power: int, spread: float
) -> None:
    sent, found = sent_and_found(drawn(shape, seed, power, spread), "bf16")
    bound = 2.0**-8 * sent.abs() + SMALLEST * 2.0**-7
    assert bool(((found - sent).abs() <= bound).all())


@given(shapes, seeds, powers, st.floats(0, 30))
def test_fp16_keeps_eleven_digits_down_to_where_its_small_numbers_begin(
    shape: tuple[int, ...], seed: int, power: int, spread: float
) -> None:
    sent, found = sent_and_found(drawn(shape, seed, power, spread), "fp16")
    scale = float(coded(drawn(shape, seed, power, spread), "fp16").scales)
    begin = 2.0**-14 * scale
    bound = torch.where(sent.abs() >= begin, 2.0**-11 * sent.abs(), 2.0**-25 * scale)
    assert bool(((found - sent).abs() <= bound + 2.0**-150).all())


@given(shapes, seeds, st.integers(-140, 127), st.floats(0, 3))
def test_the_scale_of_fp16_is_a_power_of_two_that_uses_its_range(
    shape: tuple[int, ...], seed: int, power: int, spread: float
) -> None:
    tensor = drawn(shape, seed, power, spread)
    sent = coded(tensor, "fp16")
    assert math.frexp(float(sent.scales))[0] == 0.5
    assert float(sent.values.abs().max()) <= 2.0**15
    if float(tensor.abs().max()) >= 2.0**-111:
        assert float(sent.values.abs().max()) >= 2.0**14


@given(shapes, seeds, st.integers(-150, 120), st.floats(0, 6))
def test_int8_moves_a_number_by_half_a_step_of_its_channel_at_most(
    shape: tuple[int, ...], seed: int, power: int, spread: float
) -> None:
    tensor = drawn(shape, seed, power, spread)
    sent, found = sent_and_found(tensor, "int8")
    axis = channel_axis(tensor.dim())
    others = [at for at in range(tensor.dim()) if at != axis]
    largest = sent.abs().amax(dim=others).reshape(-1)
    step = along((largest / 127).clamp(min=SMALLEST), tensor.dim(), axis)
    assert bool(((found - sent).abs() <= step * (0.5 + 1e-4)).all())


@pytest.mark.parametrize("compression", WAYS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_every_floating_type_is_carried_as_itself(dtype: torch.dtype, compression: str) -> None:
    tensor = drawn((5, 4, 3), 1).to(dtype)
    found = carried(tensor, compression)
    assert found.dtype == dtype
    assert found.shape == tensor.shape
    torch.testing.assert_close(
        found.double(), tensor.double(), rtol=2.0**-8, atol=0.02 if compression == "int8" else 0
    )


# ---- what must not move --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("compression", WAYS)
@pytest.mark.parametrize("largest", [0.0, 1e-44, 1e-38, 1.0, 3e38])
def test_zeros_stay_zero(compression: str, largest: float) -> None:
    tensor = torch.zeros(4, 3, 2)
    tensor[0, 1, 0] = largest
    found = carried(tensor, compression)
    assert bool((found[tensor == 0] == 0).all())


@pytest.mark.parametrize("compression", ["none", *WAYS])
@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(12).reshape(3, 4),
        torch.ones(3, 4).bool(),
        torch.zeros(2, 3, dtype=torch.complex64),
    ],
)
def test_what_is_no_float_is_untouched(compression: str, tensor: Tensor) -> None:
    assert not applies(tensor, compression)
    assert torch.equal(carried(tensor, compression), tensor)


@pytest.mark.parametrize("compression", WAYS)
@pytest.mark.parametrize("tensor", [torch.tensor(0.1), torch.zeros(0), torch.zeros(3, 0, 2)])
def test_one_number_and_none_cross_as_they_are(compression: str, tensor: Tensor) -> None:
    assert not applies(tensor, compression)
    assert torch.equal(carried(tensor, compression), tensor)


@given(st.sampled_from(FLOATS), shapes, seeds, st.sampled_from(WAYS))
def test_what_would_not_get_smaller_crosses_as_it_is(
    dtype: torch.dtype, shape: tuple[int, ...], seed: int, compression: str
) -> None:
    tensor = drawn(shape, seed).to(dtype)
    size = tensor.numel() * VALUES[compression].itemsize + 4 * scale_count(shape, compression)
    assert applies(tensor, compression) == (size < tensor.numel() * dtype.itemsize)
    if not applies(tensor, compression):
        assert torch.equal(carried(tensor, compression), tensor)


@pytest.mark.parametrize("compression", ["fp16", "bf16"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_numbers_of_sixteen_bits_lose_nothing_to_sixteen_bits(
    dtype: torch.dtype, compression: str
) -> None:
    tensor = drawn((20, 30), 3, spread=12).to(dtype)
    assert torch.equal(carried(tensor, compression), tensor)


@pytest.mark.parametrize("compression", ["none", *WAYS])
def test_what_is_carried_lies_in_one_piece_and_has_no_graph(compression: str) -> None:
    tensor = drawn((4, 5, 6), 2).requires_grad_().transpose(0, 2)
    found = carried(tensor, compression)
    assert found.is_contiguous()
    assert not found.requires_grad
    assert torch.equal(found, carried(tensor.detach().contiguous(), compression))


# ---- numbers that are none -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("compression", WAYS)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_is_seen_after_it_has_crossed(
    compression: str, dtype: torch.dtype, bad: float
) -> None:
    tensor = drawn((4, 3, 2, 2), 5).to(dtype)
    tensor[1, 2, 0, 1] = bad
    found = carried(tensor, compression)
    assert not math.isfinite(float(found[1, 2, 0, 1]))
    if compression == "int8":
        assert bool(torch.isfinite(found[:, :2]).all())


@pytest.mark.parametrize("compression", WAYS)
@pytest.mark.parametrize("largest", [1.7e38, 1.8e38, 3.38e38])
def test_the_largest_numbers_stay_finite(compression: str, largest: float) -> None:
    tensor = torch.tensor([[largest, -largest / 3, largest / 100]] * 2)
    torch.testing.assert_close(
        carried(tensor, compression), tensor, rtol=2.0**-8, atol=largest / 250
    )


@pytest.mark.parametrize("units", [1, 100, 127, 180, 254, 1000, 10**6])
def test_the_smallest_numbers_never_change_their_sign(units: int) -> None:
    """Scales that have run out of digits would let whole numbers run over."""
    tensor = torch.tensor([[units * 2.0**-149, -units * 2.0**-149]])
    for compression in WAYS:
        found = decoded(coded(tensor, compression), tensor.dtype)
        assert float(found[0, 0]) >= 0
        assert float(found[0, 1]) <= 0


# ---- small gradients -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("power", [-12, -20, -30, -37])
def test_small_gradients_survive_fp16(power: int) -> None:
    tensor = drawn((8, 16), 4) * 10.0**power
    torch.testing.assert_close(carried(tensor, "fp16"), tensor, rtol=2.0**-11, atol=0)


def test_gradients_beside_much_larger_ones_survive_fp16() -> None:
    """A float of 16 bits has normal numbers from 2^-14 to 2^15: all of them are used."""
    tensor = torch.exp2(-torch.arange(29.0)) * 1.2345e-12
    torch.testing.assert_close(carried(tensor, "fp16"), tensor, rtol=2.0**-11, atol=0)


# ---- twice -----------------------------------------------------------------------------------------------------------------------
@given(shapes, seeds, powers, st.floats(0, 6), st.sampled_from(["bf16", "fp16"]))
def test_carrying_floats_twice_is_carrying_them_once(
    shape: tuple[int, ...], seed: int, power: int, spread: float, compression: str
) -> None:
    once = carried(drawn(shape, seed, power, spread), compression)
    assert torch.equal(carried(once, compression), once)


@given(shapes, seeds, powers)
def test_carrying_whole_numbers_twice_moves_them_by_a_rounding_error_only(
    shape: tuple[int, ...], seed: int, power: int
) -> None:
    once = carried(drawn(shape, seed, power), "int8")
    torch.testing.assert_close(carried(once, "int8"), once, rtol=2.0**-22, atol=0)


# ---- training --------------------------------------------------------------------------------------------------------------------
def test_every_compression_of_a_scenario_is_known_here() -> None:
    assert {name: 8 * dtype.itemsize for name, dtype in VALUES.items()} == {
        name: b for name, b in COMPRESSIONS.items() if name != "none"
    }


def losses(**changes: Any) -> list[float]:
    training = Training(scenario(splits=[1, 2, 3, 1, 2], rounds=4, **changes))
    return [record.train_loss for record in training.rounds()]


@pytest.mark.parametrize(("model", "data"), [("mlp", "parted"), ("cnn", "parted_images")])
def test_the_simulator_trains_with_every_compression_almost_as_without(
    model: str, data: str
) -> None:
    wanted = losses(model=model, data=data)
    assert wanted[-1] < 0.8 * wanted[0]
    for compression, bound in (("fp16", 1e-3), ("bf16", 2e-2), ("int8", 3e-2)):
        found = losses(model=model, data=data, network__compression=compression)
        assert found != wanted
        assert found == pytest.approx(wanted, rel=bound)


@pytest.mark.filterwarnings("ignore:the devices are trained one after the other")
@pytest.mark.parametrize("compression", WAYS)
def test_compression_of_one_iteration_a_round_does_not_depend_on_fast_paths(
    compression: str,
) -> None:
    fast, plain = (
        losses(iterations_per_round=1, fast_paths=fast, network__compression=compression)
        for fast in (True, False)
    )
    assert fast == plain


@pytest.mark.parametrize("compression", WAYS)
def test_federated_averaging_has_nothing_to_compress(compression: str) -> None:
    assert losses(algorithm="fedavg", network__compression=compression) == losses(
        algorithm="fedavg"
    )
