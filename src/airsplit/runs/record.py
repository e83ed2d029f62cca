"""Round records: one JSON line for each round, and a reader that follows a growing file."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from airsplit.core.errors import (
    FileProblem,
    require_integer,
    require_number,
    require_numbers,
    show,
)
from airsplit.core.parsing import parse_json

# One number for each device.
Column = tuple[float, ...]

# The fields of a record that have one number for each device.
PER_DEVICE = (
    "compute_s",
    "transmit_s",
    "server_s",
    "idle_s",
    "sent_bytes",
    "received_bytes",
    "macs",
    "energy_j",
)

# Key in plan.json: whether the fleet has joules_per_mac. If not, energy_j is of sending alone.
ENERGY_INCLUDES_COMPUTING = "energy_includes_computing"

# Longest line that is read: a record of some million devices.
MAX_RECORD_BYTES = 1 << 28

# No duration, loss or sum of a real run comes near; larger numbers are damage and would overflow.
MAX_MAGNITUDE = 1e100


@dataclass(frozen=True, kw_only=True)
class RoundRecord:
    """The results of one round.

    Accuracies, metrics and test losses are None in a round that was not evaluated.

    Attributes:
        round: Number of the round, from 1.
        virtual_time_s: Time at the end of the round.
        latency_s: Duration of the round.
        train_loss: Mean over the devices that finished, weighted as in the average; None if no
            device finished.
        test_accuracy: Mean over the evaluated models on the common test set.
        test_accuracy_spread: Standard deviation over these models.
        test_accuracy_worst: Minimum over these models.
        own_accuracy: As test_accuracy, with classes weighted as each model's device has them.
        own_accuracy_spread: Standard deviation of the same.
        own_accuracy_worst: Minimum of the same.
        test_metric: Mean of training.metric, if that is a user's function.
        test_metric_spread: Standard deviation of the same.
        test_metric_worst: The worst of the same.
        test_loss: Mean over the evaluated models.
        participants: Numbers of the devices that were asked to take part.
        dropped: Numbers of those that dropped out.
        compute_s: Time that each device computed. Like the following, one number for each device.
        transmit_s: Time that each device was on the air.
        server_s: Time that the server computed for each device.
        idle_s: Time that each device waited for the others.
        sent_bytes: Bytes that each device sent to the server.
        received_bytes: Bytes that each device received.
        macs: Multiply-adds of each device.
        energy_j: Energy of each device.
        splits: Split of each device, in a round that begins with a new plan; otherwise None.
        shares: Share of the band of each device, in such a round.
    """

    round: int
    virtual_time_s: float
    latency_s: float
    train_loss: float | None
    test_accuracy: float | None = None
    test_accuracy_spread: float | None = None
    test_accuracy_worst: float | None = None
    own_accuracy: float | None = None
    own_accuracy_spread: float | None = None
    own_accuracy_worst: float | None = None
    test_metric: float | None = None
    test_metric_spread: float | None = None
    test_metric_worst: float | None = None
    test_loss: float | None = None
    participants: tuple[int, ...] = ()
    dropped: tuple[int, ...] = ()
    compute_s: Column = ()
    transmit_s: Column = ()
    server_s: Column = ()
    idle_s: Column = ()
    sent_bytes: tuple[int, ...] = ()
    received_bytes: tuple[int, ...] = ()
    macs: Column = ()
    energy_j: Column = ()
    splits: tuple[int, ...] | None = None
    shares: Column | None = None

    def to_json(self) -> str:
        """Return the record on one line, without the fields that are None.

        >>> RoundRecord(round=1, virtual_time_s=2.0, latency_s=2.0, train_loss=0.5).to_json()[:56]
        '{"round": 1, "virtual_time_s": 2.0, "latency_s": 2.0, "t'
        """
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        known = {name: value for name, value in values.items() if value is not None}
        # NaN is not JSON: browsers and other languages refuse to read it.
        return json.dumps(known, allow_nan=False)

    @classmethod
    def from_json(cls, line: str, where: str = "record") -> RoundRecord:
        """Return the record that `to_json` wrote; `where` names the line in errors.

        Raises:
            FileProblem: The line is not JSON.
            ValueError: A field is missing, unknown or out of range.
        """
        data = parse_json(line, where)
        required = {"round", "virtual_time_s", "latency_s"}
        if not isinstance(data, dict) or not required <= data.keys():
            raise ValueError("not a record of a round")

        # train_loss has no default, but to_json leaves it out if it is None.
        values: dict[str, Any] = {"train_loss": None}
        for name, value in data.items():
            values[name] = _check_field(name, value)
        return cls(**values)


# The fields that are lists, and those that are one number.
_COLUMNS = {"participants", "dropped", *PER_DEVICE, "splits", "shares"}
_NUMBERS = {field.name for field in fields(RoundRecord)} - _COLUMNS


def _check_field(name: str, value: Any) -> Any:
    """Return the value of a record's field, checked; columns become tuples."""
    if name == "round":
        return require_integer(name, value, low=1)
    if name in _NUMBERS:
        # Losses and a user's metric may be negative, times may not.
        low = -MAX_MAGNITUDE
        if name in ("virtual_time_s", "latency_s"):
            low = 0.0
        return require_number(name, value, low=low, high=MAX_MAGNITUDE)

    if name not in _COLUMNS:
        raise ValueError(f"unknown key {name!r}")
    if not isinstance(value, list):
        # Not a TypeError: callers report every bad line in the same way.
        raise ValueError(f"{name} must be a list, got {show(value)}")  # noqa: TRY004
    if value and require_numbers(name, value, low=-MAX_MAGNITUDE, high=MAX_MAGNITUDE).ndim != 1:
        raise ValueError(f"{name} must be a list of numbers, got {show(value)}")
    return tuple(value)


