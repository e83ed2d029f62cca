"""Scenario: the settings of a run, read from strict TOML and written back exactly."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import Field

from airsplit.core.errors import AirsplitError, FileProblem, InvalidValue, show, unknown_name
from airsplit.core.files import read_text
from airsplit.core.parsing import parse_toml
from airsplit.core.plugins import find_code_paths
from airsplit.planning.methods import foreign_options
from airsplit.scenario import presets
from airsplit.scenario.run_files import run_folder_of
from airsplit.scenario.section import SECTIONS, Section, unknown_key
from airsplit.scenario.settings import (
    COMPRESSIONS,
    CellSettings,
    ClockSettings,
    FleetSettings,
    ModelSettings,
    NetworkSettings,
    PlanSettings,
    TrainingSettings,
)
from airsplit.system.cell import Cell
from airsplit.system.clock import Clock
from airsplit.system.fleet import Fleet
from airsplit.system.profile import Profile
from airsplit.system.traces import Trace

# Settings that are paths of files.
PATHS = (("model", "weights"), ("fleet", "file"), ("fleet", "trace"))


class Scenario(Section):
    """The settings of a run.

    >>> changes = {"fleet.devices": 5, "plan.max_split": "pool2"}
    >>> scenario = Scenario.load("paper-alexnet").replace(**changes)
    >>> len(scenario.make_fleet()), scenario.plan.max_split, scenario.cell.noise_dbm
    (5, 'pool2', -114.0)
    >>> Scenario.from_toml(scenario.to_toml()) == scenario
    True
    """

    model: ModelSettings
    fleet: FleetSettings = Field(default_factory=FleetSettings)
    cell: CellSettings = Field(default_factory=CellSettings)
    plan: PlanSettings = Field(default_factory=PlanSettings)
    clock: ClockSettings = Field(default_factory=ClockSettings)
    training: TrainingSettings = Field(default_factory=TrainingSettings)
    network: NetworkSettings = Field(default_factory=NetworkSettings)

    @classmethod
    def load(cls, path_or_preset: str | os.PathLike[str], *, trust_run: bool = False) -> Scenario:
        """Load a preset by its name, or a TOML file.

        Args:
            trust_run: Accept code by path ("package.module:name") from the scenario.toml of a run
                folder, which may come from somebody else.
        """
        name = os.fspath(path_or_preset)
        if name in presets.list_presets():
            return cls.from_toml(presets.read_preset(name))

        file = Path(name)
        # A path that cannot be looked up fails below, where reading it says why.
        with suppress(OSError):
            if not file.exists():
                raise _missing_scenario(name)
        if file.suffix == ".csv":
            raise FileProblem(
                f"scenario file {name!r} must be TOML, got a CSV; a scenario names it under "
                f'[fleet]: file = "{file.name}"'
            )
        text = read_text(file, what="scenario file", limit_bytes=1 << 26)
        try:
            scenario = cls.from_toml(text, folder=file.parent)
        except AirsplitError as error:
            raise type(error)(f"scenario file {name!r}: {error}") from None

        # Not too late: names of code are only text until they are used.
        folder = run_folder_of(file)
        if folder is not None and not trust_run:
            require_named_code(scenario, (), folder)
        return scenario

    @classmethod
    def from_toml(cls, text: str, *, folder: str | os.PathLike[str] | None = None) -> Scenario:
        """Return the scenario of a TOML text.

        Args:
            folder: Where relative paths start (default: the current folder).
        """
        tables = parse_toml(text)
        _resolve_paths(tables, Path(folder or "."))
        return cls(**tables)

    def to_toml(self) -> str:
        """Return every setting that applies as TOML, which `from_toml` reads back exactly."""
        blocks = []
        for table, section in self.settings().items():
            lines = [
                f"{key} = {_format_toml(value)}"
                for key, value in section.settings().items()
                if value != {}
            ]
            blocks.append("\n".join([f"[{table}]", *lines]) + "\n")
        return "\n".join(blocks)

    def replace(self, **changes: Any) -> Scenario:
        """Return a variant of the scenario.

        Settings that no longer apply are dropped, such as plan.split when plan.method changes.

        Args:
            changes: New values by dotted key; None restores the default.
        """
        # Only the settings that were given: a default may exclude a change, such as noise_dbm.
        tables: dict[str, Any] = {
            table: section.given_settings() for table, section in self.settings().items()
        }
        for key, value in changes.items():
            _set_key(tables, key, value)

        # "plan.method_arguments.level" changes plan.method_arguments.
        changed = {".".join(key.split(".")[:2]) for key in changes}
        for table, settings in tables.items():
            section = SECTIONS[table]
            for key in section.inapplicable(settings) | section.unused_arguments(settings):
                # A change that does not apply stays, so that it is rejected below.
                if f"{table}.{key}" not in changed:
                    settings.pop(key, None)
        # A new path starts at the current folder; the others are absolute already.
        _resolve_paths(tables, Path())
        return Scenario(**tables)

    def resolve(self, profile: Profile) -> Scenario:
        """Return the scenario with splits given by name, and with the model's fingerprint."""
        max_split = self.plan.max_split
        if max_split is None:
            max_split = profile.default_max_split(self.model.raw_inputs)
        splits = {
            "plan.max_split": max_split,
            "plan.min_split": self.plan.min_split,
            "plan.split": self.plan.split,
        }
        names: dict[str, str | list[str]] = {}
        for key, split in splits.items():
            if isinstance(split, tuple):
                numbers = [profile.split_of(entry, f"{key}[{k}]") for k, entry in enumerate(split)]
                names[key] = [profile.names[number - 1] for number in numbers]
            elif split is not None:
                names[key] = profile.names[profile.split_of(split, key) - 1]
        return self.replace(**names, **{"model.fingerprint": profile.fingerprint})

    def require_model(self, profile: Profile) -> None:
        """Raise if the model is not the one for which the scenario was written."""
        fingerprint = self.model.fingerprint
        if fingerprint is not None and fingerprint != profile.fingerprint:
            raise InvalidValue(
                f"model.fingerprint must be that of the model, {profile.fingerprint}, "
                f"got {fingerprint}: the model, or the way it is counted, has changed since; "
                "leave the key out to accept it"
            )

    def code_paths(self) -> dict[str, str]:
        """Return the settings that name code, "package.module:name", by their dotted keys."""
        return find_code_paths(
            {table: section.settings() for table, section in self.settings().items()}
        )

    def make_cell(self) -> Cell:
        """Return the radio that the devices share."""
        return Cell(**self.cell.settings())

    def make_clock(self) -> Clock:
        """Return the clock, with the iterations per round of [training]."""
        return Clock(
            iterations_per_round=self.training.iterations_per_round, **self.clock.settings()
        )

    def make_fleet(self) -> Fleet:
        """Draw or read the fleet; a trace replaces its channels."""
        cell = self.make_cell()
        if self.fleet.file is None:
            fleet = Fleet.sample(cell=cell, **self.fleet.sample_arguments())
        else:
            fleet = Fleet.read(self.fleet.file, cell=cell)
        if self.fleet.trace is None:
            return fleet

        trace = Trace.read(self.fleet.trace)
        name = fleet.name
        if name is None:
            name = trace.name
        if name is not None and trace.name is not None and tuple(name) != tuple(trace.name):
            raise InvalidValue(
                "fleet.trace must have the devices of fleet.file, in their order, "
                f"{show(tuple(name))}, got {show(trace.name)}"
            )
        # A fleet has one source of rates: a trace, full-band rates, or distances.
        return fleet.replace(
            trace=trace,
            name=name,
            full_band_rate_bps=None,
            full_band_downlink_bps=None,
            distance_m=None,
            fading=1.0,
        )

    @property
    def element_bits(self) -> int:
        """Bits of each number that crosses a cut."""
        if self.plan.element_bits is None:
            return COMPRESSIONS[self.network.compression]
        return self.plan.element_bits

    def plan_arguments(self, method: str | None = None) -> dict[str, Any]:
        """Return the keyword arguments of `airsplit.plan`.

        Args:
            method: Method to use instead of the scenario's; options that it does not take are left
                out.
        """
        if method is None:
            method = self.plan.method
        left_out = set(foreign_options(method))
        # Arguments for the scenario's own method mean nothing to another.
        if method != self.plan.method:
            left_out.add("method_arguments")
        settings = {
            "optimizer_slots": self.training.optimizer_slots,
            "raw_inputs": self.model.raw_inputs,
        } | self.plan.settings()
        return {key: value for key, value in settings.items() if key not in left_out} | {
            "element_bits": self.element_bits,
            "batch_size": self.training.batch_size,
            "clock": self.make_clock(),
            "method": method,
        }


