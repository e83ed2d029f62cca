"""What can go wrong, and the checks that say so.

    AirsplitError
    ├── InvalidValue (also a ValueError)   a number, name or length breaks a rule
    │   ├── UnknownName                    … because nothing of that name exists
    │   └── UserCodeError                  code that the user named raised an exception: its __cause__
    ├── FileProblem                        a file is missing, cut short or not what it should be
    ├── Infeasible                         the input is sound, but no plan satisfies it
    └── Diverged                           training met a number that is not finite

Every message names the field, the value, the rule and, where there is one, the way out.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection
from typing import Any

import numpy as np

from airsplit.core.arrays import Floats


class AirsplitError(Exception):
    """The root of every error that the package raises on purpose."""


class InvalidValue(AirsplitError, ValueError):
    """A value breaks the rule of its field."""


class UnknownName(InvalidValue):
    """A name that nothing answers to."""


class UserCodeError(InvalidValue):
    """Code that the user named raised an exception, which is the cause of this one."""


class FileProblem(AirsplitError):
    """A file is missing, cut short or not what it should be."""


class Infeasible(AirsplitError):
    """No plan satisfies the limits that were given."""


class Diverged(AirsplitError):
    """Training met a number that is not finite."""


def show(value: object) -> str:
    """A value as an error prints it: short, on one line, numpy's wrappers off."""
    if isinstance(value, np.generic):
        value = value.item()
    try:
        text = " ".join(repr(value).split())
    except Exception:  # of a user's own class
        text = f"<{type(value).__name__}>"
    return text if len(text) <= 60 else text[:57] + "..."


def unknown_name(field: str, value: object, known: Collection[str]) -> UnknownName:
    """An error that offers the nearest known name."""
    near = difflib.get_close_matches(str(value), known, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    return UnknownName(
        f"{field} {show(value)} is not known{hint} Known: {', '.join(sorted(known))}"
    )


def require_choice(field: str, value: object, known: Collection[str]) -> str:
    """
    >>> require_choice("clock.barrier", "round", ("iteration", "round"))
    'round'
    """
    if isinstance(value, str) and value in known:
        return value
    raise unknown_name(field, value, known)


def require_integer(
    field: str, value: object, low: int, high: int | None = None, hint: str = ""
) -> int:
    """A whole number within its range; True and 3.5 are not whole numbers.

    >>> require_integer("training.batch_size", 32, low=1)
    32
    """
    rule = f"a whole number >= {low}" if high is None else f"a whole number from {low} to {high}"
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool | np.bool_)
    if not whole or int(value) < low or (high is not None and int(value) > high):  # type: ignore[call-overload]
        raise InvalidValue(f"{field} must be {rule}, got {show(value)}{hint}")
    return int(value)  # type: ignore[call-overload, no-any-return]


def require_number(
    field: str,
    value: object,
    *,
    above: float | None = None,
    low: float | None = None,
    high: float | None = None,
    below: float | None = None,
    hint: str = "",
) -> float:
    """One finite number within its range.

    >>> require_number("cell.bandwidth_hz", 20e6, above=0)
    20000000.0
    """
    if _as_floats(field, value, "a number", hint).ndim != 0:
        raise InvalidValue(f"{field} must be one number, got {show(value)}{hint}")
    return float(
        require_numbers(field, value, above=above, low=low, high=high, below=below, hint=hint)
    )


def require_numbers(
    field: str,
    values: Any,
    *,
    above: float | None = None,
    low: float | None = None,
    high: float | None = None,
    below: float | None = None,
    hint: str = "",
) -> Floats:
    """Finite numbers within their range, as a read-only array of the shape that was given.

    >>> require_numbers("fleet.seconds_per_mac", [1e-9, -1e-9], above=0)
    Traceback (most recent call last):
    ...
    airsplit.core.errors.InvalidValue: fleet.seconds_per_mac[1] must be a finite number > 0, got -1e-09
    """
    array = _as_floats(field, values, "a number or an array of numbers", hint)
    bad = ~np.isfinite(array)
    for limit, breaks in (
        (above, np.less_equal),
        (low, np.less),
        (high, np.greater),
        (below, np.greater_equal),
    ):
        if limit is not None:
            bad |= breaks(array, limit)
    if bad.any():
        at = tuple(int(i) for i in np.argwhere(bad)[0])
        where = field + "".join(f"[{i}]" for i in at)
        rule = f"a finite number{_range(above, low, high, below)}"
        raise InvalidValue(f"{where} must be {rule}, got {show(array[at])}{hint}")
    array.flags.writeable = False
    return array


def _as_floats(field: str, values: Any, rule: str, hint: str) -> Floats:
    try:
        raw = np.asarray(values)
    except (TypeError, ValueError):  # rows of different lengths
        raw = np.asarray(None)
    if raw.dtype.kind not in "iuf":
        raise InvalidValue(f"{field} must be {rule}, got {show(values)}{hint}")
    return raw.astype(np.float64)


def _range(above: float | None, low: float | None, high: float | None, below: float | None) -> str:
    """
    >>> _range(0, None, None, 1)
    ' > 0 and < 1'
    """
    parts = [
        f"{sign} {limit:g}"
        for sign, limit in ((">", above), (">=", low), ("<=", high), ("<", below))
        if limit is not None
    ]
    return " " + " and ".join(parts) if parts else ""
