"""What a run leaves behind: a record of each round, and the run folder.  No torch here: reports and dashboards read it, too."""

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

Column = tuple[float, ...]
"""One number for each device."""

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
"""What a record says of each device."""

ENERGY_INCLUDES_COMPUTING = "energy_includes_computing"
"""In plan.json: whether the fleet has joules_per_mac.  Without it, `energy_j` is that of sending alone."""


LONGEST_RECORD = 1 << 28
"""Bytes of a line that is read: some million devices."""


@dataclass(frozen=True, kw_only=True)
class RoundRecord:
    """One round.

    round                  from one
    virtual_time_s         at the round's end
    latency_s              of the round
    train_loss             mean over the devices that finished, weighted as in the average; None where none did
    test_accuracy          mean over the evaluated devices' models on the common test set; None when not evaluated
    test_accuracy_spread   standard deviation over those models
    test_accuracy_worst    the least of them
    own_accuracy, own_accuracy_spread, own_accuracy_worst    the same with each model's classes weighted as its device has them
    test_metric, test_metric_spread, test_metric_worst       the same of training.metric, if that is a function of the user's own
    test_loss              mean over the evaluated models
    participants, dropped  device numbers: who was asked to take part, and who of them dropped out
    compute_s, transmit_s, server_s, idle_s, sent_bytes, received_bytes, macs, energy_j    of each device in this round
    splits, shares         of each device, in a round that begins with a new plan
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
        """One line; what is None is left out.

        >>> RoundRecord(round=1, virtual_time_s=2.0, latency_s=2.0, train_loss=0.5).to_json()[:56]
        '{"round": 1, "virtual_time_s": 2.0, "latency_s": 2.0, "t'
        """
        values = ((field.name, getattr(self, field.name)) for field in fields(self))
        return json.dumps(
            {name: value for name, value in values if value is not None}, allow_nan=False
        )

    @classmethod
    def from_json(cls, line: str, where: str = "record") -> RoundRecord:
        """Read what `to_json` wrote; `where` says in an error which record it is."""
        data = parse_json(line, where)
        if (
            not isinstance(data, dict)
            or not {"round", "virtual_time_s", "latency_s"} <= data.keys()
        ):
            raise ValueError("not a record of a round")
        values: dict[str, Any] = {name: _value(name, value) for name, value in data.items()}
        return cls(**{"train_loss": None} | values)


_COLUMNS = {"participants", "dropped", *PER_DEVICE, "splits", "shares"}
_NUMBERS = {field.name for field in fields(RoundRecord)} - _COLUMNS


# No sum of what a run really takes, sends or loses comes near: larger numbers are damage, and would overflow.
LARGEST = 1e100


def _value(name: str, value: Any) -> Any:
    """A field of a record as it was read; an error where it is not what the field has."""
    if name == "round":
        return require_integer(name, value, low=1)
    if name in _NUMBERS:
        low = 0.0 if name in ("virtual_time_s", "latency_s") else -LARGEST
        return require_number(name, value, low=low, high=LARGEST)
    if name not in _COLUMNS:
        raise ValueError(f"unknown key {name!r}")
    if not isinstance(value, list):
        raise ValueError(f"{name} must be a list, got {show(value)}")  # noqa: TRY004 - whatever is wrong with a line is one kind of error
    if value and require_numbers(name, value, low=-LARGEST, high=LARGEST).ndim != 1:
        raise ValueError(f"{name} must be a list of numbers, got {show(value)}")
    return tuple(value)


def round_digits(value: float) -> float:
    """What a device takes, in six digits: there are many devices.  Sums and times of a round are kept whole.

    >>> round_digits(0.12345678)
    0.123457
    """
    return float(f"{value:.6g}")


class RecordReader:
    """Reads the records of a run as they arrive, each once; a line without its end is left for later."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.start_over()

    def start_over(self) -> None:
        """Begin again with the first."""
        self._offset, self._lines = 0, 0
        self._identity: tuple[int, int] | None = None

    @property
    def is_outdated(self) -> bool:
        """Whether the file is another one than before, or shorter, as after a run went on from an older checkpoint."""
        try:
            found = self._file.stat()
        except OSError:
            return self._offset > 0
        return self._identity is not None and (
            (found.st_dev, found.st_ino) != self._identity or found.st_size < self._offset
        )

    def read_new(self) -> Iterator[RoundRecord]:
        """What has come since the last time."""
        try:
            with self._file.open("rb") as stream:
                found = os.fstat(stream.fileno())
                if self._identity not in (None, (found.st_dev, found.st_ino)):
                    return  # replaced a moment ago
                self._identity = (found.st_dev, found.st_ino)
                stream.seek(self._offset)
                while (line := stream.readline(LONGEST_RECORD)).endswith(b"\n"):
                    record = self._record(line)
                    self._offset += len(line)
                    self._lines += 1
                    yield record
                if len(line) == LONGEST_RECORD:
                    raise FileProblem(f"{self._next} is longer than {LONGEST_RECORD:,} bytes")
        except FileNotFoundError:
            return
        except OSError as error:
            raise FileProblem(
                f"records of the run {str(self._file)!r} cannot be read: {error.strerror}"
            ) from None

    def _record(self, line: bytes) -> RoundRecord:
        try:
            return RoundRecord.from_json(line.decode(), self._next)
        except UnicodeDecodeError:
            raise FileProblem(f"{self._next} is not UTF-8 text") from None
        except (ValueError, TypeError) as error:
            raise FileProblem(f"{self._next}: {error}") from None

    @property
    def _next(self) -> str:
        """What is read next, for an error."""
        return f"records of the run {str(self._file)!r}, line {self._lines + 1}"
