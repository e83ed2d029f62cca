"""Trace: measured full-band rates over time, to be replayed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from airsplit.core.arrays import Floats
from airsplit.core.errors import FileProblem, InvalidValue, require_number, require_numbers, show
from airsplit.core.files import (
    describe_bad_number,
    describe_wrong_length,
    find_duplicate,
    is_number,
    read_table,
)


@dataclass(frozen=True, eq=False)
class Trace:
    """Measured full-band rates R_k(1) of K devices at T moments.

    A row holds until the next one.

    Attributes:
        time_s: T rising moments.
        rate_bps: T × K rates.
        name: Names of the devices, if the file has any.
        loop: Start over after the last row; else it holds forever. The last row then holds for as
            long as the one before it.

    >>> trace = Trace(time_s=[0.0, 10.0], rate_bps=[[1e6, 2e6], [3e6, 4e6]])
    >>> trace.at(9.9).tolist(), trace.at(99.0).tolist()
    ([1000000.0, 2000000.0], [3000000.0, 4000000.0])
    """

    time_s: Floats
    rate_bps: Floats
    name: Sequence[str] | None = None
    loop: bool = False

    def __post_init__(self) -> None:
        t = require_numbers("trace.time_s", self.time_s, low=0)
        rate = require_numbers("trace.rate_bps", self.rate_bps, above=0)
        if t.ndim != 1 or len(t) == 0 or (np.diff(t) <= 0).any():
            raise InvalidValue(
                "trace.time_s must be an increasing list of seconds with at least one entry, "
                f"got {show(t.tolist())}"
            )
        if rate.ndim != 2 or rate.shape[0] != len(t) or rate.shape[1] == 0:
            raise InvalidValue(
                "trace.rate_bps must have a row for each moment and a column for each device, "
                f"got shape {rate.shape}"
            )
        if self.name is not None and len(self.name) != rate.shape[1]:
            raise InvalidValue(
                f"trace.name must have {rate.shape[1]} entries, one for each device, "
                f"got {len(self.name)}"
            )
        object.__setattr__(self, "time_s", t)
        object.__setattr__(self, "rate_bps", rate)

    @property
    def devices(self) -> int:
        """K."""
        return int(self.rate_bps.shape[1])

    def at(self, time_s: float) -> Floats:
        """Return the K rates at a time.

        >>> trace = Trace(time_s=[0.0, 10.0], rate_bps=[[1e6], [3e6]], loop=True)
        >>> [trace.at(t).item() for t in (9.0, 19.0, 20.0)]
        [1000000.0, 3000000.0, 1000000.0]
        """
        t = require_number("time_s", time_s, low=0)
        if self.loop and len(self.time_s) > 1:
            start = self.time_s[0]
            # A trace does not say how long its last row holds: as long as the one before.
            last_step = self.time_s[-1] - self.time_s[-2]
            period = self.time_s[-1] + last_step - start
            t = start + (t - start) % period
        row = int(np.searchsorted(self.time_s, t, side="right")) - 1
        # Before the first moment its rates hold, too.
        return self.rate_bps[max(row, 0)]  # type: ignore[no-any-return]

    @classmethod
    def read(cls, path: str | os.PathLike[str], *, loop: bool = False) -> Trace:
        """Read a CSV file with a header: `time_s`, then a column of rates in bit/s a device."""
        where = f"trace file {str(path)!r}"
        table = read_table(path, what="trace file")
        rows = [(line, row) for line, row in enumerate(table, start=1) if row]
        header = [name.strip() for name in rows[0][1]] if rows else []
        if len(rows) < 2 or header[0] != "time_s" or len(header) < 2:
            raise FileProblem(
                f"{where} must have a header 'time_s,<device>,…' and at least one line of numbers"
            )
        for line, row in rows[1:]:
            if len(row) != len(header):
                raise FileProblem(f"{where}, line {line}: {describe_wrong_length(row, header)}")
        repeated = find_duplicate(header)
        if repeated is not None:
            name, first, second = repeated
            raise FileProblem(
                f"{where}: columns {first + 1} and {second + 1} must not have the same name, "
                f"got {show(name)} twice"
            )

        numbers = np.array(
            [_parse_row(header, row, f"{where}, line {line}") for line, row in rows[1:]]
        )
        try:
            return cls(numbers[:, 0], numbers[:, 1:], tuple(header[1:]), loop)
        except InvalidValue as error:
            raise InvalidValue(f"{where}: {error}") from None


def _parse_row(header: list[str], row: list[str], where: str) -> list[float]:
    try:
        return [float(entry) for entry in row]
    except ValueError:
        column, entry = next((c, e) for c, e in zip(header, row, strict=True) if not is_number(e))
        raise FileProblem(f"{where}: {describe_bad_number(column, entry.strip())}") from None
