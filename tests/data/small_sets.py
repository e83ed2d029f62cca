"""Image sets of a few samples, in the formats of the real ones and declared in their place."""

from __future__ import annotations

import gzip
import hashlib
import struct
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from airsplit.data.image_sets import IMAGE_SETS, DataFile

Arrays = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]


def published(content: bytes) -> DataFile:
    return DataFile(hashlib.md5(content, usedforsecurity=False).hexdigest(), len(content))


def idx(values: np.ndarray[Any, Any]) -> bytes:
    header = bytes([0, 0, 8, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape)
    return gzip.compress(header + values.tobytes(), mtime=0)


def cifar_batch(pixels: np.ndarray[Any, Any], labels: Iterable[int]) -> bytes:
    """Return a batch in the opcodes of the published ones, which Python 2 wrote."""
    shape = b"".join(b"M" + struct.pack("<H", size) for size in pixels.shape)
    return b"".join(
        [
            b"\x80\x02}q\x01(U\x0bbatch_labelq\x02U\x04someq\x03U\x06labelsq\x04]q\x05(",
            b"".join(b"K" + bytes([label]) for label in labels),
            b"eU\x04dataq\x06cnumpy.core.multiarray\n_reconstruct\nq\x07cnumpy\nndarray\nq\x08K\x00\x85U\x01b\x87Rq\t(K\x01",
            shape,
            b"\x86cnumpy\ndtype\nq\nU\x02u1K\x00K\x01\x87Rq\x0b(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89",
            b"T" + struct.pack("<I", pixels.size) + pixels.tobytes() + b"tbu.",
        ]
    )


def _declare(
    monkeypatch: pytest.MonkeyPatch, name: str, train: int, test: int, contents: dict[str, bytes]
) -> None:
    files = {path: published(content) for path, content in contents.items()}
    monkeypatch.setitem(
        IMAGE_SETS, name, replace(IMAGE_SETS[name], train=train, test=test, files=files)
    )


def _write(folder: Path | None, contents: dict[str, bytes]) -> None:
    if folder is None:
        return
    for path, content in contents.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)


def mnist_contents(parts: list[Arrays], kind: str = "MNIST") -> dict[str, bytes]:
    contents = {}
    for part, (pixels, labels) in zip(("train", "t10k"), parts, strict=True):
        contents[f"{kind}/raw/{part}-images-idx3-ubyte.gz"] = idx(pixels)
        contents[f"{kind}/raw/{part}-labels-idx1-ubyte.gz"] = idx(labels)
    return contents


def small_mnist(
    monkeypatch: pytest.MonkeyPatch, folder: Path | None, *, highest: int = 10
) -> list[Arrays]:
    """Declare 60 and 20 images of noise as "mnist", and write them to the folder if there is one.

    Returns:
        Training and test arrays.
    """
    rng = np.random.default_rng(0)
    parts = [
        (
            rng.integers(0, 256, (n, 28, 28), dtype=np.uint8),
            rng.permutation(np.arange(n) % highest).astype(np.uint8),
        )
        for n in (60, 20)
    ]
    contents = mnist_contents(parts)
    _declare(monkeypatch, "mnist", 60, 20, contents)
    _write(folder, contents)
    return parts


def cifar_contents(train: Arrays, test: Arrays) -> dict[str, bytes]:
    contents = {}
    for at, (pixels, labels) in enumerate(
        zip(np.split(train[0], 5), np.split(train[1], 5), strict=True), 1
    ):
        contents[f"cifar-10-batches-py/data_batch_{at}"] = cifar_batch(pixels, labels.tolist())
    contents["cifar-10-batches-py/test_batch"] = cifar_batch(test[0], test[1].tolist())
    return contents | {"cifar-10-batches-py/batches.meta": b"names"}


def small_cifar(monkeypatch: pytest.MonkeyPatch, folder: Path | None) -> list[Arrays]:
    """Declare five batches of four images and one of six as "cifar10"."""
    rng = np.random.default_rng(1)
    parts = [
        (rng.integers(0, 256, (n, 3072), dtype=np.uint8), rng.integers(0, 10, n)) for n in (20, 6)
    ]
    contents = cifar_contents(*parts)
    _declare(monkeypatch, "cifar10", 20, 6, contents)
    _write(folder, contents)
    return parts
