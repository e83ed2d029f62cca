"""Partitions of samples among devices: labels in, the rows of each device out."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from airsplit.core.arrays import Floats, Ints
from airsplit.core.errors import InvalidValue, require_choice, require_integer, show
from airsplit.core.plugins import import_factory
from airsplit.core.randomness import generator
from airsplit.data.image_sets import get_image_set
from airsplit.scenario.settings import TrainingSettings

KINDS = ("iid", "dirichlet", "shards")

# Defaults and rules are those of [training].
_SETTINGS = TrainingSettings.declarations()

# From here on a mix is uniform to the last digit; sums of larger values overflow.
_UNIFORM_ALPHA = 1e100
# Weights with a smaller sum cannot be normalized.
_LEAST_WEIGHT = 1e-300


def partition(
    kind: str,
    labels: NDArray[Any],
    devices: int,
    *,
    seed: int,
    alpha: float = _SETTINGS["alpha"].default,
    labels_per_device: int = _SETTINGS["labels_per_device"].default,
    samples_per_device: int | None = None,
) -> list[Ints]:
    """Divide samples among devices; return the rows of each device, disjoint and ascending.

    - iid: a random permutation, cut into equal parts. Without `samples_per_device` all samples are
      used, and sizes differ by at most one.
    - dirichlet: each device draws its mix of classes from Dir(alpha), then its samples by that
      mix, one device after the other.
    - shards: samples sorted by label are cut into equal shards; each device gets
      `labels_per_device` of them at random.

    In the last two each device has n // devices samples, unless `samples_per_device` is given; the
    samples left over are drawn at random. With `samples_per_device`, the first devices of a larger
    fleet hold the same samples as those of a smaller one, except in shards.

    >>> labels = np.array([1, 0, 1, 0])
    >>> [rows.tolist() for rows in partition("shards", labels, 2, seed=0, labels_per_device=1)]
    [[1, 3], [0, 2]]
    """
    require_choice("partition", kind, KINDS)
    require_integer("devices", devices, low=1)
    require_integer("seed", seed, low=0)
    labels = np.asarray(labels)
    size = get_part_size(len(labels), devices, samples_per_device)
    if kind == "iid":
        order = generator(seed, "iid").permutation(len(labels))
        if samples_per_device is None:
            parts = np.array_split(order, devices)
        else:
            parts = np.split(order[: devices * size], devices)
        return [np.sort(rows) for rows in parts]

    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise InvalidValue(
            f'partition "{kind}" needs labels that are one whole number per sample, '
            f'got {labels.dtype} of shape {show(labels.shape)}; take "iid"'
        )
    # Classes are numbered from 0 without gaps, whatever numbers the labels are.
    classes = np.unique(labels, return_inverse=True)[1].astype(np.int64)
    if kind == "dirichlet":
        _SETTINGS["alpha"].check("alpha", alpha)
        return partition_dirichlet(classes, devices, size, seed, alpha)
    _SETTINGS["labels_per_device"].check("labels_per_device", labels_per_device)
    return partition_shards(classes, devices, size, seed, labels_per_device)


def partition_samples(settings: TrainingSettings, labels: NDArray[Any], devices: int) -> list[Ints]:
    """Return the rows of each device by the settings of a training.

    >>> settings = TrainingSettings(samples_per_device=2)
    >>> [len(rows) for rows in partition_samples(settings, np.zeros(9, dtype=int), 3)]
    [2, 2, 2]
    """
    if ":" in settings.partition:
        divide = import_factory(
            settings.partition, "training.partition", "a list of arrays of sample indices"
        )
        # The labels are the data set's own memory, so the function gets a copy.
        parts = divide(
            np.array(labels),
            devices,
            generator(settings.seed, "partition"),
            **settings.partition_arguments,
        )
        return check_partition(parts, len(labels), devices, settings.partition)

    options: dict[str, Any] = {}
    for key in ("alpha", "labels_per_device", "samples_per_device"):
        value = getattr(settings, key)
        # None: the setting belongs to another partition.
        if value is not None:
            options[key] = value
    return partition(settings.partition, labels, devices, seed=settings.seed, **options)


def check_partition(parts: object, samples: int, devices: int, path: str) -> list[Ints]:
    """Return the rows that a partition by path gave each device, ascending; raise if one is wrong.

    >>> [rows.tolist() for rows in check_partition([[3, 0], [2]], 4, 2, "mine:halves")]
    [[0, 3], [2]]
    """
    field = f"training.partition {path!r}"
    rule = f"a list of {devices} arrays of sample indices, one for each device"
    if isinstance(parts, np.ndarray) and parts.ndim > 0:
        parts = list(parts)
    if not isinstance(parts, list | tuple):
        raise InvalidValue(f"{field} must return {rule}, got {show(parts)}")
    if len(parts) != devices:
        raise InvalidValue(f"{field} must return {rule}, got {len(parts)}")
    owner_of = np.full(samples, -1)
    checked = []
    for device, part in enumerate(parts):
        rows = check_rows(f"{field}: samples of device {device}", part, samples)
        # The rows are sorted, so a sample that is there twice follows itself.
        repeated = rows[:-1][rows[:-1] == rows[1:]]
        taken = np.append(repeated, rows[owner_of[rows] >= 0])
        if len(taken):
            sample = int(taken[0])
            first = device if len(repeated) else int(owner_of[sample])
            raise InvalidValue(
                f"{field} must give each sample to at most one device and once, "
                f"got sample {sample} for devices {first} and {device}"
            )
        owner_of[rows] = device
        checked.append(rows)
    return checked


def check_rows(field: str, part: object, samples: int) -> Ints:
    """Return one device's sample indices, ascending."""
    try:
        rows = np.asarray(part)
    except (TypeError, ValueError):
        # Lists of different lengths do not form an array.
        rows = np.asarray(None)
    if rows.size == 0:
        raise InvalidValue(f"{field} must be at least one, got none; use fewer devices")
    if rows.ndim != 1 or rows.dtype.kind not in "iu":
        raise InvalidValue(f"{field} must be a list or array of integer indices, got {show(part)}")
    outside = rows[(rows < 0) | (rows >= samples)]
    if len(outside):
        raise InvalidValue(
            f"{field} must be indices from 0 to {samples - 1:,}, got {show(outside[0])}"
        )
    return np.sort(rows).astype(np.int64)


