"""What a run leaves behind: a record of each round, and the run folder.  No torch here: reports and dashboards read it, too."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from airsplit.core.errors import FileProblem, InvalidValue, require_integer, require_number, require_numbers, show
from airsplit.core.files import read_text, write_text
from airsplit.core.parsing import parse_json, read_json

Column = tuple[float, ...]
"""One number for each device."""

PER_DEVICE = ("compute_s", "transmit_s", "server_s", "idle_s", "sent_bytes", "received_bytes", "macs", "energy_j")
"""What a record says of each device."""

ENERGY_INCLUDES_COMPUTING = "energy_includes_computing"
"""In plan.json: whether the fleet has joules_per_mac.  Without it, `energy_j` is that of sending alone."""


DIVERGENCE_FILE = "diverged.json"

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
        return json.dumps({name: value for name, value in values if value is not None}, allow_nan=False)

    @classmethod
    def from_json(cls, line: str, where: str = "record") -> RoundRecord:
        """Read what `to_json` wrote; `where` says in an error which record it is."""
        data = parse_json(line, where)
        if not isinstance(data, dict) or not {"round", "virtual_time_s", "latency_s"} <= data.keys():
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


def few_digits(value: float) -> float:
    """What a device takes, in six digits: there are many devices.  Sums and times of a round are kept whole.

    >>> few_digits(0.12345678)
    0.123457
    """
    return float(f"{value:.6g}")


@dataclass(frozen=True)
class Divergence:
    """The end of a training that met a number that is not finite.

    Attributes:
        round: The round that it was in, which has no record.
        why: The error's message.
    """

    round: int
    why: str


class RunFolder:
    """A run's files: scenario.toml, plan.json, rounds.jsonl, checkpoint/, report.html.

    Besides, where there is something to say: changes.json, what the command line changed; diverged.json, how the training ended.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.scenario_file = self.path / "scenario.toml"
        self.plan_file = self.path / "plan.json"
        self.rounds_file = self.path / "rounds.jsonl"
        self.checkpoint = self.path / "checkpoint"
        self.report_file = self.path / "report.html"
        self.changes_file = self.path / "changes.json"
        self.divergence_file = self.path / DIVERGENCE_FILE

    @property
    def exists(self) -> bool:
        """Whether there is a run here already that has done a round."""
        try:
            begun = self.rounds_file.exists() and self.rounds_file.stat().st_size > 0
            return begun or (self.checkpoint / "checkpoint.json").exists()
        except OSError as error:
            raise FileProblem(f"run folder {str(self.path)!r} cannot be read: {error.strerror}") from None

    def begin(self, scenario: str, plan: Mapping[str, Any]) -> None:
        """Write down what is to be run; an error where there is a run already."""
        self.require_new()
        shutil.rmtree(self.checkpoint, ignore_errors=True)  # what a run that never finished a round left half-written
        self.clear_divergence()
        write_text(self.plan_file, json.dumps(plan, indent=1, allow_nan=False) + "\n")
        write_text(self.scenario_file, scenario)

    def require_new(self) -> None:
        """Raise where there is a run already."""
        if self.exists:
            raise InvalidValue(
                f"out {str(self.path)!r} has a run in it already; go on with it by --resume (in Python resume=True), or name another folder"
            )

    def rewrite_scenario(self, scenario: str) -> None:
        """What is run from here on, where more rounds were asked for."""
        write_text(self.scenario_file, scenario)

    def scenario(self) -> str:
        return read_text(self.scenario_file, what="scenario of the run")

    def keep_changes(self, changes: Mapping[str, Any]) -> None:
        """Remember what the command line changed in the scenario that it named, for when the run goes on."""
        if changes or self.changes_file.exists():
            write_text(self.changes_file, json.dumps(changes, indent=1) + "\n")

    def changes(self) -> dict[str, Any]:
        """The same; none where there were none."""
        if not self.changes_file.exists():
            return {}
        return self._object(self.changes_file, "changes of the run")

    def write_divergence(self, divergence: Divergence) -> None:
        """Record that the training diverged."""
        write_text(self.divergence_file, json.dumps(asdict(divergence)) + "\n")

    def divergence(self) -> Divergence | None:
        """Return how the training diverged; None if it did not."""
        if not self.divergence_file.exists():
            return None
        what = "divergence of the run"
        said = self._object(self.divergence_file, what)
        try:
            return Divergence(require_integer("round", said.get("round"), low=1), str(said.get("why")))
        except InvalidValue as error:
            raise FileProblem(f"{what} {str(self.divergence_file)!r}: {error}") from None

    def clear_divergence(self) -> None:
        """Forget that the training diverged, as it goes on or starts over."""
        try:
            self.divergence_file.unlink(missing_ok=True)
        except OSError as error:
            raise FileProblem(f"run folder {str(self.path)!r} cannot be written: {error.strerror}") from None

    def plan(self) -> dict[str, Any]:
        return self._object(self.plan_file, "plan of the run")

    @staticmethod
    def _object(file: Path, what: str) -> dict[str, Any]:
        found = read_json(file, what=what)
        if not isinstance(found, dict):
            raise FileProblem(f"{what} {str(file)!r} must be a JSON object, got {show(found)}; was it damaged?")
        return found

    def records(self) -> list[RoundRecord]:
        """Every whole record.  A last line that was cut short, as by a crash, is left out; any other bad line is an error."""
        return list(RecordReader(self.rounds_file).new())

    def keep(self, records: Iterable[RoundRecord]) -> None:
        """Make these the records, whole or not at all."""
        write_text(self.rounds_file, "".join(record.to_json() + "\n" for record in records))

    def keep_until(self, round_number: int) -> None:
        """Drop records of rounds after one that a checkpoint is of; an error where one before it is missing."""
        records = [record for record in self.records() if record.round <= round_number]
        if [record.round for record in records] != list(range(1, round_number + 1)):
            raise FileProblem(
                f"run folder {str(self.path)!r} has a checkpoint of round {round_number}, but not a record of each round before"
            )
        self.keep(records)

    def locked(self) -> closing[Lock]:
        """Keeps other processes from training in this folder; taken at once, given back when it is closed or the process ends."""
        return folder_lock(self.path, "run folder")

    def append(self, record: RoundRecord) -> None:
        """Add a record; it is on the disk when this returns."""
        try:
            with self.rounds_file.open("a", encoding="utf-8") as stream:
                stream.write(record.to_json() + "\n")
                stream.flush()
                os.fsync(stream.fileno())
        except OSError as error:
            raise FileProblem(f"records of the run {str(self.rounds_file)!r} cannot be written: {error.strerror}") from None


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
        return self._identity is not None and ((found.st_dev, found.st_ino) != self._identity or found.st_size < self._offset)

    def new(self) -> Iterator[RoundRecord]:
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
            raise FileProblem(f"records of the run {str(self._file)!r} cannot be read: {error.strerror}") from None

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


def folder_lock(folder: Path, what: str) -> closing[Lock]:
    """Keeps other processes from working in a folder; `what` says in an error what it is."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return closing(Lock(folder / ".lock"))
    except BlockingIOError:
        raise FileProblem(f"{what} {str(folder)!r} is in use by another process; wait for it, or name another folder") from None
    except OSError as error:
        raise FileProblem(f"{what} {str(folder)!r} cannot be written: {error.strerror}") from None


class Lock:
    """A file that one process at a time can have.  It is given back when it is closed, or forgotten, or the process ends."""

    _handle = -1

    def __init__(self, path: Path) -> None:
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            import fcntl
        except ImportError:  # not a Unix: do without
            return
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)

    def __del__(self) -> None:
        self.close()
