"""Reading the published files of image sets, unaltered or not at all. No torch here.

Files come from the network, so nothing in them is trusted: sizes are bounded before memory is
taken, the MD5 is checked before content is used, and a pickle can only make an array of bytes.
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
    """Images as stored, and their classes.

    Attributes:
        pixels: Images × channels × height × width.
        labels: One class for each image.
    """

    pixels: Bytes
    labels: Ints


def read_images(name: str, folder: str | os.PathLike[str] | None = None) -> tuple[Images, Images]:
    """Return the training images and the test images of a built-in data set.

    >>> train, test = read_images("digits")
    >>> train.pixels.shape, len(test.labels)
    ((1437, 1, 8, 8), 360)
    """
    image_set = get_image_set(name)
    if not image_set.files:
        return split_digits(image_set)
    root = find_data_folder(folder)

    def read(path: str) -> bytes:
        # os.path.exists, unlike Path.exists, does not raise if a folder is not readable.
        if not os.path.exists(root / path):
            raise FileProblem(
                f"{name}: there is no file {path!r} in the data folder {str(root)!r}; "
                f"`airsplit data {name}` downloads it; or name the folder that has it with "
                "--data DIR or AIRSPLIT_DATA"
            )
        hint = f"; delete it, and download it again with `airsplit data {name}`"
        return read_published(root / path, image_set.files[path], hint)

    paths = list(image_set.files)
    if paths[-1].endswith("batches.meta"):
        return read_cifar(image_set, paths, read)
    return read_mnist(image_set, paths, read)


def read_published(path: str | os.PathLike[str], published: DataFile, hint: str = "") -> bytes:
    """Return the content of a file; raise if it is not what was published.

    Args:
        path: The file.
        published: Its length and MD5.
        hint: What to do about it, added to the error.
    """
    try:
        with Path(path).open("rb") as file:
            # One byte more than expected tells a longer file without reading all of it.
            content = file.read(published.size_bytes + 1)
    except OSError as error:
        raise FileProblem(f"data file {str(path)!r} cannot be read: {error.strerror}") from None

    if len(content) != published.size_bytes:
        problem = "is cut short" if len(content) < published.size_bytes else "is too long"
        raise FileProblem(
            f"data file {str(path)!r} {problem}: it must have {published.size_bytes:,} bytes{hint}"
        )
    md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if md5 != published.md5:
        raise FileProblem(
            f"data file {str(path)!r} is altered: its MD5 must be {published.md5}, got {md5}{hint}"
        )
    return content


def read_mnist(
    image_set: ImageSet, paths: list[str], read: Callable[[str], bytes]
) -> tuple[Images, Images]:
    """Read idx files: training images, training labels, test images, test labels."""

    def read_split(images: str, labels: str, count: int) -> Images:
        pixels = read_idx(read(images), (count, *image_set.shape[1:]), what=images)
        numbers = read_idx(read(labels), (count,), what=labels)
        _require_classes(numbers, image_set, labels)
        return Images(pixels.reshape(count, *image_set.shape), numbers.astype(np.int64))

    train = read_split(paths[0], paths[1], image_set.train)
    test = read_split(paths[2], paths[3], image_set.test)
    return train, test


def read_idx(content: bytes, shape: Shape, what: str = "idx file") -> Bytes:
    """Return the bytes in a gzipped idx file, which must have exactly this shape."""
    # Two zero bytes, 8 for unsigned bytes, the number of axes, then their sizes.
    header = bytes([0, 0, 8, len(shape)]) + b"".join(size.to_bytes(4, "big") for size in shape)
    length = len(header) + math.prod(shape)
    decompressor = zlib.decompressobj(wbits=31)
    try:
        # A bound on the output: a small file may unpack to any size.
        raw = decompressor.decompress(content, length + 1)
    except zlib.error as error:
        raise FileProblem(f"{what} is not gzip, or damaged: {error}") from None

    # eof: the stream ended here, and its checksum was right.
    if not decompressor.eof or len(raw) != length or not raw.startswith(header):
        sizes = " x ".join(map(str, shape))
        raise FileProblem(
            f"{what} must hold {sizes} bytes in idx format, "
            f"got {show(raw[: len(header)])}… of {len(raw):,} bytes or more"
        )
    # np.frombuffer gives a read-only view of the bytes.
    return np.frombuffer(raw, np.uint8, offset=len(header)).reshape(shape).copy()


def read_cifar(
    image_set: ImageSet, paths: list[str], read: Callable[[str], bytes]
) -> tuple[Images, Images]:
    """Read pickled batches: those for training, the one for testing; class names are known."""
    *train_paths, test_path, _ = paths

    def read_batch(path: str, count: int) -> Images:
        size = math.prod(image_set.shape)
        data, labels = read_pickled_batch(read(path), count, size, what=path)
        _require_classes(labels, image_set, path)
        return Images(data.reshape(count, *image_set.shape), labels)

    batch_size = image_set.train // len(train_paths)
    # Filled batch by batch: concatenating all of them would take twice the memory.
    pixels = np.empty((image_set.train, *image_set.shape), np.uint8)
    labels = np.empty(image_set.train, np.int64)
    for number, path in enumerate(train_paths):
        rows = slice(number * batch_size, (number + 1) * batch_size)
        batch = read_batch(path, batch_size)
        pixels[rows] = batch.pixels
        labels[rows] = batch.labels
    return Images(pixels, labels), read_batch(test_path, image_set.test)


def read_pickled_batch(
    content: bytes, rows: int, columns: int, what: str = "batch"
) -> tuple[Bytes, Ints]:
    """Return the arrays `data` and `labels` of a batch that was pickled by Python 2."""
    try:
        # Python 2 pickled pixels as text; as bytes, none of them is decoded.
        batch = ByteArrayUnpickler(io.BytesIO(content), encoding="bytes").load()
    except Exception as error:
        # A damaged pickle can raise anything.
        raise FileProblem(
            f"{what} is not a batch of images: {type(error).__name__}: {show(str(error))}"
        ) from None

    if not isinstance(batch, dict):
        batch = {}
    # The unpickler lets through any shape and any labels, so both are checked here.
    data = batch.get(b"data")
    labels = batch.get(b"labels")
    if not isinstance(data, _Array) or data.values is None or data.values.shape != (rows, columns):
        raise FileProblem(f"{what} must hold {rows} x {columns} bytes as 'data'")
    if (
        not isinstance(labels, list)
        or len(labels) != rows
        # type, because True is an instance of int.
        or not all(type(label) is int and 0 <= label < 256 for label in labels)
    ):
        raise FileProblem(f"{what} must hold {rows} small whole numbers as 'labels'")
    return data.values, np.array(labels, np.int64)


class _Dtype:
    """A stand-in for numpy.dtype that keeps its code and ignores its state."""

    # Without a __dict__, a pickle can add no attribute.
    __slots__ = ("code",)

    def __init__(self, code: object, *_: object) -> None:
        self.code = code

    def __setstate__(self, state: object) -> None:
        pass


class _Array:
    """A stand-in for numpy's array that takes rows of bytes as its state, and nothing else."""

    __slots__ = ("values",)

    def __init__(self, *_: object) -> None:
        self.values: Bytes | None = None

    def __setstate__(self, state: Any) -> None:
        # numpy's state: version, shape, dtype, Fortran order, content.
        _, shape, dtype, columns_first, content = state
        if (
            not isinstance(dtype, _Dtype)
            or dtype.code != b"u1"
            or columns_first
            or not isinstance(content, bytes)
        ):
            raise pickle.UnpicklingError("an array of anything but bytes")
        self.values = np.frombuffer(content, np.uint8).reshape(shape).copy()


