"""Downloading data sets: a file appears in the data folder complete and checked, or not at all."""

from __future__ import annotations

import hashlib
import http.client
import os
import tarfile
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from airsplit.core.errors import FileProblem
from airsplit.core.files import replace_file, temporary_file_beside, write_bytes
from airsplit.core.plugins import error_line
from airsplit.data.image_files import read_published
from airsplit.data.image_sets import DataFile, ImageSet, find_data_folder, get_image_set

# Called with the bytes downloaded so far, and the bytes to download in all.
Progress = Callable[[int, int], None]

# Seconds without a byte.
TIMEOUT_S = 30.0
# Small enough for a live percentage, large enough to cost nothing per chunk.
CHUNK_BYTES = 1 << 18


class DownloadFailed(Exception):
    """The network did not deliver the published file; the message has the address and the cause."""


def ignore_progress(done_bytes: int, total_bytes: int) -> None:
    """Do nothing."""


def download_bytes(name: str) -> int:
    """Return the size of a whole data set to download.

    >>> download_bytes("digits"), download_bytes("cifar10")
    (0, 170498071)
    """
    image_set = get_image_set(name)
    if image_set.archive is not None:
        return image_set.archive[1].size_bytes
    return sum(published.size_bytes for published in image_set.files.values())


def download(
    name: str, folder: str | os.PathLike[str] | None = None, progress: Progress = ignore_progress
) -> Path:
    """Download the files of a built-in data set that are missing or altered.

    Returns:
        The data folder.

    >>> download("digits", "/data").as_posix()  # comes with scikit-learn
    '/data'
    """
    root = find_data_folder(folder)
    image_set = get_image_set(name)
    missing = find_altered_files(image_set, root)
    if not missing:
        return root
    try:
        if image_set.archive is None:
            download_files(image_set.url, missing, root, progress)
        else:
            download_archive(image_set.url, *image_set.archive, missing, root, progress)
    except DownloadFailed as error:
        files = ", ".join(Path(path).name for path in missing)
        origin = image_set.url
        if image_set.archive is not None:
            origin = f"{image_set.archive[0]}, unpacked,"
        target = str((root / next(iter(missing))).parent)
        raise FileProblem(
            f"{name} cannot be downloaded: {error}; try again, or by hand: "
            f"put {files} from {origin} into {target!r}"
        ) from None
    return root


def find_altered_files(image_set: ImageSet, root: Path) -> dict[str, DataFile]:
    """Return the files that are missing or altered."""
    # Read all of them: a file may be altered and still have the right length.
    missing = {}
    for path, published in image_set.files.items():
        try:
            read_published(root / path, published)
        except FileProblem:
            missing[path] = published
    return missing


def download_files(url: str, files: Mapping[str, DataFile], root: Path, progress: Progress) -> None:
    """Download files one by one, each into its place below `root`."""
    total_bytes = sum(published.size_bytes for published in files.values())
    bytes_before = 0
    for path, published in files.items():
        # In the target's folder, so that the move into place is atomic.
        with temporary_file_beside(root / path) as file:
            for done_bytes in _fetch(url + Path(path).name, published, file):
                progress(bytes_before + done_bytes, total_bytes)
            replace_file(file, root / path)
        bytes_before += published.size_bytes


def download_archive(
    url: str,
    name: str,
    published: DataFile,
    files: Mapping[str, DataFile],
    root: Path,
    progress: Progress,
) -> None:
    """Download an archive, and write these of its files below `root`."""
    with temporary_file_beside(root / name) as archive:
        for done_bytes in _fetch(url + name, published, archive):
            progress(done_bytes, published.size_bytes)
        for path, content in unpack(archive, files):
            write_bytes(root / path, content)


def _fetch(url: str, published: DataFile, target: Path) -> Iterator[int]:
    """Copy a URL into a file, and check it. Yields the number of bytes copied so far.

    Never writes more than was published, whatever the server sends.
    """
    digest = hashlib.md5(usedforsecurity=False)
    done_bytes = 0
    with target.open("wb") as file:
        for chunk in _read_chunks(url):
            digest.update(chunk)
            done_bytes += len(chunk)
            if done_bytes > published.size_bytes:
                raise DownloadFailed(
                    f"{url} sends more than the {published.size_bytes:,} bytes that were published"
                )
            try:
                file.write(chunk)
                # A full disk raises here, and not when the file is closed.
                file.flush()
            except OSError as error:
                raise FileProblem(f"{str(target)!r} cannot be written: {error.strerror}") from None
            yield done_bytes

    if done_bytes < published.size_bytes:
        raise DownloadFailed(f"{url} ended after {done_bytes:,} of {published.size_bytes:,} bytes")
    if digest.hexdigest() != published.md5:
        raise DownloadFailed(
            f"{url} has the MD5 {digest.hexdigest()}, not the published {published.md5}"
        )


def _read_chunks(url: str) -> Iterator[bytes]:
    # S310 warns of file: addresses; those that come here are in image_sets.
    # Some servers reject the user agent of urllib.
    request = urllib.request.Request(url, headers={"User-Agent": "airsplit"})  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:  # noqa: S310
            while chunk := response.read(CHUNK_BYTES):
                yield chunk
    except urllib.error.HTTPError as error:
        # The error holds the open response.
        error.close()
        raise DownloadFailed(f"{url}: {error}") from None
    except (OSError, http.client.HTTPException) as error:
        # A URLError wraps the exception that matters, or has a text instead.
        cause = error.reason if isinstance(error, urllib.error.URLError) else error
        if isinstance(cause, Exception):
            cause = error_line(cause)
        raise DownloadFailed(f"{url}: {cause}") from None


def unpack(archive: Path, files: Mapping[str, DataFile]) -> Iterator[tuple[str, bytes]]:
    """Yield these files of a .tar.gz, each checked; everything else in it is ignored.

    Nothing is extracted by tarfile, so no member can name a path to be written.
    """
    remaining = dict(files)
    try:
        with tarfile.open(archive, "r|gz") as tar:
            for member in tar:
                published = remaining.pop(member.name, None)
                if published is not None:
                    yield member.name, read_member(tar, member, published)
    except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
        raise DownloadFailed(f"the archive is damaged: {error}") from None
    if remaining:
        raise DownloadFailed(f"the archive has no {', '.join(remaining)}")


def read_member(tar: tarfile.TarFile, member: tarfile.TarInfo, published: DataFile) -> bytes:
    """Return the content of a regular file in an archive; raise if it is not what was published."""
    content = b""
    if member.isreg() and member.size == published.size_bytes:
        file = tar.extractfile(member)
        if file is not None:
            content = file.read(published.size_bytes)
    if hashlib.md5(content, usedforsecurity=False).hexdigest() != published.md5:
        raise DownloadFailed(f"{member.name} in the archive is not the published file")
    return content
