"""Scenario: one tree of settings, as strict TOML.  Defaults of settings live in the fields here and nowhere else."""

from __future__ import annotations

import copy
import difflib
import json
import math
import os
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, ValidationError

from airsplit import presets
from airsplit.clock import Clock
from airsplit.errors import (
    AirsplitError,
    FileProblem,
    InvalidValue,
    UnknownName,
    require_choice,
    require_integer,
    require_number,
    show,
    unknown_name,
)
from airsplit.files import read_text
from airsplit.fleet import Cell, Fleet
from airsplit.planning.methods import METHODS
from airsplit.traces import Trace

ALGORITHMS = ("sfl", "fedavg", "split-learning", "splitfed-v1", "splitfed-v2")
DATASETS = ("digits", "mnist", "cifar10", "fashion-mnist")
LOSSES = ("cross-entropy",)
PARTITIONS = ("iid", "dirichlet", "shards", "given")
WEIGHTINGS = ("uniform", "samples")

# options that belong to one value of another setting
METHOD_OF = {"split": "fixed", "quantile": "expected-max", "device_quantile": "exact"}
PARTITION_OF = {"alpha": "dirichlet", "labels_per_device": "shards"}
DRAWN = ("devices", "mean_distance_m", "distance_spread", "seconds_per_mac", "fluctuation_ratio", "fading", "seed")
CHANNELS = ("mean_distance_m", "distance_spread", "fading")
PATHS = (("model", "weights"), ("fleet", "file"), ("fleet", "trace"))


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


Split = int | str
Splits = Annotated[Split | tuple[Split, ...] | None, PlainValidator(_tuple)]
Pace = Annotated[float | tuple[float, float] | None, PlainValidator(_tuple)]
Sizes = Annotated[tuple[int, ...] | None, BeforeValidator(_tuple)]


