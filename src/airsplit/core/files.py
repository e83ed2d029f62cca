"""Reading and writing text files: clear errors, and never half a file."""

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
    """The whole of a UTF-8 file; `what` says in an error which file was wanted."""
    file = Path(path)
    too_large = FileProblem(
        f"{what} {str(file)!r} is larger than {limit_bytes} bytes; is it the right file?"
    )
    try:
        if file.stat().st_size > limit_bytes:
            raise too_large
        with file.open(
            encoding="utf-8-sig"
        ) as stream:  # spreadsheets put a byte order mark in front
            text = stream.read(
                limit_bytes + 1
            )  # pipes and devices have no size that could be asked for
    except FileNotFoundError:
        raise FileProblem(f"{what} {str(file)!r} does not exist") from None
    except UnicodeDecodeError:
        raise FileProblem(f"{what} {str(file)!r} is not UTF-8 text") from None
    except OSError as error:
        raise FileProblem(f"{what} {str(file)!r} cannot be read: {error.strerror}") from None
    except ValueError as error:  # a NUL in the path
        raise FileProblem(f"{what} {str(file)!r} cannot be read: {error}") from None
    if len(text) > limit_bytes:
        raise too_large
    return text


def read_table(path: str | os.PathLike[str], *, what: str) -> list[list[str]]:
    """The rows of a CSV file, header and empty lines included."""
    return parse_table(read_text(path, what=what), f"{what} {str(path)!r}")


def parse_table(text: str, where: str) -> list[list[str]]:
    """The same of the text of such a file; `where` says in an error what it is.

    >>> parse_table("a,b\\n1,2\\n", "fleet")
    [['a', 'b'], ['1', '2']]
    """
    try:
        rows = list(csv.reader(io.StringIO(text), strict=True))
    except csv.Error as error:
        raise FileProblem(f"{where} is not CSV: {error}; was it cut short?") from None
    _require_commas(next((row for row in rows if row), []), where)
    return rows


def _require_commas(header: list[str], where: str) -> None:
    """Raise if columns are separated as spreadsheets do where numbers have a decimal comma.

    >>> _require_commas(["name;seconds_per_mac"], "fleet file 'a.csv'")
    Traceback (most recent call last):
    ...
    airsplit.core.errors.FileProblem: fleet file 'a.csv': columns are separated by ';', must be ','; and numbers must have a decimal point
    """
    if len(header) > 1:
        return
    for separator, shown in ((";", "';'"), ("\t", "tabs"), ("|", "'|'")):
        if header and separator in header[0]:
            raise FileProblem(
                f"{where}: columns are separated by {shown}, must be ','; and numbers must have a decimal point"
            )


def describe_wrong_length(row: list[str], header: list[str]) -> str:
    """Return what is wrong with a row that has not as many entries as there are columns.

    >>> describe_wrong_length(["1", "5", "2"], ["a", "b"])
    '3 entries, but the header names 2 columns; a number must have a decimal point, not a comma'
    """
    hint = "; a number must have a decimal point, not a comma" if len(row) > len(header) else ""
    return f"{len(row)} entries, but the header names {len(header)} columns{hint}"


def describe_bad_number(column: str, text: str) -> str:
    """Return what is wrong with an entry that should be a number.

    >>> describe_bad_number("fluctuation", "1,5")
    "fluctuation must be a number, got '1,5'; write it with a decimal point"
    """
    hint = "; write it with a decimal point" if is_number(text.replace(",", ".")) else ""
    return f"{column} must be a number, got {text!r}{hint}"


def find_duplicate(values: Sequence[str]) -> tuple[str, int, int] | None:
    """Return the first value that is there again, and its first two places; None if all differ.

    >>> find_duplicate(["a", "b", "a"])
    ('a', 0, 2)
    """
    places: dict[str, int] = {}
    for place, value in enumerate(values):
        if value in places:
            return value, places[value], place
        places[value] = place
    return None


def is_number(text: str) -> bool:
    """
    >>> is_number(" 1e6 "), is_number("fast")
    (True, False)
    """
    try:
        float(text)
    except ValueError:
        return False
    return True


def write_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """Write beside the target, flush to disk, rename: the file is there whole or not at all."""
    target = Path(path)
    with temporary_file_beside(target) as file:
        try:
            file.write_bytes(content)
        except OSError as error:
            raise FileProblem(f"{str(target)!r} cannot be written: {error.strerror}") from None
        replace_file(file, target)


@contextmanager
def temporary_file_beside(target: Path) -> Iterator[Path]:
    """An empty file beside a target, whose folder is made; it is gone afterwards unless it was put in place."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    except OSError as error:
        raise FileProblem(f"{str(target)!r} cannot be written: {error.strerror}") from None
    os.close(handle)
    try:
        yield Path(temporary)
    finally:
        Path(temporary).unlink(missing_ok=True)


def replace_file(file: Path, target: Path, mode: int = 0o644) -> None:
    """Let a file take the place of another in its folder, so that either is there whole, also after a power cut."""
    try:
        _sync(file)
        file.chmod(mode)
        file.replace(target)
        _sync(target.parent)
    except OSError as error:
        raise FileProblem(f"{str(target)!r} cannot be written: {error.strerror}") from None


def _sync(path: Path) -> None:
    """Put a file's content, or a folder's names, on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_text(path: str | os.PathLike[str], content: str) -> None:
    """Write UTF-8 text, whole or not at all."""
    write_bytes(path, content.encode("utf-8"))
