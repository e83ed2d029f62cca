"""Who holds which samples.  Pure functions on arrays: labels in, rows of each device out."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from airsplit.core.arrays import Floats, Ints
from airsplit.core.errors import InvalidValue, require_choice, require_integer, require_number, show
from airsplit.core.plugins import import_factory
from airsplit.core.randomness import generator
from airsplit.data.image_sets import get_image_set
from airsplit.scenario.settings import TrainingSettings

KINDS = ("iid", "dirichlet", "shards")

_ALPHA_OF_UNIFORM = (
    1e100  # from here on a mix is uniform to the last digit, and sums no longer fit into a float
)
_NOTHING = 1e-300  # less of a mix than this cannot be scaled up


def partition(
    kind: str,
    labels: NDArray[Any],
    devices: int,
    *,
    seed: int,
    alpha: float = 0.5,
    labels_per_device: int = 2,
    samples_per_device: int | None = None,
) -> list[Ints]:
    """The rows of each device: disjoint, and in ascending order.

    iid        a shuffled pile dealt to all; without `samples_per_device` nothing is left over, and sizes differ by one at most
    dirichlet  every device draws its mix of classes from Dir(alpha), then its samples by that mix, one device after the other
    shards     samples sorted by label and cut into equal shards, of which every device is dealt `labels_per_device`

    In the last two every device has n // devices samples, unless `samples_per_device` says how many; what is left over is
    drawn at random.  With `samples_per_device` the first devices of a larger fleet hold what those of a smaller one do,
    but for shards.

    >>> [rows.tolist() for rows in partition("shards", np.array([1, 0, 1, 0]), 2, seed=0, labels_per_device=1)]
    [[1, 3], [0, 2]]
    """
    require_choice("partition", kind, KINDS)
    require_integer("devices", devices, low=1)
    require_integer("seed", seed, low=0)
    labels = np.asarray(labels)
    size = _size(len(labels), devices, samples_per_device)
    if kind == "iid":
        return _iid(len(labels), devices, seed, samples_per_device)
    classes = _classes(kind, labels)
    if kind == "dirichlet":
        require_number("alpha", alpha, above=0)
        return _dirichlet(classes, devices, size, seed, alpha)
    require_integer("labels_per_device", labels_per_device, low=1)
    return _shards(classes, devices, size, seed, labels_per_device)


def partition_samples(settings: TrainingSettings, labels: NDArray[Any], devices: int) -> list[Ints]:
    """Return the rows of each device by the settings of a training.

    >>> [len(rows) for rows in partition_samples(TrainingSettings(samples_per_device=2), np.zeros(9, dtype=int), 3)]
    [2, 2, 2]
    """
    if ":" in settings.partition:
        return _partition_by_path(settings, labels, devices)
    said = {
        key: getattr(settings, key) for key in ("alpha", "labels_per_device", "samples_per_device")
    }
    options = {key: value for key, value in said.items() if value is not None}
    return partition(settings.partition, labels, devices, seed=settings.seed, **options)


def _partition_by_path(
    settings: TrainingSettings, labels: NDArray[Any], devices: int
) -> list[Ints]:
    """Let the user's function divide the samples, and check what it returns."""
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


def check_partition(parts: object, samples: int, devices: int, path: str) -> list[Ints]:
    """Return the rows that a partition by path gave each device, ascending; raise if one is wrong.

    >>> [rows.tolist() for rows in check_partition([[3, 0], [2]], 4, 2, "mine:halves")]
    [[0, 3], [2]]
    """
    field = f"training.partition {path!r}"
    rule = f"a list of {devices} arrays of sample indices, one for each device"
    if not isinstance(parts, list | tuple | np.ndarray):
        raise InvalidValue(f"{field} must return {rule}, got {show(parts)}")
    if len(parts) != devices:
        raise InvalidValue(f"{field} must return {rule}, got {len(parts)}")
    owner_of = np.full(samples, -1)
    checked = []
    for device, part in enumerate(parts):
        rows = _checked_rows(f"{field}: samples of device {device}", part, samples)
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


def _checked_rows(field: str, part: object, samples: int) -> Ints:
    """Return one device's sample indices, ascending."""
    try:
        rows = np.asarray(part)
    except (TypeError, ValueError):  # lists of different lengths
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


