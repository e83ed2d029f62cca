"""Files of image sets: read unaltered or rejected, without trust in their content."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import struct
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from airsplit.core.errors import FileProblem
from airsplit.data.image_files import (
    ByteArrayUnpickler,
    read_idx,
    read_images,
    read_pickled_batch,
    read_published,
)
from airsplit.data.image_sets import find_missing_files, get_image_set
from data.small_sets import cifar_batch, idx, published, small_cifar, small_mnist

WAS_RUN = "AIRSPLIT_TEST_PICKLE_WAS_RUN"


def test_a_missing_file_names_its_folder_and_the_command_that_downloads_it(tmp_path: Path) -> None:
    with pytest.raises(
        FileProblem,
        match=r"no file 'MNIST/raw/train-images.*' in the data folder '.*'; "
        "`airsplit data mnist` downloads",
    ) as error:
        read_images("mnist", tmp_path)
    assert str(tmp_path) in str(error.value)
    assert "--data DIR or AIRSPLIT_DATA" in str(error.value)
    assert len(find_missing_files("mnist", tmp_path)) == 4


def test_a_published_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"content")
    assert read_published(tmp_path / "a", published(b"content")) == b"content"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"conten", "is cut short"),
        (b"contents", "is too long"),
        (b"cOntent", "is altered: its MD5"),
    ],
)
def test_a_file_that_differs_from_the_published_one_is_rejected(
    tmp_path: Path, content: bytes, message: str
) -> None:
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(FileProblem, match=rf"data file '.*a' {message}.*; try again"):
        read_published(tmp_path / "a", published(b"content"), hint="; try again")


def test_a_folder_is_rejected_as_a_file(tmp_path: Path) -> None:
    with pytest.raises(FileProblem, match="cannot be read: Is a directory"):
        read_published(tmp_path, published(b"content"))


def test_an_altered_file_of_a_set_says_to_delete_it_and_download_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_mnist(monkeypatch, tmp_path)
    path = tmp_path / "MNIST/raw/t10k-labels-idx1-ubyte.gz"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(
        FileProblem,
        match=r"is altered.*; delete it, and download it again with `airsplit data mnist`$",
    ):
        read_images("mnist", tmp_path)


def test_a_huge_file_is_not_read_to_its_end(tmp_path: Path) -> None:
    with (tmp_path / "a").open("wb") as file:
        file.truncate(1 << 40)  # a hole: no disk is used
    with pytest.raises(FileProblem, match="is too long: it must have 7 bytes"):
        read_published(tmp_path / "a", published(b"content"))


def test_an_idx_file_is_read_as_it_was_written() -> None:
    values = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    read = read_idx(idx(values), (2, 3, 4))
    assert (read == values).all()
    read[0] = 0  # memory of its own


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not gzip at all",
        gzip.compress(b"", mtime=0),
        idx(np.zeros((2, 3), np.uint8))[:-9],
        idx(np.zeros((2, 4), np.uint8)),
        idx(np.zeros((3, 3), np.uint8)),
        idx(np.zeros((2, 3, 1), np.uint8)),
        gzip.compress(b"\0\0\x0d\x02" + struct.pack(">II", 2, 3) + bytes(6), mtime=0),  # floats
        gzip.compress(b"\0\0\x08\x02" + struct.pack(">II", 2, 3) + bytes(7), mtime=0),
        gzip.compress(b"\0\0\x08\x02" + struct.pack(">II", 2**31, 2**31) + bytes(6), mtime=0),
    ],
)
def test_anything_but_an_idx_file_of_that_shape_is_rejected(content: bytes) -> None:
    with pytest.raises(FileProblem, match=r"^labels (is not gzip|must hold 2 x 3 bytes)"):
        read_idx(content, (2, 3), what="labels")


def test_a_gzip_bomb_takes_no_memory() -> None:
    packer = zlib.compressobj(9, wbits=31)
    bomb = b"".join([*(packer.compress(bytes(1 << 20)) for _ in range(200)), packer.flush()])
    tracemalloc.start()
    with pytest.raises(FileProblem, match="must hold 1000 bytes"):
        read_idx(bomb, (1000,))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


def test_a_set_of_idx_files_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = small_mnist(monkeypatch, tmp_path)
    for read, (pixels, labels) in zip(read_images("mnist", tmp_path), written, strict=True):
        assert (read.pixels[:, 0] == pixels).all()
        assert (read.labels == labels).all()
        assert read.labels.dtype == np.int64


def test_a_label_without_a_class_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_mnist(monkeypatch, tmp_path, highest=11)
    with pytest.raises(FileProblem, match=r"train-labels.* must hold labels from 0 to 9, got 10"):
        read_images("mnist", tmp_path)


def test_a_batch_is_read_as_it_was_written() -> None:
    pixels = np.arange(2 * 12, dtype=np.uint8).reshape(2, 12)
    data, labels = read_pickled_batch(cifar_batch(pixels, [3, 9]), 2, 12)
    assert (data == pixels).all()
    assert labels.tolist() == [3, 9]
    data[0] = 0  # memory of its own


def test_a_set_of_batches_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = small_cifar(monkeypatch, tmp_path)
    for read, (pixels, labels) in zip(read_images("cifar10", tmp_path), written, strict=True):
        assert (read.pixels.reshape(len(pixels), -1) == pixels).all()
        assert (read.labels == labels).all()


class Executes:
    """Pickles as a call."""

    def __reduce__(self) -> Any:
        return os.putenv, (WAS_RUN, "yes")


class Shell:
    def __reduce__(self) -> Any:
        return os.system, (f"touch {WAS_RUN}",)


class Eval:
    def __reduce__(self) -> Any:
        return eval, (f"__import__('os').environ.__setitem__('{WAS_RUN}', 'yes')",)


REBUILD = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tU\x01btR"


def array_with(type_code: bytes, content: bytes, shape: bytes = b"(K\x01K\x02t") -> bytes:
    """A batch whose data has this state."""
    kind = b"cnumpy\ndtype\n(U" + bytes([len(type_code)]) + type_code + b"K\x00K\x01tR"
    return (
        b"\x80\x02}(U\x04data"
        + REBUILD
        + b"(K\x01"
        + shape
        + kind
        + b"\x89"
        + content
        + b"tbU\x06labels](K\x00eu."
    )


VALID = array_with(b"u1", b"U\x02ab")
HOSTILE = {
    "a call": pickle.dumps(Executes(), 2),
    "a shell": pickle.dumps(Shell(), 2),
    "a builtin": pickle.dumps(Eval(), 2),
    "a call in a new protocol": pickle.dumps(Executes(), 5),
    "a call among labels": pickle.dumps({b"data": 1, b"labels": [Executes()]}, 2),
    "a call deep inside": pickle.dumps([{"a": ({"b": [Shell()]},)}], 2),
    "a call by INST": b"(S'touch " + WAS_RUN.encode() + b"'\nios\nsystem\n.",
    "an array of objects": array_with(b"O8", b"](cos\nsystem\ne"),
    "an array of objects, made of numbers": array_with(b"O8", b"](K\x01K\x02e"),
    "an array of objects by numpy": pickle.dumps(
        {"data": np.array([Executes(), None], dtype=object)}, 2
    ),
    "a call as the state of an array": VALID.replace(b"U\x02ab", b"cos\ngetcwd\n(tR"),
    "numpy's other functions": b"cnumpy\nload\n(U\x01atR.",
    "a method of an allowed name": b"\x80\x04\x8c\x05numpy\x8c\x10dtype.__reduce__\x93.",
    "a state set on an allowed name": b"\x80\x02cnumpy\ndtype\nN}U\x0c__setstate__K\x01s\x86b.",
    "a persistent name": b"Pabc\n.",
}
BROKEN = {
    "nothing": b"",
    "half of it": VALID[: len(VALID) // 2],
    "a list": pickle.dumps([1, 2], 2),
    "no data": pickle.dumps({b"labels": [0]}, 2),
    "data that is text": pickle.dumps({b"data": "ab", b"labels": [0]}, 2),
    "floats": array_with(b"f4", b"U\x08abcdefgh"),
    "another shape": array_with(b"u1", b"U\x02ab", b"(K\x02K\x01t"),
    "more shape than bytes": array_with(b"u1", b"U\x02ab", b"(K\x01K\x03t"),
    "a negative shape": array_with(b"u1", b"U\x02ab", b"(K\x01J\xff\xff\xff\xfft").replace(
        b"U\x02ab", b"U\x01a"
    ),
    "an array without a state": b"\x80\x02}(U\x04data" + REBUILD + b"U\x06labels](K\x00eu.",
    "a type for an array": b"\x80\x02}(U\x04datacnumpy\ndtype\nU\x06labels](K\x00eu.",
    "too many labels": VALID.replace(b"K\x00eu", b"K\x00K\x00eu"),
    "a label that is a float": VALID.replace(b"(K\x00eu", b"(F1.0\neu"),
    "a label that is true": VALID.replace(b"(K\x00eu", b"(\x88eu"),
    "a negative label": VALID.replace(b"(K\x00eu", b"(J\xff\xff\xff\xffeu"),
    "a huge memo": b"\x80\x02K\x00r\xff\xff\xff\x7f.",
}


def test_the_pickle_that_the_broken_ones_derive_from_is_valid() -> None:
    data, labels = read_pickled_batch(VALID, 1, 2)
    assert (data.tolist(), labels.tolist()) == ([[97, 98]], [0])


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_pickle_is_rejected_and_runs_nothing(
    content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileProblem, match=r"^batch "):
        read_pickled_batch(content, 1, 2)
    assert list(tmp_path.iterdir()) == []
    assert WAS_RUN not in os.environ
    assert read_pickled_batch(VALID, 1, 2)[1].tolist() == [0]  # nothing of ours was changed


@pytest.mark.parametrize(
    "content", [case for case in HOSTILE.values() if case.startswith(b"\x80\x02")][:3]
)
def test_the_hostile_pickles_would_do_harm_elsewhere(content: bytes) -> None:
    class Noted(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            raise RuntimeError(f"{module}.{name}")

    with pytest.raises(RuntimeError, match=r"putenv|system|eval"):
        Noted(io.BytesIO(content)).load()


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
def test_a_broken_batch_is_rejected(content: bytes) -> None:
    with pytest.raises(FileProblem, match=r"^batch (is not a batch of images|must hold)"):
        read_pickled_batch(content, 1, 2)


def test_a_pickle_creates_no_numpy_object() -> None:
    stand_ins = ByteArrayUnpickler.STAND_INS.values()
    assert not any(
        getattr(stand_in, "__module__", "").startswith("numpy") for stand_in in stand_ins
    )


def test_digits_are_split_without_loss_and_always_the_same_way() -> None:
    from sklearn.datasets import load_digits

    train, test = read_images("digits")
    again, _ = read_images("digits")
    assert (train.pixels == again.pixels).all()
    rows = np.concatenate([train.pixels, test.pixels]).reshape(-1, 64)
    assert sorted(map(bytes, rows)) == sorted(map(bytes, load_digits().data.astype(np.uint8)))
    assert np.bincount(train.labels).min() > 120
    assert np.bincount(test.labels).min() > 20


def test_the_mean_and_std_of_digits_are_those_of_its_training_images() -> None:
    pixels = read_images("digits")[0].pixels / 16
    image_set = get_image_set("digits")
    assert (round(pixels.mean(), 4), round(pixels.std(), 4)) == (
        image_set.mean[0],
        image_set.std[0],
    )
