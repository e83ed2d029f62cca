"""JSON and TOML that may be damaged or hostile: bounded before they are parsed, and every failure is one FileProblem.

A parser's own errors are not enough. A few thousand brackets exhaust Python's stack there or in whatever walks the value
later, an integer of a thousand digits overflows where it becomes a float, and Python reads 1e400 and NaN without complaint.
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

# No file of ours is nested more than six levels deep; arguments of a user's factory may be a little deeper.
MAX_DEPTH = 32

# What numpy and other languages can hold.
SMALLEST_INTEGER = -(1 << 63)
LARGEST_INTEGER = (1 << 64) - 1

# A string that does not end reaches to the end of the text, so that no text takes more than one pass.
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
# int() of more digits than this fails, with advice that is for programmers.
_TOML_DIGITS = re.compile(r"[0-9_]{1000}")


class _Unfit(ValueError):
    """A number that no reader of ours can use."""


def read_json(path: str | os.PathLike[str], *, what: str, limit_bytes: int = 1 << 30) -> Any:
    """Return the content of a JSON file; `what` says in an error which file was wanted."""
    return parse_json(
        read_text(path, what=what, limit_bytes=limit_bytes), f"{what} {os.fspath(path)!r}"
    )


def parse_json(text: str, where: str) -> Any:
    """Return what a JSON text says; `where` says in an error what it is.

    Refused are also more than MAX_DEPTH levels, integers beyond 64 bits, NaN and what overflows a float.

    >>> parse_json('{"splits": [1, 2], "gap": 0.5}', "plan")
    {'splits': [1, 2], 'gap': 0.5}
    """
    if _json_depth(text) > MAX_DEPTH:
        raise FileProblem(
            f"{where} is not JSON that can be used: nested deeper than {MAX_DEPTH} levels; was it damaged?"
        )
    try:
        value = json.loads(text, parse_constant=_refuse, parse_int=_integer, parse_float=_finite)
    except _Unfit as error:
        raise FileProblem(
            f"{where} is not JSON that can be used: {error}; was it damaged?"
        ) from None
    except ValueError as error:
        raise FileProblem(f"{where} is not JSON: {error}; was it cut short?") from None
    return value


def _wrong_line(text: str, error: Exception) -> str:
    """Return the line that an error of tomllib is about, as the end of a message.

    >>> _wrong_line("seed = 1\\nname = alexnet", ValueError("Invalid value (at line 2, column 8)"))
    ': name = alexnet; text must be in quotes'
    """
    found = re.search(r"at line (\d+)", str(error))
    if found is None:
        return ""
    line = text.split("\n")[int(found[1]) - 1].strip()
    is_bare = re.fullmatch(r"[\w.\-]+\s*=\s*[A-Za-z_][^\"']*", line) is not None
    return f": {line[:60]}{'; text must be in quotes' if is_bare else ''}"


def parse_toml(text: str, where: str = "") -> dict[str, Any]:
    """Return the tables of a TOML text; `where` says in an error what it is.

    >>> parse_toml("[plan]\\nsplit = [1, 2]")
    {'plan': {'split': [1, 2]}}
    """
    prefix = f"{where}: " if where else ""
    too_deep = FileProblem(
        f"{prefix}not valid TOML: nested deeper than {MAX_DEPTH} levels; was it damaged?"
    )
    bare = _TOML_TOKEN.sub("s", text)
    if _depth(re.findall(r"[\[\]{}]", bare)) > MAX_DEPTH or _TOML_DOTTED.search(bare):
        raise too_deep
    if _TOML_DIGITS.search(bare):
        raise FileProblem(
            f"{prefix}not valid TOML: a number of more than 1,000 digits; was it damaged?"
        )
    try:
        tables = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise FileProblem(
            f"{prefix}not valid TOML: {' '.join(str(error).split())}{_wrong_line(text, error)}"
        ) from None

    # Tables in tables can still add up, and integers may be hexadecimal.
    values: list[Any] = [tables]
    for _ in range(MAX_DEPTH + 1):
        for value in values:
            if isinstance(value, int) and not SMALLEST_INTEGER <= value <= LARGEST_INTEGER:
                raise FileProblem(
                    f"{prefix}not valid TOML: an integer beyond 64 bits, {show(value)}; was it damaged?"
                )
        values = [entry for value in values for entry in _entries(value)]
        if not values:
            return tables
    raise too_deep


def _json_depth(text: str) -> int:
    """Return how deep a JSON text is nested, or a number that is at least that and small."""
    brackets = text.count("[") + text.count("{")
    if brackets <= MAX_DEPTH:
        return brackets
    return _depth(match.group() for match in _JSON_BRACKET.finditer(text))


def _depth(tokens: Iterable[str]) -> int:
    """Return the deepest level that brackets reach; other tokens count for nothing."""
    depth = 0
    deepest = 0
    for token in tokens:
        if token in ("[", "{"):
            depth += 1
            deepest = max(deepest, depth)
        elif token in ("]", "}"):
            depth -= 1
    return deepest


def _entries(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _integer(digits: str) -> int:
    if len(digits) <= 20:
        value = int(digits)
        if SMALLEST_INTEGER <= value <= LARGEST_INTEGER:
            return value
    raise _Unfit(f"an integer beyond 64 bits, {show(digits)}")


def _finite(digits: str) -> float:
    value = float(digits)
    if isinf(value):
        raise _Unfit(f"a number that is not finite, {show(digits)}")
    return value


def _refuse(constant: str) -> float:
    raise _Unfit(f"a number that is not finite, {constant}")