def sizes_without_data(settings: TrainingSettings, devices: int) -> Ints | None:
    """Return how many samples each device holds, as far as that is known without the data; None if it is not.

    >>> sizes_without_data(TrainingSettings(dataset="digits"), 4).tolist()  # of 1,437 samples
    [360, 359, 359, 359]
    """
    if settings.samples_per_device is not None:
        return np.full(devices, settings.samples_per_device)
    if ":" in settings.dataset or ":" in settings.partition:
        return None
    samples = get_image_set(settings.dataset).train
    if samples < devices:
        return None  # which cannot be trained
    sizes = np.full(devices, samples // devices)
    if settings.partition == "iid":
        sizes[: samples % devices] += 1
    return sizes


def count_labels(labels: NDArray[Any], parts: list[Ints], classes: int) -> Ints:
    """How many samples of each class each device holds, devices × classes.

    >>> count_labels(np.array([0, 1, 1, 1]), [np.array([0, 1]), np.array([2, 3])], 2).tolist()
    [[1, 1], [0, 2]]
    """
    owners = np.repeat(np.arange(len(parts)), [len(rows) for rows in parts])
    cells = owners * classes + np.asarray(labels)[np.concatenate(parts)]
    return (
        np.bincount(cells, minlength=len(parts) * classes)
        .reshape(len(parts), classes)
        .astype(np.int64)
    )


def class_mix(seed: int, device: int, classes: int, alpha: float) -> Floats:
    """The share of each class in what a device draws from, by Dir(alpha): the same in a fleet of any size.

    >>> class_mix(0, 3, 10, alpha=1e9).round(3).tolist() == [0.1] * 10
    True
    """
    return _mix(generator(seed, "class mix", device), classes, alpha)


def _mix(rng: np.random.Generator, classes: int, alpha: float) -> Floats:
    return rng.dirichlet(np.full(classes, min(alpha, _ALPHA_OF_UNIFORM)))


def _size(samples: int, devices: int, samples_per_device: int | None) -> int:
    """How many samples a device gets, if there are as many."""
    size = (
        1
        if samples_per_device is None
        else require_integer("samples_per_device", samples_per_device, low=1)
    )
    if samples < devices * size:
        each = "one each" if samples_per_device is None else f"{size:,} each"
        most = samples // devices
        way = (
            "take fewer devices"
            if samples_per_device is None or not most
            else f"at most {most:,} each are there"
        )
        raise InvalidValue(
            f"{devices:,} devices with {each} need {devices * size:,} samples, got {samples:,}; {way}"
        )
    return samples // devices if samples_per_device is None else size


def _classes(kind: str, labels: NDArray[Any]) -> Ints:
    """Labels as whole numbers from 0 without gaps."""
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        found = f"{labels.dtype} of shape {show(labels.shape)}"
        raise InvalidValue(
            f'partition "{kind}" needs labels that are one whole number a sample, got {found}; take "iid"'
        )
    return np.unique(labels, return_inverse=True)[1].astype(np.int64)


def _iid(samples: int, devices: int, seed: int, size: int | None) -> list[Ints]:
    pile = generator(seed, "iid").permutation(samples)
    parts = (
        np.array_split(pile, devices) if size is None else np.split(pile[: devices * size], devices)
    )
    return [np.sort(rows) for rows in parts]


def _dirichlet(classes: Ints, devices: int, size: int, seed: int, alpha: float) -> list[Ints]:
    """Counts of each class for one device after the other, then rows: each class is a shuffled pile of its own."""
    left = np.bincount(classes)
    pile = generator(seed, "samples of a class").permutation(len(classes))
    piles = np.split(pile[np.argsort(classes[pile], kind="stable")], np.cumsum(left)[:-1])
    counts = np.empty((devices, len(left)), np.int64)
    for device in range(devices):
        rng = generator(seed, "class mix", device)
        counts[device] = _drawn(rng, _mix(rng, len(left), alpha), size, left)
        left -= counts[device]
    owners = [np.repeat(np.arange(devices), column) for column in counts.T]
    rows = [pile[: len(owner)] for pile, owner in zip(piles, owners, strict=True)]
    return _dealt(np.concatenate(rows), np.concatenate(owners), devices)


def _drawn(rng: np.random.Generator, mix: Floats, size: int, left: Ints) -> Ints:
    """How many of each class a device draws by its mix, no more than are left.

    Where a class runs out, the others are drawn from by what the mix has of them; where it has none of them, by how many
    of each are left.
    """
    taken = np.zeros_like(left)
    while size > 0:
        weights = np.where(left > taken, mix, 0.0)
        if weights.sum() < _NOTHING:
            weights = (left - taken).astype(np.float64)
        more = np.minimum(rng.multinomial(size, weights / weights.sum()), left - taken)
        taken += more
        size -= int(more.sum())
    return taken


def _shards(classes: Ints, devices: int, size: int, seed: int, each: int) -> list[Ints]:
    """`each` shards to a device; where `size` is no multiple of it, every device has the same number of larger ones."""
    if each > size:
        raise InvalidValue(
            f"labels_per_device must be at most the {size:,} samples of a device, got {each:,}; take fewer labels or devices"
        )
    used = generator(seed, "samples in shards").permutation(len(classes))[: devices * size]
    rows = used[np.argsort(classes[used], kind="stable")]
    shards = generator(seed, "shards").permutation(devices * each)
    large = devices * (size % each)  # so many shards have one sample more
    owners, sizes = np.empty_like(shards), np.full_like(shards, size // each)
    owners[shards[:large]] = np.repeat(np.arange(devices), size % each)
    owners[shards[large:]] = np.repeat(np.arange(devices), each - size % each)
    sizes[shards[:large]] += 1
    return _dealt(rows, np.repeat(owners, sizes), devices)


def _dealt(rows: Ints, owners: Ints, devices: int) -> list[Ints]:
    """The rows of each owner, ascending."""
    order = np.lexsort((rows, owners))
    return np.split(rows[order], np.cumsum(np.bincount(owners, minlength=devices))[:-1])
