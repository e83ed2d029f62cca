"""Reading the published files of image sets: whole and unaltered, or not at all.  No torch here.

Files come from the network, so nothing in them is believed: sizes are bounded before memory is taken, the MD5 is checked
before content is used, and a pickle can make nothing but an array of bytes, from bytes.
"""

from __future__ import annotations

import hashlib
import io
import math
import os
import pickle
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from airsplit.core.arrays import Ints
from airsplit.core.errors import FileProblem, show
from airsplit.core.randomness import generator
from airsplit.data.image_sets import DataFile, ImageSet, find_data_folder, get_image_set
from airsplit.system.inputs import Shape

Bytes = NDArray[np.uint8]


class Images(NamedTuple):
    """pixels  images × channels × height × width, as stored;  labels  one whole number each"""

    pixels: Bytes
    labels: Ints


def read_images(name: str, folder: str | os.PathLike[str] | None = None) -> tuple[Images, Images]:
    """The images to train on and to test on of a built-in data set.

    >>> train, test = read_images("digits")
    >>> train.pixels.shape, len(test.labels)
    ((1437, 1, 8, 8), 360)
    """
    known = get_image_set(name)
    if not known.files:
        return _digits(known)
    where, paths = find_data_folder(folder), list(known.files)

    def read(path: str) -> bytes:
        return _read_of(name, where, path, known.files[path])

    return (_cifar_set if paths[-1].endswith("batches.meta") else _idx_set)(known, paths, read)


def _read_of(name: str, where: Path, path: str, published: DataFile) -> bytes:
    """One file of a data set; an error says how to come by it."""
    command = f"`airsplit data {name}`"
    if not os.path.exists(
        where / path
    ):  # unlike Path's, it does not raise where a folder may not be looked into
        way = f"{command} downloads it; or say where it is with --data DIR or AIRSPLIT_DATA"
        raise FileProblem(
            f"{name}: there is no file {path!r} in the data folder {str(where)!r}; {way}"
        )
    return read_published(
        where / path, published, hint=f"; delete it, and download it again with {command}"
    )


