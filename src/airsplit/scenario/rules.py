"""Rules of settings that only scenarios have, and the types that carry them."""

from __future__ import annotations

import math
import re
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainValidator

from airsplit.core.declared_settings import CODE_PATH, Rule, flag, whole_number
from airsplit.core.errors import InvalidValue, show
from airsplit.core.parsing import LARGEST_INTEGER, SMALLEST_INTEGER
from airsplit.core.plugins import require_choice_or_path
from airsplit.system.inputs import InputSpec, parse_input_spec, require_shape
from airsplit.system.profile import require_raw_inputs


def as_tuple(value: Any) -> Any:
    """Return a list as a tuple, and any other value unchanged.

    TOML has lists, but frozen settings hold tuples.
    """
    if isinstance(value, list):
        return tuple(value)
    return value


def is_split(value: object) -> bool:
    """Return whether a value may be a split; the planner knows which splits the model has.

    >>> is_split("pool1"), is_split(4), is_split(0), is_split(True)
    (True, True, False, False)
    """
    if isinstance(value, str):
        return value != ""
    # bool is an int: True would pass for split 1.
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def require_split(field: str, value: object) -> None:
    """Raise unless a value may be a split."""
    if not is_split(value):
        raise InvalidValue(f"{field} must be {ONE_SPLIT.words}, got {show(value)}")


def require_splits(field: str, value: object) -> None:
    """Raise unless a value may be a split, or a tuple of splits."""
    splits = (value,)
    if isinstance(value, tuple):
        splits = value
    if not splits:
        raise InvalidValue(f"{field} must have one split for each device, got an empty list")
    if not all(map(is_split, splits)):
        raise InvalidValue(f"{field} must be {SPLITS.words}, got {show(value)}")


def require_input_shape(field: str, value: tuple[int, ...]) -> None:
    """Raise unless a value is the shape of a sample."""
    if not value:
        raise InvalidValue(
            f"{field} must be the shape of one sample, without the batch axis; write e.g. "
            'input_shape = [3, 32, 32], or inputs = ["3x32x32", "77:int64"] for several inputs'
        )
    require_shape(field, value)


def require_inputs(field: str, value: tuple[str, ...]) -> None:
    """Raise unless every text describes an input of a model."""
    if not value:
        raise InvalidValue(
            f"{field} must have a text for each input, got an empty list; "
            'write e.g. ["3x32x32", "77:int64"]'
        )
    parse_inputs(field, value)


def parse_inputs(field: str, texts: tuple[str, ...]) -> tuple[InputSpec, ...]:
    """Return the inputs that texts such as "77:int64" describe."""
    return tuple(parse_input_spec(text, f"{field}[{at}]") for at, text in enumerate(texts))


def require_training_device(field: str, value: str) -> None:
    """Raise unless a value names a device, whether or not this machine has it."""
    # The machine that plans may not be the one that trains, so torch is not asked.
    if not re.fullmatch(r"cpu|cuda(:(0|[1-9][0-9]?))?", value):
        raise InvalidValue(
            f'{field} must be "cpu", "cuda" or one GPU, such as "cuda:0", got {show(value)}'
        )


def require_plain(field: str, value: object) -> None:
    """Raise unless a value is a number, text, truth value, or a list or table of them.

    TOML also has dates and numbers that are not finite; JSON, in which plans are stored, has not.
    """
    if isinstance(value, list | tuple):
        for index, entry in enumerate(value):
            require_plain(f"{field}[{index}]", entry)
    elif isinstance(value, dict):
        for key, entry in value.items():
            require_plain(f"{field}.{key}", entry)
    # A bool is an int as well, and within these limits.
    elif isinstance(value, int) and not SMALLEST_INTEGER <= value <= LARGEST_INTEGER:
        raise InvalidValue(f"{field} must be an integer of at most 64 bits, got {show(value)}")
    elif not isinstance(value, str | int | float) or (
        isinstance(value, float) and not math.isfinite(value)
    ):
        raise InvalidValue(
            f"{field} must be a finite number, text, true or false, or a list or table of them, "
            f"got {show(value)}"
        )


# Rules of single settings. Files and fingerprints are checked when they are used.
ONE_SPLIT = Rule("a split's number, from 1, or its name", require_split)
SPLITS = Rule(f"{ONE_SPLIT.words}, or a list with one for each device", require_splits)
MODEL_NAME = Rule(f"name of a built-in model, or {CODE_PATH}", require_choice_or_path)
SHAPE = Rule("list of whole numbers", require_input_shape)
INPUTS = Rule("list of texts", require_inputs)
FILE = Rule("path, relative to the scenario's file")
FINGERPRINT = Rule("16 hexadecimal digits")
POLICY = Rule('"refuse", "allow", or a list of names', require_raw_inputs)
TRAINING_DEVICE = Rule('"cpu", "cuda", or one GPU, e.g. "cuda:1"', require_training_device)
ARGUMENTS = Rule("table", require_plain)

# PlainValidator replaces pydantic's own check: of a union it would report every member, but the
# rule has one clear message. BeforeValidator keeps it.
Split = int | str
OneSplit = Annotated[Split, PlainValidator(as_tuple), ONE_SPLIT]
Splits = Annotated[Split | tuple[Split, ...] | None, PlainValidator(as_tuple), SPLITS]
Pace = Annotated[float | tuple[float, float] | None, PlainValidator(as_tuple)]
Flag = Annotated[bool, flag()]
Count = Annotated[int, whole_number(low=1)]
OptionalCount = Annotated[int | None, whole_number(low=1)]
Shape = Annotated[tuple[int, ...] | None, BeforeValidator(as_tuple), SHAPE]
Texts = Annotated[tuple[str, ...] | None, BeforeValidator(as_tuple), INPUTS]
Policy = Annotated[str | tuple[str, ...], PlainValidator(as_tuple), POLICY]
File = Annotated[str | None, FILE]

# Keyword arguments for code by path, or for a model's factory.
Arguments = Annotated[dict[str, Any], ARGUMENTS]
