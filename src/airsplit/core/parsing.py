"""JSON and TOML from untrusted sources: bounded before parsing, and every failure a FileProblem.

The parsers' own checks are not enough. A few thousand brackets exhaust Python's stack, in the
parser or in code that walks the value later; an integer of a thousand digits overflows when it is
converted to a float; and Python reads 1e400 and NaN without complaint.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Iterable
from math import isinf
from typing import Any

from airsplit.core.errors import FileProblem, show
from airsplit.core.files import read_text

# Our files have at most six levels; the arguments of a user's factory may add a few.
MAX_DEPTH = 32

# 64-bit integers, signed and unsigned: other languages and numpy read no larger ones.
SMALLEST_INTEGER = -(1 << 63)
LARGEST_INTEGER = (1 << 64) - 1

# The possessive quantifiers (++, *+) never backtrack, and an unterminated string extends to the
# end of the text, so that matching takes a single pass over hostile text as well.
_JSON_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\Z)?'
_JSON_BRACKET = re.compile(rf"{_JSON_STRING}|[\[\]{{}}]", re.DOTALL)
_TOML_STRING = (
    r'"""(?:[^"\\]|\\.|"(?!""))*+(?:"""|\Z)?'
    r"|'''(?:[^']|'(?!''))*+(?:'''|\Z)?"
    r'|"(?:[^"\\\n]|\\.)*+"?'
    r"|'[^'\n]*+'?"
    r"|\#[^\n]*+"
)
_TOML_TOKEN = re.compile(rf"{_TOML_STRING}", re.DOTALL)
_TOML_DOTTED = re.compile(rf"(?<![\w-])(?:[\w-]++[ \t]*+\.[ \t]*+){{{MAX_DEPTH}}}")
# Beyond 4,300 digits int() raises an error that advises programmers, not users.
_TOML_DIGITS = re.compile(r"[0-9_]{1000}")


class _UnusableNumber(ValueError):
    """A number that is not finite, or an integer beyond 64 bits."""


def read_json(path: str | os.PathLike[str], *, what: str, limit_bytes: int = 1 << 30) -> Any:
    """Return the content of a JSON file; `what` names the kind of file in errors."""
    text = read_text(path, what=what, limit_bytes=limit_bytes)
    return parse_json(text, f"{what} {os.fspath(path)!r}")


def parse_json(text: str, where: str) -> Any:
    """Return the value of a JSON text.

    More than MAX_DEPTH levels, integers beyond 64 bits, NaN and infinities are errors, too.

    Args:
        where: Description of the text, for errors.

    >>> parse_json('{"splits": [1, 2], "gap": 0.5}', "plan")
    {'splits': [1, 2], 'gap': 0.5}
    """
    # Most texts have few brackets and need no closer look, which takes longer than counting.
    if text.count("[") + text.count("{") > MAX_DEPTH:
        depth = _depth(match.group() for match in _JSON_BRACKET.finditer(text))
        if depth > MAX_DEPTH:
            raise FileProblem(
                f"{where} is not JSON that can be used: nested deeper than {MAX_DEPTH} levels; "
                "was it damaged?"
            )

    try:
        return json.loads(
            text,
            parse_int=_parse_integer,
            parse_float=_parse_float,
            parse_constant=_reject_constant,
        )
    except _UnusableNumber as error:
        raise FileProblem(
            f"{where} is not JSON that can be used: {error}; was it damaged?"
        ) from None
    except ValueError as error:
        raise FileProblem(f"{where} is not JSON: {error}; was it cut short?") from None


def parse_toml(text: str, where: str = "") -> dict[str, Any]:
    """Return the tables of a TOML text, within the bounds of `parse_json`.

    Args:
        where: Description of the text, for errors.

    >>> parse_toml("[plan]\\nsplit = [1, 2]")
    {'plan': {'split': [1, 2]}}
    """
    prefix = f"{where}: " if where else ""
    too_deep = FileProblem(
        f"{prefix}not valid TOML: nested deeper than {MAX_DEPTH} levels; was it damaged?"
    )

    # Brackets, dots and digits inside strings and comments do not count.
    stripped = _TOML_TOKEN.sub("s", text)
    if _depth(re.findall(r"[\[\]{}]", stripped)) > MAX_DEPTH or _TOML_DOTTED.search(stripped):
        raise too_deep
    if _TOML_DIGITS.search(stripped):
        raise FileProblem(
            f"{prefix}not valid TOML: a number of more than 1,000 digits; was it damaged?"
        )

    try:
        tables = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        problem = " ".join(str(error).split())
        raise FileProblem(
            f"{prefix}not valid TOML: {problem}{_describe_line(text, error)}"
        ) from None

    # Headers, dotted keys and brackets can still add up, and integers may be hexadecimal, so the
    # parsed values are checked as well, level by level.
    level: list[Any] = [tables]
    for _ in range(MAX_DEPTH + 1):
        entries: list[Any] = []
        for value in level:
            if isinstance(value, int) and not SMALLEST_INTEGER <= value <= LARGEST_INTEGER:
                raise FileProblem(
                    f"{prefix}not valid TOML: an integer beyond 64 bits, {show(value)}; "
                    "was it damaged?"
                )
            if isinstance(value, dict):
                entries.extend(value.values())
            elif isinstance(value, list):
                entries.extend(value)
        if not entries:
            return tables
        level = entries
    raise too_deep


def _describe_line(text: str, error: Exception) -> str:
    """Return the line that an error of tomllib refers to, as the end of a message.

    >>> _describe_line("a = 1\\nname = mlp", ValueError("Invalid value (at line 2, column 8)"))
    ': name = mlp; text must be in quotes'
    """
    match = re.search(r"at line (\d+)", str(error))
    if match is None:
        return ""
    line = text.split("\n")[int(match[1]) - 1].strip()
    hint = ""
    # The most frequent mistake: name = mlp, a word without quotes.
    if re.fullmatch(r"[\w.\-]+\s*=\s*[A-Za-z_][^\"']*", line):
        hint = "; text must be in quotes"
    return f": {line[:60]}{hint}"


def _depth(tokens: Iterable[str]) -> int:
    """Return the deepest level of brackets among tokens."""
    depth = 0
    deepest = 0
    for token in tokens:
        if token in ("[", "{"):
            depth += 1
            deepest = max(deepest, depth)
        elif token in ("]", "}"):
            depth -= 1
    return deepest


def _parse_integer(digits: str) -> int:
    # A 64-bit integer has at most 20 characters; int() is slow, or fails, on much longer ones.
    if len(digits) <= 20:
        value = int(digits)
        if SMALLEST_INTEGER <= value <= LARGEST_INTEGER:
            return value
    raise _UnusableNumber(f"an integer beyond 64 bits, {show(digits)}")


def _parse_float(digits: str) -> float:
    value = float(digits)
    if isinf(value):
        raise _UnusableNumber(f"a number that is not finite, {show(digits)}")
    return value


def _reject_constant(constant: str) -> float:
    """Reject NaN and infinities, which are not JSON but which Python writes and reads."""
    raise _UnusableNumber(f"a number that is not finite, {constant}")