def require_named_code(
    scenario: Scenario, named: Collection[str], folder: str | os.PathLike[str]
) -> None:
    """Raise if a run folder's scenario names code by path that the user does not name.

    A run folder may come from somebody else, and code that it names could do anything.

    Args:
        named: The paths that the user names, on the command line or in a scenario of their own.
    """
    for key, path in scenario.code_paths().items():
        if path not in named:
            raise InvalidValue(
                f"{key} {path!r} is code that only the run folder {os.fspath(folder)!r} names, "
                f"so it is not imported; name it yourself (--set {key}={path}), or add --trust-run "
                "(in Python trust_run=True) if you trust the folder"
            )


def _missing_scenario(name: str) -> AirsplitError:
    """Return an error for a name that is neither a preset nor a file."""
    path = Path(name)
    # A bare word was meant as a preset, or was left without its suffix.
    if not path.suffix and len(path.parts) == 1:
        return unknown_name("preset or file", name, presets.list_presets())
    matches = difflib.get_close_matches(path.stem, presets.list_presets(), n=1, cutoff=0.5)
    hint = ""
    if matches:
        hint = f"; did you mean the preset {matches[0]!r}?"
    return FileProblem(f"scenario file {name!r} does not exist{hint}")


def _resolve_paths(tables: dict[str, Any], folder: Path) -> None:
    """Make paths absolute, so that they do not depend on the current folder."""
    for table, key in PATHS:
        section = tables.get(table)
        # Tables are not checked yet; one of a wrong type is rejected later.
        if isinstance(section, dict) and isinstance(section.get(key), str):
            section[key] = os.path.abspath(folder / section[key])