def read_published(path: str | os.PathLike[str], published: DataFile, hint: str = "") -> bytes:
    """The content of a file, if it is what was published."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(published.size_bytes + 1)
    except OSError as error:
        raise FileProblem(f"data file {str(path)!r} cannot be read: {error.strerror}") from None
    if len(content) != published.size_bytes:
        length = "is cut short" if len(content) < published.size_bytes else "is too long"
        raise FileProblem(
            f"data file {str(path)!r} {length}: it must have {published.size_bytes:,} bytes{hint}"
        )
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if found != published.md5:
        raise FileProblem(
            f"data file {str(path)!r} is altered: its MD5 must be {published.md5}, got {found}{hint}"
        )
    return content


# ---- MNIST and what is stored like it ------------------------------------------------------------------------------------
def _idx_set(
    known: ImageSet, paths: list[str], read: Callable[[str], bytes]
) -> tuple[Images, Images]:
    """Files in the order training images, training labels, test images, test labels."""

    def part(images: str, labels: str, count: int) -> Images:
        pixels = read_idx(read(images), (count, *known.shape[1:]), what=images)
        numbers = read_idx(read(labels), (count,), what=labels)
        return Images(pixels.reshape(count, *known.shape), _checked_labels(numbers, known, labels))

    return part(paths[0], paths[1], known.train), part(paths[2], paths[3], known.test)


def read_idx(content: bytes, shape: Shape, what: str = "idx file") -> Bytes:
    """The bytes that a gzipped idx file holds; it must hold exactly this shape."""
    header = bytes([0, 0, 8, len(shape)]) + b"".join(size.to_bytes(4, "big") for size in shape)
    wanted = len(header) + math.prod(shape)
    unpacker = zlib.decompressobj(wbits=31)
    try:
        raw = unpacker.decompress(content, wanted + 1)  # no more than this, whatever is packed
    except zlib.error as error:
        raise FileProblem(f"{what} is not gzip, or damaged: {error}") from None
    if not unpacker.eof or len(raw) != wanted or not raw.startswith(header):
        sizes = " x ".join(map(str, shape))
        raise FileProblem(
            f"{what} must hold {sizes} bytes in idx format, got {show(raw[: len(header)])}… of {len(raw):,} bytes or more"
        )
    return np.frombuffer(raw, np.uint8, offset=len(header)).reshape(shape).copy()


# ---- CIFAR-10 ------------------------------------------------------------------------------------------------------------
def _cifar_set(
    known: ImageSet, paths: list[str], read: Callable[[str], bytes]
) -> tuple[Images, Images]:
    """Files in the order training batches, test batch, and one with the names of the classes, which are known."""
    *train, test, _ = paths
    rows = known.train // len(train)
    pixels, labels = (
        np.empty((known.train, *known.shape), np.uint8),
        np.empty(known.train, np.int64),
    )
    for at, path in enumerate(train):
        here = slice(at * rows, at * rows + rows)
        pixels[here], labels[here] = _batch(read, path, rows, known)
    return Images(pixels, labels), _batch(read, test, known.test, known)


def _batch(read: Callable[[str], bytes], path: str, rows: int, known: ImageSet) -> Images:
    data, labels = read_pickled_batch(read(path), rows, math.prod(known.shape), what=path)
    return Images(data.reshape(rows, *known.shape), _checked_labels(labels, known, path))


def read_pickled_batch(
    content: bytes, rows: int, columns: int, what: str = "batch"
) -> tuple[Bytes, Ints]:
    """The arrays `data` and `labels` of a batch that Python 2 pickled, of this size."""
    try:
        made = _OnlyByteArrays(io.BytesIO(content), encoding="bytes").load()
    except Exception as error:  # a pickle can fail in every way that there is
        raise FileProblem(
            f"{what} is not a batch of images: {type(error).__name__}: {show(str(error))}"
        ) from None
    data, labels = (
        (made.get(b"data"), made.get(b"labels")) if isinstance(made, dict) else (None, None)
    )
    if not isinstance(data, _Array) or data.values is None or data.values.shape != (rows, columns):
        raise FileProblem(f"{what} must hold {rows} x {columns} bytes as 'data'")
    if (
        not isinstance(labels, list)
        or len(labels) != rows
        or not all(type(label) is int and 0 <= label < 256 for label in labels)
    ):
        raise FileProblem(f"{what} must hold {rows} small whole numbers as 'labels'")
    return data.values, np.array(labels, np.int64)


class _Type:
    """Stands in for numpy.dtype: holds its code, and lets its state pass."""

    __slots__ = ("code",)

    def __init__(self, code: object, *_: object) -> None:
        self.code = code

    def __setstate__(self, state: object) -> None:
        pass


class _Array:
    """Stands in for numpy's array: its state may be bytes in rows, and nothing else."""

    __slots__ = ("values",)

    def __init__(self, *_: object) -> None:
        self.values: Bytes | None = None

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, columns_first, content = state
        if (
            not isinstance(kind, _Type)
            or kind.code != b"u1"
            or columns_first
            or not isinstance(content, bytes)
        ):
            raise pickle.UnpicklingError("an array of anything but bytes")
        self.values = np.frombuffer(content, np.uint8).reshape(shape).copy()


class _OnlyByteArrays(pickle.Unpickler):
    """Makes what a batch needs out of our own stand-ins; no name in the file leads to code of numpy's or anybody's."""

    STAND_INS: ClassVar[dict[tuple[str, str], Any]] = {
        ("numpy.core.multiarray", "_reconstruct"): _Array,
        ("numpy", "ndarray"): "ndarray",
        ("numpy", "dtype"): _Type,
    }

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.STAND_INS:
            raise pickle.UnpicklingError(f"{module}.{name} is not allowed")
        return self.STAND_INS[module, name]


# ---- digits --------------------------------------------------------------------------------------------------------------
def _digits(known: ImageSet) -> tuple[Images, Images]:
    """scikit-learn's, parted by a draw that is always the same."""
    from sklearn.datasets import load_digits

    found = load_digits()
    rows = generator(0, "digits").permutation(len(found.target))
    pixels = found.images[rows].astype(np.uint8).reshape(-1, *known.shape)
    labels = found.target[rows].astype(np.int64)
    return Images(pixels[: known.train], labels[: known.train]), Images(
        pixels[known.train :], labels[known.train :]
    )


def _checked_labels(labels: NDArray[Any], known: ImageSet, what: str) -> Ints:
    if labels.max(initial=0) >= len(known.labels):
        raise FileProblem(
            f"{what} must hold labels from 0 to {len(known.labels) - 1}, got {labels.max()}"
        )
    return labels.astype(np.int64)