class Section(BaseModel):
    """One table of the TOML.  None is the same as leaving a key out; a setting that does not apply is None."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)
    table: ClassVar[str] = ""

    def __init__(self, /, **settings: Any) -> None:
        given = {key: value for key, value in settings.items() if value is not None}
        moot = self._require_keys(given)
        try:
            super().__init__(**given)
        except ValidationError as error:
            raise _in_words(error, self.table) from None
        for key in moot:
            object.__setattr__(self, key, None)
        self.check()

    def _require_keys(self, given: Mapping[str, Any]) -> dict[str, str]:
        """Raise where a key is unknown or does not apply; else those that do not apply."""
        moot = self.moot(given)
        for key, value in given.items():
            if key not in type(self).model_fields:
                raise _unknown_key(self.table, key)
            if key in moot:
                raise InvalidValue(f"{self.table}.{key} {moot[key]}, got {show(value)}")
        return moot

    @classmethod
    def moot(cls, given: Mapping[str, Any]) -> dict[str, str]:  # noqa: ARG003 - the tables that have such settings use it
        """The settings that do not apply beside those given, and why."""
        return {}

    def check(self) -> None:
        """Raise where a value breaks a rule."""

    def settings(self) -> dict[str, Any]:
        """Every setting that applies, by its name."""
        return {key: getattr(self, key) for key in type(self).model_fields if getattr(self, key) is not None}


class ModelSettings(Section):
    """What is trained: a built-in name or "package.module:factory", called with `arguments`."""

    table = "model"
    name: str
    input_shape: Sizes = None
    weights: str | None = None
    arguments: dict[str, Any] = Field(default_factory=dict)

    def check(self) -> None:
        _require_reference("model.name", self.name)
        for axis, size in enumerate(self.input_shape or ()):
            require_integer(f"model.input_shape[{axis}]", size, low=1)
        if self.input_shape == () or (self.input_shape is None and ":" in self.name):
            why = "the shape of one sample, without the batch axis"
            raise InvalidValue(f"model.input_shape must be {why}; write e.g. input_shape = [3, 32, 32]")
        for key, value in self.arguments.items():
            _require_plain(f"model.arguments.{key}", value)
        if "input_shape" in self.arguments:
            raise InvalidValue("model.arguments.input_shape has a key of its own; write model.input_shape instead")


class FleetSettings(Section):
    """Who takes part: drawn as in the paper, or read from `file`; `trace` replays measured rates instead."""

    table = "fleet"
    devices: int | None = 20
    mean_distance_m: float | None = 200.0
    distance_spread: float | None = 0.0
    seconds_per_mac: Pace = (0.2e-9, 1e-9)
    fluctuation_ratio: float | None = 2.0
    fading: bool | None = True
    seed: int | None = 0
    file: str | None = None
    trace: str | None = None

    @classmethod
    def moot(cls, given: Mapping[str, Any]) -> dict[str, str]:
        key, keys = ("file", DRAWN) if "file" in given else ("trace", CHANNELS) if "trace" in given else ("", ())
        return dict.fromkeys(keys, f"and fleet.{key} exclude each other; leave one out")

    def check(self) -> None:
        if self.file is None:
            require_integer("fleet.devices", self.devices, low=1, high=10**8)
            Fleet.sample(1, **{key: value for key, value in self.drawn().items() if key != "devices"})

    def drawn(self) -> dict[str, Any]:
        """The arguments of Fleet.sample."""
        return {key: value for key, value in self.settings().items() if key in DRAWN}


class CellSettings(Section):
    """The radio that the devices share: the fields of Cell."""

    table = "cell"
    bandwidth_hz: float = 20e6
    noise_dbm: float | None = -114.0
    noise_dbm_per_hz: float | None = None
    downlink_bandwidth_hz: float | None = None
    downlink_power_dbm: float = 30.0
    path_loss: str = "paper"
    carrier_hz: float = 2e9
    resource_blocks: int | None = None

    @classmethod
    def moot(cls, given: Mapping[str, Any]) -> dict[str, str]:
        pair = {"noise_dbm": "noise_dbm_per_hz", "noise_dbm_per_hz": "noise_dbm"}
        why = "and cell.{} exclude each other; leave one out"
        return {key: why.format(other) for key, other in pair.items() if other in given}

    def check(self) -> None:
        Cell(**self.settings())


class PlanSettings(Section):
    """The arguments of airsplit.plan."""

    table = "plan"
    method: str = "exact"
    max_split: Splits = None
    min_split: Annotated[Split, PlainValidator(_tuple)] = 1
    split: Splits = None
    element_bits: int = 32
    quantile: float | None = None
    device_quantile: float | None = None
    certify: bool = True
    seed: int = 0

    @classmethod
    def moot(cls, given: Mapping[str, Any]) -> dict[str, str]:
        return _options_of_others("plan.method", given.get("method", cls.model_fields["method"].default), METHOD_OF)

    def check(self) -> None:
        require_choice("plan.method", self.method, METHODS)
        if self.method == "fixed" and self.split is None:
            raise InvalidValue('plan.split must be given for method = "fixed", e.g. split = 4, "pool1" or [1, 3, 5, 6]')
        for key in ("max_split", "split"):
            if getattr(self, key) is not None:
                _require_splits(f"plan.{key}", getattr(self, key))
        _require_splits("plan.min_split", self.min_split, several=False)
        require_integer("plan.element_bits", self.element_bits, low=1, high=64)
        require_integer("plan.seed", self.seed, low=0)
        for key in ("quantile", "device_quantile"):
            if getattr(self, key) is not None:
                require_number(f"plan.{key}", getattr(self, key), above=0, below=1)


class ClockSettings(Section):
    """What an iteration is charged for: the fields of Clock, but for iterations_per_round, which [training] has."""

    table = "clock"
    barrier: str = "iteration"
    downlink: bool = False
    backward_macs_ratio: float = 0.0
    server_seconds_per_mac: float = 0.0
    server_parallel: int | None = None

    def check(self) -> None:
        Clock(**self.settings())


class TrainingSettings(Section):
    """How the model is trained, on what, and for how long."""

    table = "training"
    algorithm: str = "sfl"
    dataset: str = "digits"
    partition: str = "iid"
    alpha: float | None = 0.5
    labels_per_device: int | None = 2
    rounds: int = 20
    iterations_per_round: int = 5
    batch_size: int = 32
    learning_rate: float = 0.05
    loss: str = "cross-entropy"
    weighting: str = "uniform"
    seed: int = 0

    @classmethod
    def moot(cls, given: Mapping[str, Any]) -> dict[str, str]:
        partition = given.get("partition", cls.model_fields["partition"].default)
        return _options_of_others("training.partition", partition, PARTITION_OF)

    def check(self) -> None:
        require_choice("training.algorithm", self.algorithm, ALGORITHMS)
        require_choice("training.partition", self.partition, PARTITIONS)
        require_choice("training.weighting", self.weighting, WEIGHTINGS)
        _require_reference("training.dataset", self.dataset, DATASETS)
        _require_reference("training.loss", self.loss, LOSSES)
        if self.partition == "given" and ":" not in self.dataset:
            hint = "that returns one pair for each device; take another partition"
            raise InvalidValue(f'training.partition "given" needs a dataset factory, got {self.dataset!r}: one {hint}')
        for key, high in (("rounds", None), ("iterations_per_round", 10**6), ("batch_size", 10**9)):
            require_integer(f"training.{key}", getattr(self, key), low=1, high=high)
        require_integer("training.seed", self.seed, low=0)
        require_number("training.learning_rate", self.learning_rate, above=0)
        if self.alpha is not None:
            require_number("training.alpha", self.alpha, above=0)
        if self.labels_per_device is not None:
            require_integer("training.labels_per_device", self.labels_per_device, low=1)


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

    @classmethod
    def load(cls, path_or_preset: str | os.PathLike[str]) -> Scenario:
        """A preset by its name, or a TOML file."""
        name = os.fspath(path_or_preset)
        if name in presets.preset_names():
            return cls.from_toml(presets.preset(name))
        where, file = f"scenario file {name!r}", Path(name)
        if not file.exists():
            raise _no_scenario(name)
        text = read_text(file, what="scenario file", limit_bytes=1 << 26)
        try:
            return cls.from_toml(text, folder=file.parent)
        except AirsplitError as error:
            raise type(error)(f"{where}: {error}") from None

    @classmethod
    def from_toml(cls, text: str, *, folder: str | os.PathLike[str] | None = None) -> Scenario:
        """Settings from TOML; the files that it names are looked for in `folder`, or where the program runs."""
        try:
            tables = tomllib.loads(text)
        except (ValueError, RecursionError) as error:
            raise FileProblem(f"not valid TOML: {' '.join(str(error).split())}") from None
        return cls(**_anchored(tables, Path(folder or ".")))

    def to_toml(self) -> str:
        """Every setting that applies; `from_toml` gives an equal scenario back, to the last bit."""
        blocks = []
        for table, section in self.settings().items():
            lines = [f"{key} = {_toml(value)}" for key, value in section.settings().items() if value != {}]
            blocks.append("\n".join([f"[{table}]", *lines]) + "\n")
        return "\n".join(blocks)

    def replace(self, **changes: Any) -> Scenario:
        """A variant: dotted keys, None for the default.

        What a change makes moot is dropped: with another method, the split that "fixed" took.
        """
        tables = {table: _given(section) for table, section in self.settings().items()}
        for dotted, value in changes.items():
            _put(tables, dotted, value)
        for table, settings in tables.items():
            for key in _SECTIONS[table].moot(settings):
                if f"{table}.{key}" not in changes:
                    settings.pop(key, None)
        return Scenario(**_anchored(tables, Path()))

    def make_cell(self) -> Cell:
        return Cell(**self.cell.settings())

    def make_clock(self) -> Clock:
        """The clock, with the training's iterations per round."""
        return Clock(iterations_per_round=self.training.iterations_per_round, **self.clock.settings())

    def make_fleet(self) -> Fleet:
        """The fleet: drawn or read, with the trace in place of its channels where there is one."""
        file, cell = self.fleet.file, self.make_cell()
        fleet = Fleet.sample(cell=cell, **self.fleet.drawn()) if file is None else Fleet.read(file, cell=cell)
        return fleet if self.fleet.trace is None else _with_trace(fleet, Trace.read(self.fleet.trace))

    def plan_arguments(self, method: str | None = None) -> dict[str, Any]:
        """The keyword arguments for airsplit.plan; for another method than the scenario's, only those that it takes."""
        wanted = self.plan.method if method is None else method
        others = {key for key, owner in METHOD_OF.items() if owner != wanted}
        chosen = {key: value for key, value in self.plan.settings().items() if key not in others}
        return chosen | {"method": wanted, "batch_size": self.training.batch_size, "clock": self.make_clock()}


