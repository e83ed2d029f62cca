"""The tables of a scenario and their rules.  Defaults of settings live in the fields here and nowhere else."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Collection, Mapping
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, ValidationError

from airsplit.core.errors import (
    AirsplitError,
    InvalidValue,
    UnknownName,
    require_choice,
    require_integer,
    require_number,
    show,
)
from airsplit.core.parsing import LARGEST_INTEGER, SMALLEST_INTEGER
from airsplit.core.plugins import is_code_path, require_choice_or_path
from airsplit.planning.methods import DEFAULT_METHOD, METHODS, foreign_options
from airsplit.system.cell import Cell
from airsplit.system.clock import Clock
from airsplit.system.fleet import Fleet
from airsplit.system.inputs import DTYPES, InputSpec, parse_input_spec, require_shape
from airsplit.system.profile import require_raw_inputs

ALGORITHMS = ("sfl", "fedavg", "split-learning", "splitfed-v1", "splitfed-v2")
DATASETS = ("digits", "mnist", "cifar10", "fashion-mnist")
COMPRESSIONS = {"none": 32, "fp16": 16, "bf16": 16, "int8": 8}
"""Ways to send activations and gradients, and the bits of an element."""
LOSSES = ("cross-entropy",)
ACCURACY = "accuracy"
METRICS = (ACCURACY,)
GOALS = ("max", "min")
OPTIMIZERS = ("sgd", "adam")
PRECISIONS = ("fp32", "bf16")
PARTITIONS = ("iid", "dirichlet", "shards", "given")
WEIGHTINGS = ("uniform", "samples")

# options that belong to one value of another setting
PARTITION_OF = {"alpha": "dirichlet", "labels_per_device": "shards"}
ALGORITHM_OF = {"average_fronts_every": "sfl"}
OPTIMIZER_OF = {"momentum": "sgd"}
DRAWN = (
    "devices",
    "mean_distance_m",
    "distance_spread",
    "seconds_per_mac",
    "fluctuation_ratio",
    "fading",
    "joules_per_mac",
    "seed",
)
CHANNELS = ("mean_distance_m", "distance_spread", "fading", "redraw_fading")


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


Split = int | str
Splits = Annotated[Split | tuple[Split, ...] | None, PlainValidator(_tuple)]
Pace = Annotated[float | tuple[float, float] | None, PlainValidator(_tuple)]
Sizes = Annotated[tuple[int, ...] | None, BeforeValidator(_tuple)]
Texts = Annotated[tuple[str, ...] | None, BeforeValidator(_tuple)]


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
        for key in type(self).model_fields:
            if key.endswith("arguments"):
                require_plain(f"{self.table}.{key}", getattr(self, key))
        self.check()

    def _require_keys(self, given: Mapping[str, Any]) -> dict[str, str]:
        """Raise where a key is unknown or does not apply; else those that do not apply."""
        moot = self.moot(given) | self.unused_arguments(given)
        for key in given:
            if key not in type(self).model_fields:
                raise unknown_key(self.table, key)
        wrong = [key for key in given if key in moot]
        if wrong:
            others = [f"{self.table}.{key}" for key in wrong[1:] if moot[key] == moot[wrong[0]]]
            likewise = f"; likewise {', '.join(others)}" if others else ""
            raise InvalidValue(
                f"{self.table}.{wrong[0]} {moot[wrong[0]]}, got {show(given[wrong[0]])}{likewise}"
            )
        return moot

    @classmethod
    def moot(cls, given: Mapping[str, Any]) -> dict[str, str]:  # noqa: ARG003 - the tables that have such settings use it
        """The settings that do not apply beside those given, and why."""
        return {}

    @classmethod
    def unused_arguments(cls, given: Mapping[str, Any]) -> dict[str, str]:
        """Return the tables of arguments for something built in, which takes none, and why."""
        unused = {}
        for key in given:
            owner = key.removesuffix("_arguments")
            if owner == key or owner not in cls.model_fields or not given[key]:
                continue
            if not is_code_path(given.get(owner, cls.model_fields[owner].default)):
                unused[key] = _for_your_own(cls.table, owner)
        return unused

    def check(self) -> None:
        """Raise where a value breaks a rule."""

    def settings(self) -> dict[str, Any]:
        """Every setting that applies, by its name."""
        return {
            key: getattr(self, key)
            for key in type(self).model_fields
            if getattr(self, key) is not None
        }


class ModelSettings(Section):
    """What is trained: a built-in name or "package.module:factory", called with `arguments`."""

    table = "model"
    name: str
    input_shape: Sizes = None
    input_dtype: str | None = None
    inputs: Texts = None
    weights: str | None = None
    raw_inputs: Annotated[str | tuple[str, ...], PlainValidator(_tuple)] = "refuse"
    fingerprint: str | None = None
    arguments: dict[str, Any] = Field(default_factory=dict)

    @classmethod
    def moot(cls, given: Mapping[str, Any]) -> dict[str, str]:
        one = [key for key in ("input_shape", "input_dtype") if key in given]
        others = (
            dict.fromkeys(("input_shape", "input_dtype"), "inputs") if "inputs" in given else {}
        )
        others |= {"inputs": one[0]} if one else {}
        return {
            key: f"and model.{other} exclude each other; leave one out"
            for key, other in others.items()
        }

    def check(self) -> None:
        require_choice_or_path("model.name", self.name)
        require_raw_inputs("model.raw_inputs", self.raw_inputs)
        self._check_inputs()
        if "input_shape" in self.arguments and ":" not in self.name:
            raise InvalidValue(
                "model.arguments.input_shape has a key of its own; write model.input_shape instead"
            )

    def _check_inputs(self) -> None:
        if self.input_shape:
            require_shape("model.input_shape", self.input_shape)
        if self.input_shape == ():
            why = "the shape of one sample, without the batch axis"
            way = (
                'input_shape = [3, 32, 32], or inputs = ["3x32x32", "77:int64"] for several inputs'
            )
            raise InvalidValue(f"model.input_shape must be {why}; write e.g. {way}")
        if self.input_dtype is not None:
            require_choice("model.input_dtype", self.input_dtype, DTYPES)
            if self.input_shape is None:
                raise InvalidValue(
                    f"model.input_dtype needs model.input_shape beside it, got {self.input_dtype!r} alone; give both"
                )
        if self.inputs == ():
            raise InvalidValue(
                'model.inputs must have a text for each input, got an empty list; write e.g. ["3x32x32", "77:int64"]'
            )
        self.input_specs()

    def input_specs(self) -> tuple[InputSpec, ...] | None:
        """What the model takes, in the order of the arguments of forward; None for what it says itself, as built-in models do.

        >>> ModelSettings(name="a.b:make", inputs=["3x32x32", "77:int64"]).input_specs()
        (InputSpec(shape=(3, 32, 32), dtype=''), InputSpec(shape=(77,), dtype='int64'))
        """
        if self.inputs is not None:
            return tuple(
                parse_input_spec(text, f"model.inputs[{at}]") for at, text in enumerate(self.inputs)
            )
        return (
            None
            if self.input_shape is None
            else (InputSpec(self.input_shape, self.input_dtype or ""),)
        )


class FleetSettings(Section):
    """Who takes part: drawn as in the paper, or read from `file`; `trace` replays measured rates instead."""

    table = "fleet"
    devices: int | None = 20
    mean_distance_m: float | None = 200.0
    distance_spread: float | None = 0.0
    seconds_per_mac: Pace = (0.2e-9, 1e-9)
    fluctuation_ratio: float | None = 2.0
    fading: bool | None = True
    redraw_fading: bool | None = False
    joules_per_mac: float | None = None
    seed: int | None = 0
    file: str | None = None
    trace: str | None = None

    @classmethod
    def moot(cls, given: Mapping[str, Any]) -> dict[str, str]:
        key, keys = (
            ("file", DRAWN)
            if "file" in given
            else ("trace", CHANNELS)
            if "trace" in given
            else ("", ())
        )
        return dict.fromkeys(keys, f"and fleet.{key} exclude each other; leave one out")

    def check(self) -> None:
        if self.redraw_fading and (self.fading is False or self.trace is not None):
            other = "fading = false" if self.trace is None else "trace"
            raise InvalidValue(
                f"fleet.redraw_fading = true and fleet.{other} exclude each other; leave one out"
            )
        if self.file is None:
            require_integer("fleet.devices", self.devices, low=1, high=10**8)
            Fleet.sample(
                1, **{key: value for key, value in self.drawn().items() if key != "devices"}
            )

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
    path_loss_arguments: dict[str, Any] = Field(default_factory=dict)
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
    method: str = DEFAULT_METHOD
    method_arguments: dict[str, Any] = Field(default_factory=dict)
    max_split: Splits = None
    min_split: Annotated[Split, PlainValidator(_tuple)] = 1
    split: Splits = None
    element_bits: int | None = None
    quantile: float | None = None
    device_quantile: float | None = None
    certify: bool = True
    optimizer_slots: int | None = None
    seed: int = 0

    @classmethod
    def moot(cls, given: Mapping[str, Any]) -> dict[str, str]:
        method = given.get("method", cls.model_fields["method"].default)
        return _options_of_others("plan.method", method, foreign_options(str(method)))

    def check(self) -> None:
        require_choice_or_path("plan.method", self.method, METHODS)
        if self.method == "fixed" and self.split is None:
            raise InvalidValue(
                'plan.split must be given for method = "fixed", e.g. split = 4, "pool1" or [1, 3, 5, 6]'
            )
        for key in ("max_split", "split"):
            if getattr(self, key) is not None:
                _require_splits(f"plan.{key}", getattr(self, key))
        _require_splits("plan.min_split", self.min_split, several=False)
        if self.element_bits is not None:
            require_integer("plan.element_bits", self.element_bits, low=1, high=64)
        if self.optimizer_slots is not None:
            require_integer("plan.optimizer_slots", self.optimizer_slots, low=0, high=16)
        require_integer("plan.seed", self.seed, low=0)
        for key in ("quantile", "device_quantile"):
            if getattr(self, key) is not None:
                require_number(f"plan.{key}", getattr(self, key), above=0, below=1)


class ClockSettings(Section):
    """What an iteration is charged for: the fields of Clock, but for iterations_per_round, which [training] has."""

    table = "clock"
    barrier: str = "iteration"
    downlink: bool = False
    backward_macs_ratio: float | str = 0.0
    server_seconds_per_mac: float = 0.0
    server_parallel: int | None = None

    def check(self) -> None:
        Clock(**self.settings())


class TrainingSettings(Section):
    """How the model is trained, on what, and for how long."""

    table = "training"
    algorithm: str = "sfl"
    average_fronts_every: int | None = None
    dataset: str = "digits"
    partition: str = "iid"
    partition_arguments: dict[str, Any] = Field(default_factory=dict)
    alpha: float | None = 0.5
    labels_per_device: int | None = 2
    samples_per_device: int | None = None
    rounds: int = 20
    iterations_per_round: int = 5
    batch_size: int = 32
    learning_rate: float = 0.05
    optimizer: str = "sgd"
    momentum: float | None = 0.0
    weight_decay: float = 0.0
    loss: str = "cross-entropy"
    loss_arguments: dict[str, Any] = Field(default_factory=dict)
    metric: str = ACCURACY
    metric_arguments: dict[str, Any] = Field(default_factory=dict)
    metric_goal: str = "max"
    weighting: str = "uniform"
    participation: float = 1.0
    dropout_probability: float = 0.0
    replan_every: int | None = None
    evaluate_every: int = 1
    evaluate_devices: int | None = None
    evaluate_samples: int | None = None
    evaluate_all_at_end: bool = False
    checkpoint_every: int = 1
    checkpoints_kept: int = 2
    device: str = "cpu"
    precision: str = "fp32"
    compile: bool = False
    fast_paths: bool = True
    seed: int = 0

    @classmethod
    def moot(cls, given: Mapping[str, Any]) -> dict[str, str]:
        moot: dict[str, str] = {}
        for key, owners in (
            ("partition", PARTITION_OF),
            ("algorithm", ALGORITHM_OF),
            ("optimizer", OPTIMIZER_OF),
        ):
            moot |= _options_of_others(
                f"training.{key}", given.get(key, cls.model_fields[key].default), owners
            )
        partition = given.get("partition")
        if partition == "given" or is_code_path(partition):
            moot["samples_per_device"] = (
                f'does not go with training.partition = "{partition}", which says who holds what; '
                "leave it out"
            )
        if given.get("metric", ACCURACY) == ACCURACY and given.get("metric_goal", "max") != "max":
            moot["metric_goal"] = _for_your_own("training", "metric")
        return moot

    def check(self) -> None:
        require_choice_or_path("training.algorithm", self.algorithm, ALGORITHMS)
        require_choice_or_path("training.partition", self.partition, PARTITIONS)
        require_choice("training.weighting", self.weighting, WEIGHTINGS)
        require_choice("training.optimizer", self.optimizer, OPTIMIZERS)
        require_choice("training.precision", self.precision, PRECISIONS)
        if not re.fullmatch(r"cpu|cuda(:(0|[1-9][0-9]?))?", self.device):
            raise InvalidValue(
                f'training.device must be "cpu", "cuda" or one GPU, such as "cuda:0", got {show(self.device)}'
            )
        if self.compile and self.device == "cpu":
            raise InvalidValue(
                'training.compile needs training.device = "cuda": on a CPU there is nothing to compile; leave it out'
            )
        require_choice_or_path("training.dataset", self.dataset, DATASETS)
        require_choice_or_path("training.loss", self.loss, LOSSES)
        require_choice_or_path("training.metric", self.metric, METRICS)
        require_choice("training.metric_goal", self.metric_goal, GOALS)
        if self.partition == "given" and ":" not in self.dataset:
            hint = "that returns one pair for each device; take another partition"
            raise InvalidValue(
                f'training.partition "given" needs a dataset factory, got {self.dataset!r}: one {hint}'
            )
        self._check_numbers()

    def _check_numbers(self) -> None:
        for key, high in (("iterations_per_round", 10**6), ("batch_size", 10**9)):
            require_integer(f"training.{key}", getattr(self, key), low=1, high=high)
        counts = (
            "rounds",
            "labels_per_device",
            "samples_per_device",
            "average_fronts_every",
            "replan_every",
        )
        for key in (
            *counts,
            "evaluate_every",
            "evaluate_devices",
            "evaluate_samples",
            "checkpoint_every",
            "checkpoints_kept",
        ):
            if getattr(self, key) is not None:
                require_integer(f"training.{key}", getattr(self, key), low=1)
        require_integer("training.seed", self.seed, low=0)
        require_number("training.learning_rate", self.learning_rate, above=0)
        require_number("training.weight_decay", self.weight_decay, low=0)
        require_number("training.participation", self.participation, above=0, high=1)
        require_number("training.dropout_probability", self.dropout_probability, low=0, below=1)
        if self.momentum is not None:
            require_number("training.momentum", self.momentum, low=0, below=1)
        if self.alpha is not None:
            require_number("training.alpha", self.alpha, above=0)

    @property
    def optimizer_slots(self) -> int:
        """Numbers that the optimizer keeps for each trained parameter."""
        return 2 if self.optimizer == "adam" else int(bool(self.momentum))


class NetworkSettings(Section):
    """How messages are sent; and, over a real network, how the server plans and what it does about devices that are late or gone.

    measure          plan with what the devices measure when they join; false: with the fleet and clock of the scenario
    pacing           keep every device to its planned rate, up and down
    min_devices      a round needs so many, at its beginning and at its end
    deadline_factor, grace_s    a device is dropped from a round after so many times its planned time, and so many seconds;
                     after `longest_s` in any case
    replan           change splits and shares between rounds when that promises to save this part of the time: `replan_gain`
    memory_bytes     what the server may use; not given: what is free when it starts
    """

    table = "network"
    compression: str = "none"
    measure: bool = True
    pacing: bool = True
    min_devices: int = 1
    deadline_factor: float = 5.0
    grace_s: float = 30.0
    longest_s: float = 3600.0
    replan: bool = False
    replan_gain: float = 0.1
    memory_bytes: int | None = None

    def check(self) -> None:
        require_choice("network.compression", self.compression, COMPRESSIONS)
        require_integer("network.min_devices", self.min_devices, low=1)
        require_number("network.deadline_factor", self.deadline_factor, low=1)
        require_number("network.grace_s", self.grace_s, above=0)
        require_number("network.longest_s", self.longest_s, above=0)
        require_number("network.replan_gain", self.replan_gain, low=0, below=1)
        if self.memory_bytes is not None:
            require_integer("network.memory_bytes", self.memory_bytes, low=1)


SECTIONS: dict[str, type[Section]] = {
    section.table: section
    for section in (
        ModelSettings,
        FleetSettings,
        CellSettings,
        PlanSettings,
        ClockSettings,
        TrainingSettings,
        NetworkSettings,
    )
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
    # behind the key pydantic puts the entry of a list, or, where a setting may be of two types, the type that it tried
    field = f"{table}.{first['loc'][0]}".removeprefix(".") + "".join(
        f"[{part}]" for part in first["loc"][1:] if isinstance(part, int)
    )
    if first["type"] == "missing":
        return InvalidValue(
            'model.name must be given; write [model] and under it, e.g., name = "alexnet"'
        )
    if first["type"] == "model_type":
        return InvalidValue(
            f"{field} must be a table, got {show(first['input'])}; write [{field}] and its keys under it"
        )
    return InvalidValue(
        f"{field} must be {_RULES.get(first['type'], first['msg'])}, got {show(first['input'])}"
    )


def unknown_key(table: str, key: str) -> UnknownName:
    """An error that offers the nearest key, or the table to which the key belongs."""
    known: Collection[str] = SECTIONS[table].model_fields if table else SECTIONS
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    homes = [f"[{name}]" for name, section in SECTIONS.items() if key in section.model_fields]
    hint = f"; did you mean {f'{table}.' if table else ''}{near[0]}?" if near else "."
    hint = (
        f"; it belongs to {' or '.join(homes)}."
        if homes and not difflib.get_close_matches(key, near, cutoff=0.9)
        else hint
    )
    name = f"{table}.{key}" if table else f"[{key}]"
    return UnknownName(
        f"{name} is not a setting{hint} {f'[{table}]' if table else 'A scenario'} takes {', '.join(sorted(known))}"
    )


def _for_your_own(table: str, key: str) -> str:
    return (
        f"is for a {key.replace('_', ' ')} of your own, "
        f'{table}.{key} = "package.module:function"; leave it out'
    )


def _options_of_others(key: str, value: object, owners: Mapping[str, str]) -> dict[str, str]:
    why = 'belongs to {} = "{}", but that is {}; change one of them'
    return {
        option: why.format(key, owner, show(value))
        for option, owner in owners.items()
        if owner != value
    }


def _require_splits(field: str, value: object, *, several: bool = True) -> None:
    """A split's number or name, or one for each device; whether the model has it is the planner's to say."""
    entries = value if several and isinstance(value, tuple) else (value,)
    for entry in entries:
        number = isinstance(entry, int) and not isinstance(entry, bool) and entry >= 1
        if not number and not (isinstance(entry, str) and entry):
            rule = "a split's number, from 1, or its name" + (
                ", or a list with one for each device" if several else ""
            )
            raise InvalidValue(f"{field} must be {rule}, got {show(value)}")
    if not entries:
        raise InvalidValue(f"{field} must have one split for each device, got an empty list")


def require_plain(field: str, value: object) -> None:
    """What TOML can say, but for dates and for numbers that are not finite."""
    if isinstance(value, list | tuple):
        for index, entry in enumerate(value):
            require_plain(f"{field}[{index}]", entry)
    elif isinstance(value, dict):
        for key, entry in value.items():
            require_plain(f"{field}.{key}", entry)
    elif isinstance(value, int) and not SMALLEST_INTEGER <= value <= LARGEST_INTEGER:
        raise InvalidValue(f"{field} must be an integer of at most 64 bits, got {show(value)}")
    elif not isinstance(value, str | int | float) or (
        isinstance(value, float) and not math.isfinite(value)
    ):
        raise InvalidValue(
            f"{field} must be a finite number, text, true or false, or a list or table of them, got {show(value)}"
        )
