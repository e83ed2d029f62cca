"""Building blocks of the plain networks: initial weights."""

from __future__ import annotations

import math

import pytest
import torch

from airsplit.models.zoo.layers import Stack


@pytest.mark.parametrize(("name", "fan_in"), [("conv1", 3 * 5 * 5), ("fc2", 64 * 4 * 4)])
def test_initial_weights_are_uniform_with_variance_2_over_fan_in_and_biases_are_zero(
    name: str, fan_in: int
) -> None:
    stack = Stack("tiny", (3, 8, 8))
    stack.conv("1", filters=64, kernel=5)
    stack.fc("2", features=32)
    layer = stack.layers.get_submodule(name)

    weight = layer.get_parameter("weight")
    assert weight.abs().max() <= math.sqrt(6 / fan_in)
    assert weight.var().item() == pytest.approx(2 / fan_in, rel=0.1)
    assert torch.equal(layer.get_parameter("bias"), torch.zeros(len(weight)))
