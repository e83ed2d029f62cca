"""Partitions: disjoint, of the right sizes, reproducible, and mixed as configured."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airsplit.core.arrays import Ints
from airsplit.core.errors import InvalidValue, UnknownName
from airsplit.data.partition import (
    KINDS,
    check_partition,
    count_labels,
    draw_class_mix,
    get_sizes_without_data,
    partition,
    partition_samples,
)
from airsplit.scenario.settings import TrainingSettings

CLASSES = 10


def labels_of(samples: int, classes: int = CLASSES, seed: int = 0) -> Ints:
    return np.random.default_rng(seed).integers(0, classes, samples)


def balanced(samples: int) -> Ints:
    return np.random.default_rng(0).permutation(np.arange(samples) % CLASSES)


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    devices = draw(st.integers(1, 30))
    size = draw(st.none() | st.integers(1, 9))
    each = draw(st.integers(1, size or 3))
    samples = devices * (size or each) + draw(st.integers(0, 50))
    return {
        "kind": draw(st.sampled_from(KINDS)),
        "labels": labels_of(samples, draw(st.integers(1, 12)), draw(st.integers(0, 9))),
        "devices": devices,
        "seed": draw(st.integers(0, 2**64)),
        "alpha": draw(st.sampled_from([1e-300, 1e-3, 0.1, 1.0, 1e3, 1e300, 1.7e308])),
        "labels_per_device": each,
        "samples_per_device": size,
    }


@given(cases())
@settings(max_examples=150)
def test_rows_are_disjoint_ascending_and_of_the_right_number(case: dict[str, Any]) -> None:
    parts = partition(**case)
    samples, devices, size = len(case["labels"]), case["devices"], case["samples_per_device"]
    everything = np.concatenate(parts)
    assert len(parts) == devices
    assert len(np.unique(everything)) == len(everything)
    assert everything.min() >= 0
    assert everything.max() < samples
    assert all((np.diff(rows) > 0).all() for rows in parts)
    sizes = {len(rows) for rows in parts}
    if size is not None:
        assert sizes == {size}
    elif case["kind"] == "iid":
        assert len(everything) == samples
        assert max(sizes) - min(sizes) <= 1
    else:
        assert sizes == {samples // devices}


@given(cases())
@settings(max_examples=30)
def test_the_same_seed_gives_the_same_rows_and_labels_are_not_changed(
    case: dict[str, Any],
) -> None:
    before = case["labels"].copy()
    first = partition(**case)
    second = partition(**case)
    assert all((a == b).all() for a, b in zip(first, second, strict=True))
    assert (case["labels"] == before).all()


@pytest.mark.parametrize("kind", KINDS)
def test_another_seed_gives_other_rows(kind: str) -> None:
    labels = labels_of(1000)
    first, second = (partition(kind, labels, 5, seed=seed) for seed in (0, 1))
    assert any(a.tolist() != b.tolist() for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("kind", ["iid", "dirichlet"])
def test_the_first_devices_of_a_larger_fleet_hold_what_those_of_a_smaller_one_do(kind: str) -> None:
    labels = labels_of(6000)
    small, large = (
        partition(kind, labels, devices, seed=3, samples_per_device=50) for devices in (20, 100)
    )
    assert all((a == b).all() for a, b in zip(small, large, strict=False))


def test_a_mix_depends_on_the_device_and_not_on_the_fleet() -> None:
    labels = balanced(100_000)
    for devices in (20, 100):
        counts = count_labels(
            labels, partition("dirichlet", labels, devices, seed=7, alpha=1.0), CLASSES
        )
        size = len(labels) // devices
        for device in range(3):  # nothing has run out yet
            mix = draw_class_mix(7, device, CLASSES, 1.0)
            assert np.abs(counts[device] / size - mix).max() < 5 * 0.5 / np.sqrt(size)


def test_mixes_have_the_mean_and_variance_of_the_distribution() -> None:
    alpha = 0.5
    mixes = np.array([draw_class_mix(0, device, CLASSES, alpha) for device in range(4000)])
    mean = 1 / CLASSES
    variance = mean * (1 - mean) / (CLASSES * alpha + 1)
    assert mixes.mean(axis=0) == pytest.approx(mean, abs=5 * np.sqrt(variance / 4000))
    assert mixes.var(axis=0) == pytest.approx(variance, rel=0.15)


def test_a_large_alpha_is_nearly_uniform_and_a_small_one_nearly_one_class() -> None:
    labels = balanced(50_000)
    near = (
        count_labels(labels, partition("dirichlet", labels, 10, seed=0, alpha=1e6), CLASSES) / 5000
    )
    assert np.abs(near - 0.1).max() < 0.03
    far = (
        count_labels(
            labels,
            partition("dirichlet", labels, 10, seed=0, alpha=1e-4, samples_per_device=200),
            CLASSES,
        )
        / 200
    )
    assert np.median(far.max(axis=1)) > 0.99


def test_all_samples_are_used_even_if_the_mixes_do_not_fit() -> None:
    labels = np.repeat([0, 1], [990, 10])
    parts = partition("dirichlet", labels, 10, seed=0, alpha=1e-6)
    assert np.concatenate(parts).size == 1000


def test_if_the_classes_of_a_mix_run_out_the_rest_is_drawn_from_the_other_samples() -> None:
    labels = np.repeat([0, 1, 2], [10, 9000, 1000])
    first = next(seed for seed in range(99) if draw_class_mix(seed, 0, 3, 1e-300)[0] == 1.0)
    (rows,) = partition("dirichlet", labels, 1, seed=first, alpha=1e-300, samples_per_device=1000)
    counts = np.bincount(labels[rows], minlength=3)
    assert counts[0] == 10
    assert counts[1] / 990 == pytest.approx(0.9, abs=0.05)


@given(st.integers(1, 5), st.integers(2, 40), st.integers(0, 99))
@settings(max_examples=40)
def test_a_device_holds_few_labels_in_shards(each: int, devices: int, seed: int) -> None:
    labels = balanced(4000)
    parts = partition("shards", labels, devices, seed=seed, labels_per_device=each)
    held = (count_labels(labels, parts, CLASSES) > 0).sum(axis=1)
    boundaries = (
        -(-CLASSES // (devices * each)) if devices * each < CLASSES else 1
    )  # that one shard can lie across
    assert held.max() <= each * (1 + boundaries)


def test_shards_that_are_whole_classes_have_one_label_each() -> None:
    labels = balanced(1000)
    parts = partition("shards", labels, 5, seed=0, labels_per_device=2)
    counts = count_labels(labels, parts, CLASSES)
    assert (np.sort(counts, axis=1)[:, -2:] == 100).all()


def test_shards_are_runs_of_the_sorted_labels_of_nearly_equal_size() -> None:
    labels = np.arange(70)  # every sample a class: a shard is a run of rows
    parts = partition("shards", labels, 10, seed=4, labels_per_device=3)
    for rows in parts:
        assert len(rows) == 7
        ends = [at for at, (a, b) in enumerate(pairwise(rows), 1) if b != a + 1]
        runs = [len(run) for run in np.split(rows, ends)]
        assert len(runs) <= 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"devices": 11},
            r"^11 devices with one each need 11 samples, got 10; take fewer devices$",
        ),
        (
            {"devices": 11, "samples_per_device": 4},
            r"^11 devices with 4 each need 44 samples, got 10; take fewer devices$",
        ),
        (
            {"devices": 3, "samples_per_device": 4},
            r"^3 devices with 4 each need 12 samples, got 10; at most 3 each are available$",
        ),
        ({"devices": 0}, r"^devices must be a whole number >= 1, got 0"),
        (
            {"devices": 2, "samples_per_device": 0},
            r"^samples_per_device must be a whole number >= 1, got 0",
        ),
        ({"devices": 2, "seed": -1}, r"^seed must be a whole number >= 0, got -1"),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_too_few_samples_are_rejected_with_the_numbers(
    kind: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidValue, match=message):
        partition(kind, np.zeros(10, np.int64), **{"seed": 0} | options)


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("dirichlet", {"alpha": 0.0}, r"^alpha must be a finite number > 0, got 0"),
        ("dirichlet", {"alpha": np.nan}, r"^alpha must be a finite number > 0, got nan"),
        (
            "shards",
            {"labels_per_device": 0},
            r"^labels_per_device must be a whole number >= 1, got 0",
        ),
        (
            "shards",
            {"labels_per_device": 6},
            r"^labels_per_device must be at most the 5 samples of a device, got 6; take fewer",
        ),
    ],
)
def test_an_invalid_option_is_rejected(kind: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        partition(kind, np.zeros(10, np.int64), 2, seed=0, **options)


def test_an_unknown_partition_offers_the_nearest_one() -> None:
    with pytest.raises(
        UnknownName, match=r"^partition 'shard' is not known; did you mean 'shards'\?"
    ):
        partition("shard", np.zeros(4, np.int64), 2, seed=0)


@pytest.mark.parametrize("labels", [np.zeros((8, 3), np.int64), np.zeros(8), np.zeros(8, bool)])
def test_labels_that_are_not_one_whole_number_allow_only_iid(labels: Any) -> None:
    assert sum(map(len, partition("iid", labels, 3, seed=0))) == 8
    for kind in ("dirichlet", "shards"):
        with pytest.raises(
            InvalidValue,
            match=rf'^partition "{kind}" needs labels that are one whole number per sample, '
            r'got .*; take "iid"$',
        ):
            partition(kind, labels, 2, seed=0)


def test_labels_need_be_neither_small_nor_without_gaps() -> None:
    labels = np.array([10**12, 7, 7, 10**12] * 5)
    parts = partition("shards", labels, 2, seed=0, labels_per_device=1)
    assert {len(np.unique(labels[rows])) for rows in parts} == {1}
    assert len(partition("dirichlet", labels, 2, seed=0)) == 2


def test_label_counts_equal_a_count_by_hand() -> None:
    labels, parts = labels_of(50, 4), [np.array([3, 4, 8]), np.array([], np.int64), np.array([0])]
    expected = [
        [sum(int(labels[row]) == label for row in rows) for label in range(4)] for rows in parts
    ]
    assert count_labels(labels, parts, 4).tolist() == expected


# A user's function: any list of arrays of indices, each sample at one device at most.
@pytest.mark.parametrize(
    ("parts", "wrong"),
    [
        (
            np.array(3),
            "must return a list of 2 arrays of sample indices, one for each device, "
            r"got array\(3\)",
        ),
        (None, "must return a list of 2 arrays of sample indices, one for each device, got None"),
        ([[0]], "one for each device, got 1"),
        ([[0], []], "samples of device 1 must be at least one, got none"),
        ([[0], [1.5]], r"device 1 must be a list or array of integer indices, got \[1.5\]"),
        ([[0], [[1]]], r"device 1 must be a list or array of integer indices, got \[\[1\]\]"),
        ([[0], [[1], [2, 3]]], "device 1 must be a list or array of integer indices"),
        ([[0], [True]], r"device 1 must be a list or array of integer indices, got \[True\]"),
        ([[0], [4]], "device 1 must be indices from 0 to 3, got 4"),
        ([[0, -1], [1]], "device 0 must be indices from 0 to 3, got -1"),
        ([[2, 0, 2], [1]], "got sample 2 for devices 0 and 0"),
        ([[2, 0], [0, 1]], "to at most one device and once, got sample 0 for devices 0 and 1"),
    ],
)
def test_an_invalid_partition_by_path_is_rejected(parts: Any, wrong: str) -> None:
    with pytest.raises(InvalidValue, match=wrong):
        check_partition(parts, 4, 2, "mine:partition")


def test_a_partition_by_path_may_leave_samples_out_and_return_a_matrix() -> None:
    assert [rows.tolist() for rows in check_partition(np.array([[3, 1], [0, 2]]), 9, 2, "a:b")] == [
        [1, 3],
        [0, 2],
    ]


@pytest.mark.parametrize(
    ("kind", "devices"), [("iid", 7), ("dirichlet", 7), ("shards", 7), ("iid", 1437)]
)
def test_sizes_without_the_data_equal_those_of_the_partition(kind: str, devices: int) -> None:
    training = TrainingSettings(partition=kind)
    labels = np.arange(1437) % 10
    sizes = get_sizes_without_data(training, devices)
    assert sizes is not None
    assert sizes.tolist() == [len(rows) for rows in partition_samples(training, labels, devices)]
