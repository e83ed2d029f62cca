"""Mini-batches: consecutive blocks of a permutation keyed (seed, device, epoch)."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest

from airsplit.data.batches import Batches, describe_short_devices, describe_short_devices_in

PARTS = [np.arange(100, 111), np.array([7, 3, 5]), np.arange(40, 44), np.array([9])]


def epoch(batches: Batches, device: int, number: int, blocks: int) -> list[list[int]]:
    return [batches.rows(device, number * blocks + at).tolist() for at in range(blocks)]


def test_an_epoch_uses_samples_once_and_leaves_out_those_that_fill_no_batch() -> None:
    batches = Batches(PARTS, 4, seed=0)
    for number in range(5):
        first, second = epoch(
            batches, 0, number, blocks=2
        )  # 11 samples: two blocks of four, three left over
        assert len(first) == len(second) == 4
        assert len({*first, *second}) == 8
        assert {*first, *second} <= set(PARTS[0].tolist())


def test_over_many_epochs_every_sample_is_used_about_as_often() -> None:
    batches = Batches(PARTS, 4, seed=0)
    used = np.bincount(
        np.concatenate([batches.rows(0, i) for i in range(2000)]) - 100, minlength=11
    )
    assert used.sum() == 8000
    assert np.abs(used / 8000 - 1 / 11).max() < 0.01  # standard error 0.002


def test_a_device_with_fewer_samples_than_a_batch_uses_all_of_them_every_time() -> None:
    batches = Batches(PARTS, 4, seed=0)
    for iteration in (0, 1, 17):
        assert sorted(batches.rows(1, iteration).tolist()) == [3, 5, 7]
        assert batches.rows(3, iteration).tolist() == [9]
    assert [batches.size(k) for k in range(4)] == [4, 3, 4, 1]


def test_a_device_with_exactly_a_batch_uses_it_in_another_order_every_epoch() -> None:
    batches = Batches(PARTS, 4, seed=0)
    orders = {tuple(batches.rows(2, i).tolist()) for i in range(20)}
    assert {tuple(sorted(order)) for order in orders} == {(40, 41, 42, 43)}
    assert len(orders) > 10


def test_the_order_depends_on_seed_device_and_epoch_and_on_nothing_else() -> None:
    parts = [np.arange(64)] * 2
    batches = Batches(parts, 32, seed=1)
    again = Batches([*parts, np.arange(5)], 32, seed=1)
    other = Batches(parts, 32, seed=2)
    # A late iteration first, then the earlier ones.
    late = again.rows(0, 6).tolist()
    assert late == batches.rows(0, 6).tolist()
    orders = [
        epoch(batches, 0, 0, 2),
        epoch(batches, 0, 1, 2),
        epoch(batches, 1, 0, 2),
        epoch(other, 0, 0, 2),
    ]
    assert all(a != b for a, b in combinations(orders, 2))
    assert orders[0] == epoch(again, 0, 0, 2)


def test_a_larger_batch_is_the_concatenation_of_smaller_ones() -> None:
    part = [np.arange(24)]
    small, large = Batches(part, 4, seed=3), Batches(part, 12, seed=3)
    assert (
        np.concatenate([small.rows(0, i) for i in range(3)]).tolist() == large.rows(0, 0).tolist()
    )
    assert (
        np.concatenate([small.rows(0, i) for i in range(3, 6)]).tolist()
        == large.rows(0, 1).tolist()
    )
    assert large.rows(0, 0).tolist() != sorted(large.rows(0, 0).tolist())


@pytest.mark.parametrize("batch_size", [12, 13, 10**9])
def test_a_batch_larger_than_the_data_is_all_the_data(batch_size: int) -> None:
    batches = Batches([np.arange(12)], batch_size, seed=0)
    assert sorted(batches.rows(0, 5).tolist()) == list(range(12))
    assert batches.size(0) == 12


def test_devices_that_hold_less_than_a_batch_are_named() -> None:
    warning = describe_short_devices(np.array([3, 4, 1_500, 2, 1]), 4, lambda k: f"pi{k}")
    assert warning is not None
    assert warning.startswith(
        "training.batch_size is 4, but 3 of 5 devices hold fewer samples "
        "(pi0: 3, pi3: 2, pi4: 1); they use"
    )
    many = describe_short_devices(np.full(1000, 2), 4)
    assert many is not None
    assert "but 1,000 of 1,000 devices hold fewer samples (0: 2, 1: 2, 2: 2, …)" in many
    assert describe_short_devices(np.array([4, 5]), 4) is None


@pytest.mark.parametrize(
    "plan",
    [
        {},
        {"samples": 3, "device_names": ["a"], "batch_size": 9},
        {"samples": [3, 4], "device_names": ["a"], "batch_size": 9},
        {"samples": ["3"], "device_names": ["a"], "batch_size": 9},
        {"samples": [3], "device_names": ["a"], "batch_size": "9"},
    ],
)
def test_a_plan_without_sample_counts_gives_no_warning(plan: dict[str, Any]) -> None:
    assert (
        describe_short_devices_in({"samples": [3], "device_names": ["a"], "batch_size": 9})
        is not None
    )
    assert describe_short_devices_in(plan) is None


def test_iterations_of_a_round_are_counted_over_all_rounds() -> None:
    batches = Batches(PARTS, 4, seed=0, iterations_per_round=3)
    for device in range(len(PARTS)):
        in_rounds = [batches.rows_in_round(device, r, i) for r in (1, 2, 3) for i in range(3)]
        counted = [batches.rows(device, iteration) for iteration in range(9)]
        assert all((a == b).all() for a, b in zip(in_rounds, counted, strict=True))