def round_digits(value: float) -> float:
    """Round to six significant digits, to keep records of many devices small.

    >>> round_digits(0.12345678)
    0.123457
    """
    return float(f"{value:.6g}")


class RecordReader:
    """Reader of a run's records that yields each of them once, as they arrive.

    A last line without its end is left for the next call: the run may be writing it.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self.start_over()

    def start_over(self) -> None:
        """Return to the first record."""
        # Bytes and lines that were read.
        self._offset = 0
        self._lines = 0
        # Device and inode of the file that was read; None before the first read.
        self._identity: tuple[int, int] | None = None

    @property
    def is_outdated(self) -> bool:
        """Whether the file was replaced or cut, as when a run resumes from an older checkpoint."""
        try:
            status = self._file.stat()
        except OSError:
            return self._offset > 0
        if self._identity is None:
            return False
        return (status.st_dev, status.st_ino) != self._identity or status.st_size < self._offset

    def read_new(self) -> Iterator[RoundRecord]:
        """Yield the records that were added since the last call."""
        try:
            with self._file.open("rb") as stream:
                status = os.fstat(stream.fileno())
                identity = (status.st_dev, status.st_ino)
                if self._identity not in (None, identity):
                    # The file was replaced a moment ago; is_outdated says so to the caller.
                    return
                self._identity = identity

                # readline is bounded, so that a file without line ends cannot fill the memory.
                stream.seek(self._offset)
                while (line := stream.readline(MAX_RECORD_BYTES)).endswith(b"\n"):
                    record = self._parse(line)
                    # Count the line before the caller sees its record and may stop.
                    self._offset += len(line)
                    self._lines += 1
                    yield record
                if len(line) == MAX_RECORD_BYTES:
                    raise FileProblem(
                        f"{self._next_line} is longer than {MAX_RECORD_BYTES:,} bytes"
                    )
        except FileNotFoundError:
            return
        except OSError as error:
            raise FileProblem(
                f"records of the run {str(self._file)!r} cannot be read: {error.strerror}"
            ) from None

    def _parse(self, line: bytes) -> RoundRecord:
        try:
            return RoundRecord.from_json(line.decode(), self._next_line)
        except UnicodeDecodeError:
            raise FileProblem(f"{self._next_line} is not UTF-8 text") from None
        except (ValueError, TypeError) as error:
            raise FileProblem(f"{self._next_line}: {error}") from None

    @property
    def _next_line(self) -> str:
        """The line that is read next, for errors."""
        return f"records of the run {str(self._file)!r}, line {self._lines + 1}"