def _set_key(tables: dict[str, dict[str, Any]], dotted: str, value: Any) -> None:
    """Set a dotted key, which may reach into a table of arguments; None deletes it."""
    table, dot, key = dotted.partition(".")
    if table not in SECTIONS:
        raise unknown_key("", table)
    if not dot:
        example = min(SECTIONS[table].model_fields)
        raise InvalidValue(
            f"scenario key {table!r} must name a setting of its table, e.g. {table}.{example}"
        )
    name, deeper, argument = key.partition(".")
    if name not in SECTIONS[table].model_fields or (deeper and not name.endswith("arguments")):
        raise unknown_key(table, key)

    settings = tables[table]
    if deeper:
        settings = settings.setdefault(name, {})
        name = argument
    if value is None:
        settings.pop(name, None)
    else:
        settings[name] = value


def _format_toml(value: Any) -> str:
    r"""Return a value as TOML; floats keep every bit.

    >>> _format_toml({"width": 0.25, "a b": [True, "q\"\x7f"]})
    '{ width = 0.25, "a b" = [true, "q\\"\\u007f"] }'
    """
    # bool before other numbers: it is an int, and repr(True) is not TOML.
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        # JSON escapes all that TOML must have escaped, except for DEL.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, dict):
        if not value:
            return "{}"
        pairs: list[str] = []
        for key, entry in value.items():
            name = _format_toml(key)
            # Bare keys are ASCII; isalnum() alone would let other letters pass.
            if key.isascii() and key and all(c.isalnum() or c in "-_" for c in key):
                name = key
            pairs.append(f"{name} = {_format_toml(entry)}")
        return "{ " + ", ".join(pairs) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_format_toml(entry) for entry in value) + "]"
    # repr gives the shortest text that reads as the same float.
    return repr(value)
