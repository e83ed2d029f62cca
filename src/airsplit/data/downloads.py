"""Fetching data sets from where they were published.  A file appears in the data folder whole and checked, or not at all."""

from __future__ import annotations

import hashlib
import http.client
import os
import tarfile
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import IO

from airsplit.core.errors import FileProblem
from airsplit.core.files import replace_file, temporary_file_beside, write_bytes
from airsplit.core.plugins import error_line
from airsplit.data.image_files import read_published
from airsplit.data.image_sets import DataFile, find_data_folder, get_image_set

Progress = Callable[[int, int], None]  # bytes that are here, and bytes that are to come in all

TIMEOUT_S = 30.0  # without a byte
_PIECE_BYTES = 1 << 18


@dataclass(frozen=True)
class Source:
    """Where a data set was published.

    url      the folder in which its files lie, each under its name
    archive  where they come packed together instead, under their paths: the name of the .tar.gz, and what it should be
    """

    url: str
    archive: tuple[str, DataFile] | None = None


SOURCES = {
    "mnist": Source("https://ossci-datasets.s3.amazonaws.com/mnist/"),
    "fashion-mnist": Source("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"),
    "cifar10": Source(
        "https://www.cs.toronto.edu/~kriz/",
        ("cifar-10-python.tar.gz", DataFile("c58f30108f718f92721af3b95e74349a", 170_498_071)),
    ),
}


def download_bytes(name: str) -> int:
    """How much there is to download where none of it is there.

    >>> download_bytes("digits"), download_bytes("cifar10")
    (0, 170498071)
    """
    packed = SOURCES[name].archive if name in SOURCES else None
    return (
        packed[1].size_bytes
        if packed
        else sum(published.size_bytes for published in get_image_set(name).files.values())
    )


def nothing_said(done_bytes: int, total_bytes: int) -> None:
    """The progress of those who do not ask."""


def download(
    name: str, folder: str | os.PathLike[str] | None = None, progress: Progress = nothing_said
) -> Path:
    """Fetch the files of a built-in data set that are not there whole; the data folder.

    >>> download("digits", "/data").as_posix()  # comes with scikit-learn
    '/data'
    """
    where = find_data_folder(folder)
    absent = _absent(name, where)
    if not absent:
        return where
    source = SOURCES[name]
    try:
        _fetch(source, where, absent, progress)
    except _NotFetched as error:
        raise FileProblem(
            f"{name} cannot be downloaded: {error}; {_by_hand(source, where, absent)}"
        ) from None
    return where


class _NotFetched(Exception):
    """The network did not give what it should; says which address, and why."""


def _absent(name: str, where: Path) -> dict[str, DataFile]:
    """The files that are missing or altered."""
    absent = {}
    for path, published in get_image_set(name).files.items():
        try:
            read_published(where / path, published)
        except FileProblem:
            absent[path] = published
    return absent


def _by_hand(source: Source, where: Path, absent: dict[str, DataFile]) -> str:
    folder = str((where / next(iter(absent))).parent)
    names = ", ".join(Path(path).name for path in absent)
    origin = source.url if source.archive is None else f"{source.archive[0]}, unpacked,"
    return f"try again, or by hand: put {names} from {origin} into {folder!r}"


def _fetch(source: Source, where: Path, absent: dict[str, DataFile], progress: Progress) -> None:
    if source.archive is not None:
        name, packed = source.archive
        with _fetched(
            source.url + name, packed, where / name, _from(0, packed.size_bytes, progress)
        ) as archive:
            for path, content in unpack(archive, absent):
                write_bytes(where / path, content)
        return
    sizes = [published.size_bytes for published in absent.values()]
    for (path, published), before in zip(
        absent.items(), accumulate(sizes, initial=0), strict=False
    ):
        with _fetched(
            source.url + Path(path).name,
            published,
            where / path,
            _from(before, sum(sizes), progress),
        ) as file:
            replace_file(file, where / path)


def _from(before: int, total: int, progress: Progress) -> Callable[[int], None]:
    """The progress of one file among several."""
    return lambda done: progress(before + done, total)


@contextmanager
def _fetched(
    url: str, published: DataFile, target: Path, progress: Callable[[int], None]
) -> Iterator[Path]:
    """What is at an address, in a file beside the target that is gone afterwards unless it was moved."""
    with temporary_file_beside(target) as file:
        with file.open("wb") as stream:
            _stream(url, published, stream, progress)
        yield file


def _stream(
    url: str, published: DataFile, file: IO[bytes], progress: Callable[[int], None]
) -> None:
    """Copy what is at an address, never more than was published, and see that it is that."""
    digest, done = hashlib.md5(usedforsecurity=False), 0
    for piece in _pieces(url):
        digest.update(piece)
        done += len(piece)
        if done > published.size_bytes:
            raise _NotFetched(
                f"{url} gives more than the {published.size_bytes:,} bytes that were published"
            )
        _write(file, piece)
        progress(done)
    if done < published.size_bytes:
        raise _NotFetched(f"{url} ended after {done:,} of {published.size_bytes:,} bytes")
    if digest.hexdigest() != published.md5:
        raise _NotFetched(
            f"{url} has the MD5 {digest.hexdigest()}, not the published {published.md5}"
        )


def _pieces(url: str) -> Iterator[bytes]:
    request = urllib.request.Request(url, headers={"User-Agent": "airsplit"})  # noqa: S310 - the addresses are ours
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310
            while piece := answer.read(_PIECE_BYTES):
                yield piece
    except urllib.error.HTTPError as error:
        error.close()
        raise _NotFetched(f"{url}: {error}") from None
    except (OSError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise _NotFetched(
            f"{url}: {error_line(reason) if isinstance(reason, Exception) else reason}"
        ) from None


def _write(file: IO[bytes], piece: bytes) -> None:
    try:
        file.write(piece)
        file.flush()  # a full disk says so here, not when the file is closed
    except OSError as error:
        raise FileProblem(f"{file.name!r} cannot be written: {error.strerror}") from None


def unpack(archive: Path, wanted: dict[str, DataFile]) -> Iterator[tuple[str, bytes]]:
    """The wanted files of a .tar.gz, each checked; whatever else is in it is passed over."""
    left = dict(wanted)
    try:
        with tarfile.open(archive, "r|gz") as tar:
            for member in tar:
                published = left.get(member.name)
                if published is None:
                    continue
                yield member.name, _content(tar, member, published)
                del left[member.name]
    except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
        raise _NotFetched(f"the archive is damaged: {error}") from None
    if left:
        raise _NotFetched(f"the archive has no {', '.join(left)}")


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo, published: DataFile) -> bytes:
    file = (
        tar.extractfile(member) if member.isreg() and member.size == published.size_bytes else None
    )
    content = b"" if file is None else file.read(published.size_bytes)
    if hashlib.md5(content, usedforsecurity=False).hexdigest() != published.md5:
        raise _NotFetched(f"{member.name} in the archive is not the published file")
    return content
