"""Rules of settings that only scenarios have."""

from __future__ import annotations

from typing import Any

import pytest

import airsplit as air
from airsplit.scenario.rules import require_splits, require_training_device
from airsplit.scenario.settings import ModelSettings


@pytest.mark.parametrize("device", ["cpu", "cuda", "cuda:0", "cuda:99"])
def test_a_training_device_is_the_cpu_or_a_gpu(device: str) -> None:
    require_training_device("training.device", device)


@pytest.mark.parametrize(
    "device", ["", "gpu", "CPU", "cuda:", "cuda:01", "cuda:-1", "cuda:100", "cpu\n"]
)
def test_any_other_training_device_is_rejected(device: str) -> None:
    with pytest.raises(
        air.InvalidValue, match=r'^training\.device must be "cpu", "cuda" or one GPU'
    ):
        require_training_device("training.device", device)


@pytest.mark.parametrize("splits", [1, "pool1", (1, "pool1", 3)])
def test_splits_are_numbers_and_names_for_one_device_or_each(splits: Any) -> None:
    require_splits("plan.split", splits)


@pytest.mark.parametrize("splits", [0, "", 1.0, True, None, (1, 0), ((1,),), [1]])
def test_any_other_splits_are_rejected(splits: Any) -> None:
    with pytest.raises(
        air.InvalidValue, match=r"^plan\.split must be a split's number, from 1, or"
    ):
        require_splits("plan.split", splits)


def test_an_integer_that_toml_cannot_hold_is_rejected():
    with pytest.raises(
        air.InvalidValue,
        match=r"model\.arguments\.a must be an integer of at most 64 bits, got 1844674407370955",
    ):
        ModelSettings(name="alexnet", arguments={"a": 2**64})