_SECTIONS: dict[str, type[Section]] = {
    section.table: section for section in (ModelSettings, FleetSettings, CellSettings, PlanSettings, ClockSettings, TrainingSettings)
}

_RULES = {
    "int_type": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "string_type": "text in quotes",
    "tuple_type": "a list",
    "dict_type": "a table, e.g. { width = 0.25 }",
}


def _in_words(error: ValidationError, table: str) -> AirsplitError:
    """The first of pydantic's complaints as one of ours."""
    first = min(error.errors(include_url=False), key=lambda e: e["type"] == "missing")
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, AirsplitError):
        return cause
    field = table + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
    field = field.removeprefix(".")
    if first["type"] == "missing":
        return InvalidValue('model.name must be given; write [model] and under it, e.g., name = "alexnet"')
    if first["type"] == "model_type":
        return InvalidValue(f"{field} must be a table, got {show(first['input'])}; write [{field}] and its keys under it")
    return InvalidValue(f"{field} must be {_RULES.get(first['type'], first['msg'])}, got {show(first['input'])}")


def _unknown_key(table: str, key: str) -> UnknownName:
    """An error that offers the nearest key, or the table to which the key belongs."""
    known: Collection[str] = _SECTIONS[table].model_fields if table else _SECTIONS
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    homes = [f"[{name}]" for name, section in _SECTIONS.items() if key in section.model_fields]
    hint = f"; did you mean {f'{table}.' if table else ''}{near[0]}?" if near else "."
    hint = f"; it belongs to {' or '.join(homes)}." if homes else hint
    name = f"{table}.{key}" if table else f"[{key}]"
    return UnknownName(f"{name} is not a setting{hint} {f'[{table}]' if table else 'A scenario'} takes {', '.join(sorted(known))}")


