"""Scenario: one tree of settings, as strict TOML."""

from __future__ import annotations

import copy
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
from airsplit.scenario.settings import (
    COMPRESSIONS,
    SECTIONS,
    CellSettings,
    ClockSettings,
    FleetSettings,
    ModelSettings,
    NetworkSettings,
    PlanSettings,
    Section,
    TrainingSettings,
    unknown_key,
)
from airsplit.system.cell import Cell
from airsplit.system.clock import Clock
from airsplit.system.fleet import Fleet
from airsplit.system.profile import Profile
from airsplit.system.traces import Trace

PATHS = (("model", "weights"), ("fleet", "file"), ("fleet", "trace"))
# What a run writes beside its scenario.toml; the first two stand beside no scenario of the user's own.
FILES_OF_A_RUN = ("rounds.jsonl", "changes.json", "plan.json", "checkpoint", "diverged.json")


class Scenario(Section):
    """Everything that a run needs to know.

    >>> scenario = Scenario.load("paper-alexnet").replace(**{"fleet.devices": 5, "plan.max_split": "pool2"})
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
        """A preset by its name, or a TOML file.

        trust_run   accept code by path ("package.module:name") from the scenario.toml of a run folder, which may be another's
        """
        name = os.fspath(path_or_preset)
        if name in presets.list_presets():
            return cls.from_toml(presets.preset(name))
        where, file = f"scenario file {name!r}", Path(name)
        with suppress(OSError):  # where it may not be looked for, reading it says why
            if not file.exists():
                raise _no_scenario(name)
        if file.suffix == ".csv":
            raise FileProblem(
                f'{where} must be TOML, got a CSV; a scenario names it under [fleet]: file = "{file.name}"'
            )
        text = read_text(file, what="scenario file", limit_bytes=1 << 26)
        try:
            loaded = cls.from_toml(text, folder=file.parent)
        except AirsplitError as error:
            raise type(error)(f"{where}: {error}") from None
        folder = run_folder_of(file)
        if folder is not None and not trust_run:
            require_named_code(loaded, (), folder)
        return loaded

    @classmethod
    def from_toml(cls, text: str, *, folder: str | os.PathLike[str] | None = None) -> Scenario:
        """Settings from TOML; the files that it names are looked for in `folder`, or where the program runs."""
        return cls(**_anchored(parse_toml(text), Path(folder or ".")))

    def to_toml(self) -> str:
        """Every setting that applies; `from_toml` gives an equal scenario back, to the last bit."""
        blocks = []
        for table, section in self.settings().items():
            lines = [
                f"{key} = {_toml(value)}"
                for key, value in section.settings().items()
                if value != {}
            ]
            blocks.append("\n".join([f"[{table}]", *lines]) + "\n")
        return "\n".join(blocks)

    def replace(self, **changes: Any) -> Scenario:
        """A variant: dotted keys, None for the default.

        What a change makes moot is dropped: with another method, the split that "fixed" took.
        """
        tables = {table: _given(section) for table, section in self.settings().items()}
        for dotted, value in changes.items():
            _put(tables, dotted, value)
        changed = {".".join(dotted.split(".")[:2]) for dotted in changes}
        for table, settings in tables.items():
            section = SECTIONS[table]
            for key in section.moot(settings) | section.unused_arguments(settings):
                if f"{table}.{key}" not in changed:
                    settings.pop(key, None)
        return Scenario(**_anchored(tables, Path()))

    def resolved(self, profile: Profile) -> Scenario:
        """The same, with everything that depends on the model written out: splits by their names, and the profile's fingerprint."""
        deepest = self.plan.max_split
        if deepest is None:
            deepest = profile.default_max_split(self.model.raw_inputs)
        splits = {"max_split": deepest, "min_split": self.plan.min_split, "split": self.plan.split}
        named = {
            f"plan.{key}": _named(profile, f"plan.{key}", split)
            for key, split in splits.items()
            if split is not None
        }
        return self.replace(**named, **{"model.fingerprint": profile.fingerprint})

    def require_model(self, profile: Profile) -> None:
        """Raise where the model is not the one that the scenario was written down for."""
        wanted = self.model.fingerprint
        if wanted is not None and wanted != profile.fingerprint:
            why = "the model, or the way it is counted, has changed since; leave the key out to take it as it is"
            raise InvalidValue(
                f"model.fingerprint must be that of the model, {profile.fingerprint}, got {wanted}: {why}"
            )

    def code_paths(self) -> dict[str, str]:
        """Return the settings that name code, "package.module:name", by their dotted keys."""
        return find_code_paths(
            {table: section.settings() for table, section in self.settings().items()}
        )

    def make_cell(self) -> Cell:
        return Cell(**self.cell.settings())

    def make_clock(self) -> Clock:
        """The clock, with the training's iterations per round."""
        return Clock(
            iterations_per_round=self.training.iterations_per_round, **self.clock.settings()
        )

    def make_fleet(self) -> Fleet:
        """The fleet: drawn or read, with the trace in place of its channels where there is one."""
        file, cell = self.fleet.file, self.make_cell()
        fleet = (
            Fleet.sample(cell=cell, **self.fleet.drawn())
            if file is None
            else Fleet.read(file, cell=cell)
        )
        return (
            fleet if self.fleet.trace is None else _with_trace(fleet, Trace.read(self.fleet.trace))
        )

    @property
    def element_bits(self) -> int:
        """Bits of each number that crosses a cut: as many as its compression leaves, unless the plan has another number."""
        return (
            COMPRESSIONS[self.network.compression]
            if self.plan.element_bits is None
            else self.plan.element_bits
        )

    def plan_arguments(self, method: str | None = None) -> dict[str, Any]:
        """The keyword arguments for airsplit.plan; for another method than the scenario's, only those that it takes."""
        wanted = self.plan.method if method is None else method
        others = foreign_options(wanted)
        chosen = {
            "optimizer_slots": self.training.optimizer_slots,
            "raw_inputs": self.model.raw_inputs,
        }
        chosen |= {key: value for key, value in self.plan.settings().items() if key not in others}
        if wanted != self.plan.method:
            del chosen["method_arguments"]
        always = {
            "element_bits": self.element_bits,
            "batch_size": self.training.batch_size,
            "clock": self.make_clock(),
        }
        return chosen | always | {"method": wanted}


