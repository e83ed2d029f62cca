"""The run folder: the files that a run leaves behind."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from airsplit.core.errors import FileProblem, InvalidValue, require_integer, show
from airsplit.core.files import read_text, write_text
from airsplit.core.lock import Lock, folder_lock
from airsplit.core.parsing import read_json
from airsplit.runs.record import RecordReader, RoundRecord
from airsplit.scenario.scenario import Scenario

DIVERGENCE_FILE = "diverged.json"


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
    def has_rounds(self) -> bool:
        """Whether there is a run here already that has done a round."""
        try:
            begun = self.rounds_file.exists() and self.rounds_file.stat().st_size > 0
            return begun or (self.checkpoint / "checkpoint.json").exists()
        except OSError as error:
            raise FileProblem(
                f"run folder {str(self.path)!r} cannot be read: {error.strerror}"
            ) from None

    def begin(self, scenario: str, plan: Mapping[str, Any]) -> None:
        """Write down what is to be run; an error where there is a run already."""
        self.require_new()
        shutil.rmtree(
            self.checkpoint, ignore_errors=True
        )  # what a run that never finished a round left half-written
        self.clear_divergence()
        write_text(self.plan_file, json.dumps(plan, indent=1, allow_nan=False) + "\n")
        write_text(self.scenario_file, scenario)

    def require_new(self) -> None:
        """Raise where there is a run already."""
        if self.has_rounds:
            raise InvalidValue(
                f"out {str(self.path)!r} has a run in it already; go on with it by --resume (in Python resume=True), or name another folder"
            )

    def rewrite_scenario(self, scenario: str) -> None:
        """What is run from here on, where more rounds were asked for."""
        write_text(self.scenario_file, scenario)

    def read_scenario(self) -> str:
        return read_text(self.scenario_file, what="scenario of the run")

    def require_same_scenario(self, now: Scenario) -> None:
        """Raise if a scenario differs from the run's in anything but its number of rounds."""
        for table, section in Scenario.from_toml(self.read_scenario()).settings().items():
            other = getattr(now, table)
            for key in type(section).model_fields:
                old, new = getattr(section, key), getattr(other, key)
                if old != new and (table, key) != ("training", "rounds"):
                    raise InvalidValue(
                        f"{table}.{key} must be as in the run in {str(self.path)!r} that is resumed, {show(old)}, "
                        f"got {show(new)}; only training.rounds may differ"
                    )

    def write_changes(self, changes: Mapping[str, Any]) -> None:
        """Remember what the command line changed in the scenario that it named, for when the run goes on."""
        if changes or self.changes_file.exists():
            write_text(self.changes_file, json.dumps(changes, indent=1) + "\n")

    def read_changes(self) -> dict[str, Any]:
        """The same; none where there were none."""
        if not self.changes_file.exists():
            return {}
        return self._object(self.changes_file, "changes of the run")

    def write_divergence(self, divergence: Divergence) -> None:
        """Record that the training diverged."""
        write_text(self.divergence_file, json.dumps(asdict(divergence)) + "\n")

    def read_divergence(self) -> Divergence | None:
        """Return how the training diverged; None if it did not."""
        if not self.divergence_file.exists():
            return None
        what = "divergence of the run"
        said = self._object(self.divergence_file, what)
        try:
            return Divergence(
                require_integer("round", said.get("round"), low=1), str(said.get("why"))
            )
        except InvalidValue as error:
            raise FileProblem(f"{what} {str(self.divergence_file)!r}: {error}") from None

    def clear_divergence(self) -> None:
        """Forget that the training diverged, as it goes on or starts over."""
        try:
            self.divergence_file.unlink(missing_ok=True)
        except OSError as error:
            raise FileProblem(
                f"run folder {str(self.path)!r} cannot be written: {error.strerror}"
            ) from None

    def read_plan(self) -> dict[str, Any]:
        return self._object(self.plan_file, "plan of the run")

    @staticmethod
    def _object(file: Path, what: str) -> dict[str, Any]:
        found = read_json(file, what=what)
        if not isinstance(found, dict):
            raise FileProblem(
                f"{what} {str(file)!r} must be a JSON object, got {show(found)}; was it damaged?"
            )
        return found

    def read_records(self) -> list[RoundRecord]:
        """Every whole record.  A last line that was cut short, as by a crash, is left out; any other bad line is an error."""
        return list(RecordReader(self.rounds_file).read_new())

    def write_records(self, records: Iterable[RoundRecord]) -> None:
        """Make these the records, whole or not at all."""
        write_text(self.rounds_file, "".join(record.to_json() + "\n" for record in records))

    def drop_records_after(self, round_number: int) -> None:
        """Drop records of rounds after one that a checkpoint is of; an error where one before it is missing."""
        records = [record for record in self.read_records() if record.round <= round_number]
        if [record.round for record in records] != list(range(1, round_number + 1)):
            raise FileProblem(
                f"run folder {str(self.path)!r} has a checkpoint of round {round_number}, but not a record of each round before"
            )
        self.write_records(records)

    def lock(self) -> closing[Lock]:
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
            raise FileProblem(
                f"records of the run {str(self.rounds_file)!r} cannot be written: {error.strerror}"
            ) from None