def get_sizes_without_data(settings: TrainingSettings, devices: int) -> Ints | None:
    """Return how many samples each device will hold; None if that is unknown without the data.

    >>> get_sizes_without_data(TrainingSettings(dataset="digits"), 4).tolist()  # 1,437 samples
    [360, 359, 359, 359]
    """
    if settings.samples_per_device is not None:
        return np.full(devices, settings.samples_per_device)
    if ":" in settings.dataset or ":" in settings.partition:
        return None
    samples = get_image_set(settings.dataset).train
    if samples < devices:
        # There is no such partition; training reports that.
        return None
    sizes = np.full(devices, samples // devices)
    if settings.partition == "iid":
        # The first parts of np.array_split are the larger ones.
        sizes[: samples % devices] += 1
    return sizes


def count_labels(labels: NDArray[Any], parts: list[Ints], classes: int) -> Ints:
    """Return how many samples of each class each device holds, devices × classes.

    >>> parts = [np.array([0, 1]), np.array([2, 3])]
    >>> count_labels(np.array([0, 1, 1, 1]), parts, 2).tolist()
    [[1, 1], [0, 2]]
    """
    owners = np.repeat(np.arange(len(parts)), [len(rows) for rows in parts])
    # A number for each pair (device, class), so that one bincount counts all of them.
    cells = owners * classes + np.asarray(labels)[np.concatenate(parts)]
    counts = np.bincount(cells, minlength=len(parts) * classes)
    return counts.reshape(len(parts), classes).astype(np.int64)


def draw_class_mix(seed: int, device: int, classes: int, alpha: float) -> Floats:
    """Draw the share of each class in a device's samples from Dir(alpha).

    The mix of a device is the same in a fleet of any size.

    >>> draw_class_mix(0, 3, 10, alpha=1e9).round(3).tolist() == [0.1] * 10
    True
    """
    return _draw_mix(generator(seed, "class mix", device), classes, alpha)


def _draw_mix(rng: np.random.Generator, classes: int, alpha: float) -> Floats:
    return rng.dirichlet(np.full(classes, min(alpha, _UNIFORM_ALPHA)))


def get_part_size(samples: int, devices: int, samples_per_device: int | None) -> int:
    """Return the number of samples of a device; raise if there are not that many."""
    if samples_per_device is None:
        if samples < devices:
            raise InvalidValue(
                f"{devices:,} devices with one each need {devices:,} samples, got {samples:,}; "
                "take fewer devices"
            )
        return samples // devices

    size = require_integer("samples_per_device", samples_per_device, low=1)
    if samples < devices * size:
        available = samples // devices
        hint = f"at most {available:,} each are available" if available else "take fewer devices"
        raise InvalidValue(
            f"{devices:,} devices with {size:,} each need {devices * size:,} samples, "
            f"got {samples:,}; {hint}"
        )
    return size


def partition_dirichlet(
    classes: Ints, devices: int, size: int, seed: int, alpha: float
) -> list[Ints]:
    """Give each device samples of each class by its mix from Dir(alpha)."""
    remaining = np.bincount(classes)
    # Samples grouped by class, in random order within each.
    order = generator(seed, "samples of a class").permutation(len(classes))
    by_class = np.split(order[np.argsort(classes[order], kind="stable")], np.cumsum(remaining)[:-1])

    counts = np.empty((devices, len(remaining)), np.int64)
    for device in range(devices):
        # One generator draws the mix and the counts, so a device draws the same in any fleet.
        rng = generator(seed, "class mix", device)
        mix = _draw_mix(rng, len(remaining), alpha)
        counts[device] = draw_label_counts(rng, mix, size, remaining)
        remaining -= counts[device]

    owners = [np.repeat(np.arange(devices), column) for column in counts.T]
    rows = [pile[: len(owner)] for pile, owner in zip(by_class, owners, strict=True)]
    return _group_by_owner(np.concatenate(rows), np.concatenate(owners), devices)


def draw_label_counts(rng: np.random.Generator, mix: Floats, size: int, remaining: Ints) -> Ints:
    """Draw how many samples of each class a device gets by its mix, at most those remaining.

    If a class runs out, the rest is drawn from the other classes by their shares in the mix; if
    all of these have run out, by the number of samples remaining.
    """
    drawn = np.zeros_like(remaining)
    # Each pass but the last uses up a class, so there are at most as many passes as classes.
    while size > 0:
        weights = np.where(remaining > drawn, mix, 0.0)
        if weights.sum() < _LEAST_WEIGHT:
            weights = (remaining - drawn).astype(np.float64)
        more = np.minimum(rng.multinomial(size, weights / weights.sum()), remaining - drawn)
        drawn += more
        size -= int(more.sum())
    return drawn


def partition_shards(
    classes: Ints, devices: int, size: int, seed: int, shards_per_device: int
) -> list[Ints]:
    """Deal shards of consecutive samples, in the order of their labels.

    If `size` is not a multiple of the number of shards, some shards have one sample more, and each
    device gets the same number of those.
    """
    if shards_per_device > size:
        raise InvalidValue(
            f"labels_per_device must be at most the {size:,} samples of a device, "
            f"got {shards_per_device:,}; take fewer labels or devices"
        )
    # Samples beyond devices * size stay unused, so that all devices hold the same number.
    used = generator(seed, "samples in shards").permutation(len(classes))[: devices * size]
    rows = used[np.argsort(classes[used], kind="stable")]

    # The first shards of the permutation become the larger ones; both kinds are dealt in turn.
    shards = generator(seed, "shards").permutation(devices * shards_per_device)
    large_per_device = size % shards_per_device
    large = shards[: devices * large_per_device]
    small = shards[devices * large_per_device :]
    owners = np.empty_like(shards)
    owners[large] = np.repeat(np.arange(devices), large_per_device)
    owners[small] = np.repeat(np.arange(devices), shards_per_device - large_per_device)
    sizes = np.full_like(shards, size // shards_per_device)
    sizes[large] += 1
    return _group_by_owner(rows, np.repeat(owners, sizes), devices)


def _group_by_owner(rows: Ints, owners: Ints, devices: int) -> list[Ints]:
    """Return the rows of each owner, ascending."""
    # By owner, then by row: the last key of lexsort comes first.
    order = np.lexsort((rows, owners))
    return np.split(rows[order], np.cumsum(np.bincount(owners, minlength=devices))[:-1])
