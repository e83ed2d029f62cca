"""The CSV form of a fleet: a header that names columns, then one device a line.

Here a fleet is a dict of columns. `Fleet` knows what a valid column is.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from airsplit.core.arrays import Floats
from airsplit.core.errors import FileProblem, InvalidValue, show, unknown_name
from airsplit.core.files import (
    describe_bad_number,
    describe_wrong_length,
    find_duplicate,
    is_number,
)

# Columns without a default in `Fleet`; it asks for a source of the channels itself.
_REQUIRED = ("seconds_per_mac", "fluctuation")


@dataclass(frozen=True)
class FleetTable:
    """The columns of a fleet file, and the place of each device in it.

    Attributes:
        where: The file, for errors: "fleet file 'fleet.csv'".
        columns: Arguments of `Fleet`.
        lines: Line number of each device; blank lines count.
    """

    where: str
    columns: dict[str, Any]
    lines: Sequence[int]

    @contextmanager
    def locate_errors(self) -> Iterator[None]:
        """Add the file, and the line if a device is to blame, to errors of `Fleet`."""
        try:
            yield
        except InvalidValue as error:
            # Fleet counts devices from zero; a reader of the file counts lines.
            entry = re.match(r"fleet\.(?P<column>\w+)\[(?P<row>\d+)\] (?P<rest>.*)", str(error))
            if entry is None:
                raise InvalidValue(f"{self.where}: {error}") from None
            line = self.lines[int(entry["row"])]
            raise InvalidValue(
                f"{self.where}, line {line}: {entry['column']} {entry['rest']}"
            ) from None


def parse_fleet_table(rows: list[list[str]], where: str, known: Collection[str]) -> FleetTable:
    """Convert the rows of a CSV file to columns.

    Args:
        rows: Header and blank lines included.
        where: The file, for errors.
        known: Names of the numeric columns that a fleet may have.

    >>> parse_fleet_table([["fluctuation", "seconds_per_mac"], ["2e9", "1e-9"]], "fleet",
    ...                   ("seconds_per_mac", "fluctuation")).columns
    {'fluctuation': array([2.e+09]), 'seconds_per_mac': array([1.e-09])}
    """
    header = parse_header(rows, where, (*known, "name"))
    body = [(line, row) for line, row in enumerate(rows[1:], start=2) if row]
    if not body:
        raise FileProblem(f"{where} has a header but no devices")
    for line, row in body:
        if len(row) != len(header):
            raise FileProblem(f"{where}, line {line}: {describe_wrong_length(row, header)}")

    lines = [line for line, _ in body]
    columns: dict[str, Any] = {}
    for index, column in enumerate(header):
        entries = [row[index].strip() for _, row in body]
        if column == "name":
            require_distinct_names(where, entries, lines)
            columns[column] = entries
        else:
            columns[column] = parse_numbers(where, column, entries, lines)

    for column in _REQUIRED:
        if column not in columns:
            raise FileProblem(f"{where} has no column {column!r}; found {', '.join(header)}")
    return FleetTable(where, columns, lines)


def format_fleet_table(columns: Mapping[str, Sequence[str]]) -> str:
    """Return the text of a fleet file.

    >>> format_fleet_table({"name": ["a", "b"], "fluctuation": ["2e9", "1e9"]})
    'name,fluctuation\\na,2e9\\nb,1e9\\n'
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return text.getvalue()


def parse_header(rows: list[list[str]], where: str, known: Collection[str]) -> list[str]:
    """Return the names of the columns; raise if one is unknown or there twice."""
    if not any(rows):
        raise FileProblem(f"{where} is empty; the first line must name the columns")
    # A blank line elsewhere is skipped, but here the header is probably lost.
    if not rows[0]:
        raise FileProblem(f"{where}, line 1 is empty; it must name the columns")

    header = [column.strip() for column in rows[0]]
    for column in header:
        if column not in known:
            raise unknown_name(f"{where}: column", column, known)
    if len(set(header)) != len(header):
        raise FileProblem(f"{where}: a column is named twice in the header {', '.join(header)}")
    return header


def parse_numbers(where: str, column: str, entries: list[str], lines: list[int]) -> Floats:
    """Convert a column to an array; raise with the line of the first entry that is no number."""
    try:
        return np.array([float(entry) for entry in entries])
    except ValueError:
        # Only now look for the culprit: a file may have a million lines.
        index = next(i for i, entry in enumerate(entries) if not is_number(entry))
        raise FileProblem(
            f"{where}, line {lines[index]}: {describe_bad_number(column, entries[index])}"
        ) from None


def require_distinct_names(where: str, names: list[str], lines: list[int]) -> None:
    """Raise if a device has no name, or that of another device."""
    if "" in names:
        raise FileProblem(
            f"{where}, line {lines[names.index('')]}: name must not be empty; "
            "name every device, or leave the column out"
        )
    repeated = find_duplicate(names)
    if repeated is not None:
        name, first, second = repeated
        raise FileProblem(
            f"{where}, line {lines[second]}: "
            f"name must not repeat, got {show(name)} as in line {lines[first]}"
        )
