"""Run folders: the files that a run writes, and how they are read back."""

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
from airsplit.scenario.run_files import (
    CHANGES_FILE,
    CHECKPOINT_FOLDER,
    DIVERGENCE_FILE,
    PLAN_FILE,
    RECORDS_FILE,
    REPORT_FILE,
    SCENARIO_FILE,
)
from airsplit.scenario.scenario import Scenario


@dataclass(frozen=True)
class Divergence:
    """The end of a training that produced a number that is not finite.

    Attributes:
        round: The round in which it did, which has no record.
        why: Message of the error.
    """

    round: int
    why: str


class RunFolder:
    """The files of a run.

    Attributes:
        scenario_file: The scenario, as TOML.
        plan_file: The plan, as JSON.
        rounds_file: One record a line, as JSON.
        checkpoint: Folder of the training state; `training.checkpoint` knows its content.
        report_file: The report, as HTML.
        changes_file: Settings that the command line changed; missing if there are none.
        divergence_file: How the training diverged; missing if it did not.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.scenario_file = self.path / SCENARIO_FILE
        self.plan_file = self.path / PLAN_FILE
        self.rounds_file = self.path / RECORDS_FILE
        self.checkpoint = self.path / CHECKPOINT_FOLDER
        self.report_file = self.path / REPORT_FILE
        self.changes_file = self.path / CHANGES_FILE
        self.divergence_file = self.path / DIVERGENCE_FILE

    @property
    def has_rounds(self) -> bool:
        """Whether the folder contains a run that has finished a round."""
        # Either file is work that must not be overwritten by accident.
        try:
            if self.rounds_file.exists() and self.rounds_file.stat().st_size > 0:
                return True
            return (self.checkpoint / "checkpoint.json").exists()
        except OSError as error:
            raise FileProblem(
                f"run folder {str(self.path)!r} cannot be read: {error.strerror}"
            ) from None

    def lock(self) -> closing[Lock]:
        """Lock the folder against other processes, from this call until the context exits."""
        return folder_lock(self.path, "run folder")

    def require_new(self) -> None:
        """Raise if the folder already contains a run."""
        if self.has_rounds:
            raise InvalidValue(
                f"out {str(self.path)!r} already contains a run; add --resume (in Python "
                "resume=True) or choose another folder"
            )

    def begin(self, scenario: str, plan: Mapping[str, Any]) -> None:
        """Write the scenario and plan of a new run; raise if the folder already contains one."""
        self.require_new()

        # Leftovers of a run that ended before its first round was complete.
        shutil.rmtree(self.checkpoint, ignore_errors=True)
        self.clear_divergence()

        # The scenario comes last: a folder with a scenario has a plan.
        write_text(self.plan_file, json.dumps(plan, indent=1, allow_nan=False) + "\n")
        write_text(self.scenario_file, scenario)

    def read_scenario(self) -> str:
        """Return the scenario's TOML text."""
        return read_text(self.scenario_file, what="scenario of the run")

    def rewrite_scenario(self, scenario: str) -> None:
        """Replace the scenario's text, for a run that was extended by more rounds."""
        write_text(self.scenario_file, scenario)

    def require_same_scenario(self, now: Scenario) -> None:
        """Raise if a scenario differs from the run's in more than its number of rounds."""
        before = Scenario.from_toml(self.read_scenario())
        # Setting by setting, so that the error can name the first one that differs.
        for table, section in before.settings().items():
            section_now = getattr(now, table)
            for key in type(section).model_fields:
                old = getattr(section, key)
                new = getattr(section_now, key)
                if old != new and (table, key) != ("training", "rounds"):
                    raise InvalidValue(
                        f"{table}.{key} must be as in the run in {str(self.path)!r} that is "
                        f"resumed, {show(old)}, got {show(new)}; only training.rounds may differ"
                    )

    def read_plan(self) -> dict[str, Any]:
        """Return the content of plan.json."""
        return self._read_object(self.plan_file, "plan of the run")

    def read_changes(self) -> dict[str, Any]:
        """Return the settings that the command line changed, by their dotted names."""
        if not self.changes_file.exists():
            return {}
        return self._read_object(self.changes_file, "changes of the run")

    def write_changes(self, changes: Mapping[str, Any]) -> None:
        """Record the settings that the command line changed, so that a resumed run keeps them."""
        # A run without changes must not keep those of an earlier run that ended too soon.
        if changes or self.changes_file.exists():
            write_text(self.changes_file, json.dumps(changes, indent=1) + "\n")

    def read_divergence(self) -> Divergence | None:
        """Return how the training diverged; None if it did not."""
        if not self.divergence_file.exists():
            return None

        what = "divergence of the run"
        content = self._read_object(self.divergence_file, what)
        try:
            number = require_integer("round", content.get("round"), low=1)
        except InvalidValue as error:
            raise FileProblem(f"{what} {str(self.divergence_file)!r}: {error}") from None
        return Divergence(number, str(content.get("why")))

    def write_divergence(self, divergence: Divergence) -> None:
        """Record that the training diverged."""
        write_text(self.divergence_file, json.dumps(asdict(divergence)) + "\n")

    def clear_divergence(self) -> None:
        """Delete the record of a divergence, before the training resumes or starts over."""
        try:
            self.divergence_file.unlink(missing_ok=True)
        except OSError as error:
            raise FileProblem(
                f"run folder {str(self.path)!r} cannot be written: {error.strerror}"
            ) from None

    def read_records(self) -> list[RoundRecord]:
        """Return all complete records.

        A last line that was cut short, as by a crash, is left out; any other bad line is an error.
        """
        return list(RecordReader(self.rounds_file).read_new())

    def write_records(self, records: Iterable[RoundRecord]) -> None:
        """Replace all records, atomically."""
        write_text(self.rounds_file, "".join(record.to_json() + "\n" for record in records))

    def drop_records_after(self, round_number: int) -> None:
        """Drop records later than a checkpoint's round; raise if an earlier one is missing."""
        # Rounds after the checkpoint are trained again.
        records = [record for record in self.read_records() if record.round <= round_number]
        if [record.round for record in records] != list(range(1, round_number + 1)):
            raise FileProblem(
                f"run folder {str(self.path)!r} has a checkpoint of round {round_number}, "
                "but not a record of each round before"
            )
        self.write_records(records)

    def append(self, record: RoundRecord) -> None:
        """Append a record; it is on the disk when this returns."""
        try:
            with self.rounds_file.open("a", encoding="utf-8") as stream:
                stream.write(record.to_json() + "\n")
                # A checkpoint of this round may follow, and must not outlive the record.
                stream.flush()
                os.fsync(stream.fileno())
        except OSError as error:
            raise FileProblem(
                f"records of the run {str(self.rounds_file)!r} cannot be written: {error.strerror}"
            ) from None

    @staticmethod
    def _read_object(file: Path, what: str) -> dict[str, Any]:
        """Return the content of a JSON file, which must be an object."""
        content = read_json(file, what=what)
        if not isinstance(content, dict):
            raise FileProblem(
                f"{what} {str(file)!r} must be a JSON object, got {show(content)}; was it damaged?"
            )
        return content