class ByteArrayUnpickler(pickle.Unpickler):
    """Builds a batch out of stand-ins; no name in the file can import code, not even numpy's."""

    STAND_INS: ClassVar[dict[tuple[str, str], Any]] = {
        ("numpy.core.multiarray", "_reconstruct"): _Array,
        # Only an argument of _reconstruct, which ignores it.
        ("numpy", "ndarray"): "ndarray",
        ("numpy", "dtype"): _Dtype,
    }

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.STAND_INS:
            raise pickle.UnpicklingError(f"{module}.{name} is not allowed")
        return self.STAND_INS[module, name]


def split_digits(image_set: ImageSet) -> tuple[Images, Images]:
    """Split scikit-learn's digits at random, always the same way."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    # Another permutation would be another test set, and change all results on digits.
    rows = generator(0, "digits").permutation(len(digits.target))
    pixels = digits.images[rows].astype(np.uint8).reshape(-1, *image_set.shape)
    labels = digits.target[rows].astype(np.int64)
    train = Images(pixels[: image_set.train], labels[: image_set.train])
    test = Images(pixels[image_set.train :], labels[image_set.train :])
    return train, test


def _require_classes(labels: NDArray[Any], image_set: ImageSet, what: str) -> None:
    """Raise if a label is not the number of a class."""
    highest = len(image_set.labels) - 1
    if labels.max(initial=0) > highest:
        raise FileProblem(f"{what} must hold labels from 0 to {highest}, got {labels.max()}")