def run_folder_of(path_or_preset: str | os.PathLike[str]) -> Path | None:
    """Return the run folder that this scenario lies in, under whatever name; None for a preset and for any other file."""
    name = os.fspath(path_or_preset)
    if name in presets.list_presets():
        return None
    file = Path(name).resolve()
    marks = FILES_OF_A_RUN if file.name == "scenario.toml" else FILES_OF_A_RUN[:2]
    return file.parent if any(os.path.lexists(file.parent / mark) for mark in marks) else None


def require_named_code(
    scenario: Scenario, named: Collection[str], folder: str | os.PathLike[str]
) -> None:
    """Refuse code by path that a file of a run folder names and the user does not.

    A run folder may come from somebody else, and code that it names could do anything.

    named   the paths that the user names, on the command line or in a scenario of their own
    """
    for key, path in scenario.code_paths().items():
        if path not in named:
            raise InvalidValue(
                f"{key} {path!r} is code that only the run folder {os.fspath(folder)!r} names, so it is not imported; "
                f"name it yourself (--set {key}={path}), or add --trust-run (in Python trust_run=True) if you trust the folder"
            )


def _named(
    profile: Profile, field: str, split: int | str | tuple[int | str, ...]
) -> str | list[str]:
    if isinstance(split, tuple):
        return [
            profile.names[profile.split_of(each, f"{field}[{k}]") - 1]
            for k, each in enumerate(split)
        ]
    return profile.names[profile.split_of(split, field) - 1]


def _no_scenario(name: str) -> AirsplitError:
    """Neither a preset nor a file: an error that offers the nearest preset."""
    path = Path(name)
    if not path.suffix and len(path.parts) == 1:
        return unknown_name("preset or file", name, presets.list_presets())
    near = difflib.get_close_matches(path.stem, presets.list_presets(), n=1, cutoff=0.5)
    hint = f"; did you mean the preset {near[0]!r}?" if near else ""
    return FileProblem(f"scenario file {name!r} does not exist{hint}")


def _anchored(tables: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The same tables with paths that hold wherever the program runs."""
    for table, key in PATHS:
        section = tables.get(table)
        if isinstance(section, dict) and isinstance(section.get(key), str):
            section[key] = os.path.abspath(folder / section[key])
    return tables


def _given(section: Section) -> dict[str, Any]:
    return {key: copy.deepcopy(getattr(section, key)) for key in section.model_fields_set}


def _put(tables: dict[str, dict[str, Any]], dotted: str, value: Any) -> None:
    """Set one dotted key."""
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
        settings, name = settings.setdefault(name, {}), argument
    if value is None:
        settings.pop(name, None)
    else:
        settings[name] = value


def _with_trace(fleet: Fleet, trace: Trace) -> Fleet:
    if fleet.name is not None and trace.name is not None and tuple(fleet.name) != tuple(trace.name):
        wanted, got = show(tuple(fleet.name)), show(trace.name)
        raise InvalidValue(
            f"fleet.trace must have the devices of fleet.file, in their order, {wanted}, got {got}"
        )
    measured = {
        "full_band_rate_bps": None,
        "full_band_downlink_bps": None,
        "distance_m": None,
        "fading": 1.0,
    }
    return fleet.replace(
        trace=trace, name=trace.name if fleet.name is None else fleet.name, **measured
    )


def _toml(value: Any) -> str:
    r"""A value as TOML, exactly: floats keep every bit.

    >>> _toml({"width": 0.25, "a b": [True, "q\"\x7f"]})
    '{ width = 0.25, "a b" = [true, "q\\"\\u007f"] }'
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, dict):
        pairs = (
            f"{key if _is_bare(key) else _toml(key)} = {_toml(entry)}"
            for key, entry in value.items()
        )
        return "{ " + ", ".join(pairs) + " }" if value else "{}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml(entry) for entry in value) + "]"
    return repr(value)


def _is_bare(key: str) -> bool:
    return key.isascii() and bool(key) and all(c.isalnum() or c in "-_" for c in key)