def _no_scenario(name: str) -> AirsplitError:
    """Neither a preset nor a file: an error that offers the nearest preset."""
    path = Path(name)
    if not path.suffix and len(path.parts) == 1:
        return unknown_name("preset or file", name, presets.preset_names())
    near = difflib.get_close_matches(path.stem, presets.preset_names(), n=1, cutoff=0.5)
    hint = f"; did you mean the preset {near[0]!r}?" if near else ""
    return FileProblem(f"scenario file {name!r} does not exist{hint}")


def _options_of_others(key: str, value: object, owners: Mapping[str, str]) -> dict[str, str]:
    why = 'belongs to {} = "{}", but that is {}; change one of them'
    return {option: why.format(key, owner, show(value)) for option, owner in owners.items() if owner != value}


def _require_reference(field: str, value: str, known: Collection[str] | None = None) -> None:
    """A known name, or "package.module:factory"."""
    module, colon, factory = value.partition(":")
    if colon and not all(part.isidentifier() for part in (*module.split("."), *factory.split("."))):
        raise InvalidValue(f'{field} must be a name or "package.module:factory", got {show(value)}')
    if not value:
        raise InvalidValue(f'{field} must be a name or "package.module:factory", got an empty text')
    if not colon and known is not None:
        require_choice(field, value, known)


def _require_splits(field: str, value: object, *, several: bool = True) -> None:
    """A split's number or name, or one for each device; whether the model has it is the planner's to say."""
    entries = value if several and isinstance(value, tuple) else (value,)
    for entry in entries:
        number = isinstance(entry, int) and not isinstance(entry, bool) and entry >= 1
        if not number and not (isinstance(entry, str) and entry):
            rule = "a split's number, from 1, or its name" + (", or a list with one for each device" if several else "")
            raise InvalidValue(f"{field} must be {rule}, got {show(value)}")
    if not entries:
        raise InvalidValue(f"{field} must have one split for each device, got an empty list")


def _require_plain(field: str, value: object) -> None:
    """What TOML can say, but for dates and for numbers that are not finite."""
    if isinstance(value, list | tuple):
        for index, entry in enumerate(value):
            _require_plain(f"{field}[{index}]", entry)
    elif isinstance(value, dict):
        for key, entry in value.items():
            _require_plain(f"{field}.{key}", entry)
    elif not isinstance(value, str | int | float) or (isinstance(value, float) and not math.isfinite(value)):
        raise InvalidValue(f"{field} must be a finite number, text, true or false, or a list or table of them, got {show(value)}")


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
    if table not in _SECTIONS:
        raise _unknown_key("", table)
    if not dot:
        example = min(_SECTIONS[table].model_fields)
        raise InvalidValue(f"scenario key {table!r} must name a setting of its table, e.g. {table}.{example}")
    name, deeper, argument = key.partition(".")
    if name not in _SECTIONS[table].model_fields or (deeper and name != "arguments"):
        raise _unknown_key(table, key)
    settings = tables[table]
    if deeper:
        settings, name = settings.setdefault("arguments", {}), argument
    if value is None:
        settings.pop(name, None)
    else:
        settings[name] = value


def _with_trace(fleet: Fleet, trace: Trace) -> Fleet:
    if fleet.name is not None and trace.name is not None and tuple(fleet.name) != tuple(trace.name):
        wanted, got = show(tuple(fleet.name)), show(trace.name)
        raise InvalidValue(f"fleet.trace must have the devices of fleet.file, in their order, {wanted}, got {got}")
    measured = {"full_band_rate_bps": None, "full_band_downlink_bps": None, "distance_m": None, "fading": 1.0}
    return fleet.replace(trace=trace, name=trace.name if fleet.name is None else fleet.name, **measured)


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
        pairs = (f"{key if _is_bare(key) else _toml(key)} = {_toml(entry)}" for key, entry in value.items())
        return "{ " + ", ".join(pairs) + " }" if value else "{}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml(entry) for entry in value) + "]"
    return repr(value)


def _is_bare(key: str) -> bool:
    return key.isascii() and bool(key) and all(c.isalnum() or c in "-_" for c in key)
