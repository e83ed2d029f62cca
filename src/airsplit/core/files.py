"""Text files: read with clear errors, written atomically."""

from __future__ import annotations

import csv
import io
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from airsplit.core.errors import FileProblem


def read_text(path: str | os.PathLike[str], *, what: str, limit_bytes: int = 1 << 30) -> str:
    """Return the content of a UTF-8 file; `what` names the kind of file in errors."""
    file = Path(path)
    too_large = FileProblem(
        f"{what} {str(file)!r} is larger than {limit_bytes} bytes; is it the right file?"
    )
    try:
        if file.stat().st_size > limit_bytes:
            raise too_large
        # Spreadsheets begin a file with a byte order mark, which utf-8-sig drops.
        with file.open(encoding="utf-8-sig") as stream:
            # Pipes and devices report no size, so the read is bounded as well.
            text = stream.read(limit_bytes + 1)
    except FileNotFoundError:
        raise FileProblem(f"{what} {str(file)!r} does not exist") from None
    except UnicodeDecodeError:
        raise FileProblem(f"{what} {str(file)!r} is not UTF-8 text") from None
    except OSError as error:
        raise FileProblem(f"{what} {str(file)!r} cannot be read: {error.strerror}") from None
    except ValueError as error:
        # Python refuses a path with a NUL before the system sees it.
        raise FileProblem(f"{what} {str(file)!r} cannot be read: {error}") from None

    if len(text) > limit_bytes:
        raise too_large
    return text


def read_table(path: str | os.PathLike[str], *, what: str) -> list[list[str]]:
    """Return the rows of a CSV file, including its header and empty lines."""
    return parse_table(read_text(path, what=what), f"{what} {str(path)!r}")


def parse_table(text: str, where: str) -> list[list[str]]:
    """Return the rows of CSV text, including its header and empty lines.

    Args:
        where: Description of the file, for errors.

    >>> parse_table("a,b\\n1,2\\n", "fleet")
    [['a', 'b'], ['1', '2']]
    >>> parse_table("name;distance_m\\n", "fleet")
    Traceback (most recent call last):
    ...
    airsplit.core.errors.FileProblem: fleet: columns are separated by ';', must be ','; \
and numbers must have a decimal point
    """
    try:
        # strict: a quote that is never closed, as in a truncated file, must not pass.
        rows = list(csv.reader(io.StringIO(text), strict=True))
    except csv.Error as error:
        raise FileProblem(f"{where} is not CSV: {error}; was it cut short?") from None

    # Spreadsheets write ";" in countries where numbers have a decimal comma.
    header = next((row for row in rows if row), [])
    if len(header) == 1:
        for separator, name in ((";", "';'"), ("\t", "tabs"), ("|", "'|'")):
            if separator in header[0]:
                raise FileProblem(
                    f"{where}: columns are separated by {name}, must be ','; "
                    "and numbers must have a decimal point"
                )
    return rows


def describe_wrong_length(row: list[str], header: list[str]) -> str:
    """Return the complaint about a row whose length differs from the header's.

    >>> describe_wrong_length(["1", "5", "2"], ["a", "b"])
    '3 entries, but the header names 2 columns; a number must have a decimal point, not a comma'
    """
    complaint = f"{len(row)} entries, but the header names {len(header)} columns"
    if len(row) > len(header):
        # A decimal comma splits one number into two entries.
        complaint += "; a number must have a decimal point, not a comma"
    return complaint


def describe_bad_number(column: str, text: str) -> str:
    """Return the complaint about an entry that must be a number.

    >>> describe_bad_number("fluctuation", "1,5")
    "fluctuation must be a number, got '1,5'; write it with a decimal point"
    """
    complaint = f"{column} must be a number, got {text!r}"
    if is_number(text.replace(",", ".")):
        complaint += "; write it with a decimal point"
    return complaint


def find_duplicate(values: Sequence[str]) -> tuple[str, int, int] | None:
    """Return the first repeated value and its first two indices; None if all values differ.

    >>> find_duplicate(["a", "b", "a"])
    ('a', 0, 2)
    """
    first_indices: dict[str, int] = {}
    for index, value in enumerate(values):
        if value in first_indices:
            return value, first_indices[value], index
        first_indices[value] = index
    return None


def is_number(text: str) -> bool:
    """Return whether a text is a number.

    >>> is_number(" 1e6 "), is_number("fast")
    (True, False)
    """
    try:
        float(text)
    except ValueError:
        return False
    return True


def write_text(path: str | os.PathLike[str], content: str) -> None:
    """Write a UTF-8 file atomically."""
    write_bytes(path, content.encode("utf-8"))


def write_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file atomically: readers see its old content or the new, never a part."""
    target = Path(path)
    with temporary_file_beside(target) as file:
        try:
            file.write_bytes(content)
        except OSError as error:
            raise FileProblem(f"{str(target)!r} cannot be written: {error.strerror}") from None
        replace_file(file, target)


@contextmanager
def temporary_file_beside(target: Path) -> Iterator[Path]:
    """Create an empty file in the target's folder; delete it on exit unless it was moved.

    A rename is atomic within one file system only, so the file is not in the system's temporary
    folder. The target's folder is created if it does not exist.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    except OSError as error:
        raise FileProblem(f"{str(target)!r} cannot be written: {error.strerror}") from None

    # Callers open the file by its path; a second handle would keep Windows from moving it.
    os.close(handle)
    file = Path(name)
    try:
        yield file
    finally:
        file.unlink(missing_ok=True)


def replace_file(file: Path, target: Path, mode: int = 0o644) -> None:
    """Move a file over another in the same folder; either survives a power failure complete."""
    try:
        # The content must be on the disk before the name points to it, and then the name.
        _sync(file)
        # Temporary files are created for their owner only.
        file.chmod(mode)
        file.replace(target)
        _sync(target.parent)
    except OSError as error:
        raise FileProblem(f"{str(target)!r} cannot be written: {error.strerror}") from None


def _sync(path: Path) -> None:
    """Flush a file's content, or a folder's entries, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
