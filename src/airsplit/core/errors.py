"""The package's errors, and checks of input values that raise them.

    AirsplitError
    ├── InvalidValue (also a ValueError)   a number, name or length breaks a rule
    │   ├── UnknownName                    nothing of that name exists
    │   └── UserCodeError                  code that the user named raised an exception
    ├── FileProblem                        a file is missing, truncated or malformed
    ├── Infeasible                         the input is valid, but no plan satisfies it
    └── Diverged                           training produced a number that is not finite

Every message names the field, the value, the rule and, if there is one, the way out.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection
from typing import Any

import numpy as np

from airsplit.core.arrays import Floats


class AirsplitError(Exception):
    """Base class of every error that the package raises on purpose."""


class InvalidValue(AirsplitError, ValueError):
    """A value breaks the rule of its field."""


class UnknownName(InvalidValue):
    """Nothing of that name exists."""


class UserCodeError(InvalidValue):
    """Code that the user named raised an exception, kept as `__cause__`."""


class FileProblem(AirsplitError):
    """A file is missing, truncated or malformed."""


class Infeasible(AirsplitError):
    """No plan satisfies the given limits."""


class Diverged(AirsplitError):
    """Training produced a number that is not finite."""


def show(value: object) -> str:
    """Format a value for an error message: one line of at most 60 characters.

    >>> show(np.float64(1.5)), show("two\\nlines")
    ('1.5', "'two\\\\nlines'")
    """
    if isinstance(value, np.generic):
        value = value.item()

    try:
        text = " ".join(repr(value).split())
    except Exception:
        # The repr of a user's class may fail; the message must not.
        text = f"<{type(value).__name__}>"
    if len(text) > 60:
        text = text[:57] + "..."
    return text


def unknown_name(field: str, value: object, known: Collection[str]) -> UnknownName:
    """Return an error that suggests the nearest known name and lists all of them."""
    # Names are short: the default cutoff of 0.6 would allow only one wrong letter of four.
    matches = difflib.get_close_matches(str(value), known, n=1, cutoff=0.5)
    hint = "."
    if matches:
        hint = f"; did you mean {matches[0]!r}?"
    return UnknownName(
        f"{field} {show(value)} is not known{hint} Known: {', '.join(sorted(known))}"
    )


def require_choice(field: str, value: object, known: Collection[str]) -> str:
    """Return a value that is one of the known names.

    >>> require_choice("clock.barrier", "round", ("iteration", "round"))
    'round'
    """
    if isinstance(value, str) and value in known:
        return value
    raise unknown_name(field, value, known)


def require_integer(
    field: str, value: object, low: int, high: int | None = None, hint: str = ""
) -> int:
    """Return a value that is an integer within its range; True and 3.0 are not integers.

    >>> require_integer("training.batch_size", 32, low=1)
    32
    """
    # bool is a subclass of int, but a flag in place of a count is a mistake.
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        number = int(value)
        if number >= low and (high is None or number <= high):
            return number

    rule = f"a whole number >= {low}"
    if high is not None:
        rule = f"a whole number from {low} to {high}"
    raise InvalidValue(f"{field} must be {rule}, got {show(value)}{hint}")


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
    """Return a value that is one finite number within its range.

    Args:
        above: Exclusive lower limit.
        low: Inclusive lower limit.
        high: Inclusive upper limit.
        below: Exclusive upper limit.
        hint: Way out, appended to the message: "; leave it out".

    >>> require_number("cell.bandwidth_hz", 20e6, above=0)
    20000000.0
    """
    # require_numbers would name the first bad entry of a list; the mistake is the list itself.
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
    """Return finite numbers within their range, as a read-only array of the same shape.

    Takes the limits of `require_number`. The message names the first entry that breaks the rule.

    >>> require_numbers("noise_w", [1e-9, -1e-9], above=0)
    Traceback (most recent call last):
    ...
    airsplit.core.errors.InvalidValue: noise_w[1] must be a finite number > 0, got -1e-09
    """
    array = _as_floats(field, values, "a number or an array of numbers", hint)

    limits = (
        (above, np.less_equal),
        (low, np.less),
        (high, np.greater),
        (below, np.greater_equal),
    )
    # NaN breaks no limit, since every comparison with it is False.
    is_bad = ~np.isfinite(array)
    for limit, violates in limits:
        if limit is not None:
            is_bad |= violates(array, limit)

    if is_bad.any():
        index = tuple(int(i) for i in np.argwhere(is_bad)[0])
        entry = field + "".join(f"[{i}]" for i in index)
        rule = f"a finite number {format_range(above, low, high, below)}".rstrip()
        raise InvalidValue(f"{entry} must be {rule}, got {show(array[index])}{hint}")

    # Checked once: frozen objects hold this array, and nobody may write to it later.
    array.flags.writeable = False
    return array


def format_range(
    above: float | None, low: float | None, high: float | None, below: float | None
) -> str:
    """Return the limits of `require_number` in words; "" without any.

    >>> format_range(0, None, None, 1)
    '> 0 and < 1'
    """
    limits = {">": above, ">=": low, "<=": high, "<": below}
    return " and ".join(f"{sign} {limit:g}" for sign, limit in limits.items() if limit is not None)


def _as_floats(field: str, values: Any, rule: str, hint: str) -> Floats:
    """Return a copy of the values as floats; strings, bools and ragged rows are errors."""
    try:
        raw = np.asarray(values)
    except (TypeError, ValueError):
        # numpy refuses rows of different lengths; let the check below name the field.
        raw = np.asarray(None)
    # Integers and floats only: numpy would convert bools and digits in strings without a word.
    if raw.dtype.kind not in "iuf":
        raise InvalidValue(f"{field} must be {rule}, got {show(values)}{hint}")
    # astype copies, so that later writes to the caller's array change nothing here.
    return raw.astype(np.float64)
