"""Code that a person names: "package.module:name", wherever a scenario takes a name."""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from airsplit.errors import InvalidValue, UnknownName, require_choice, show


def require_choice_or_path(field: str, value: object, known: Collection[str] | None = None) -> str:
    """A known name, or "package.module:factory"; nothing is imported.

    >>> require_choice_or_path("training.dataset", "my.sensors:make", ("digits", "mnist"))
    'my.sensors:make'
    """
    if isinstance(value, str) and ":" in value:
        if is_code_path(value):
            return value
    elif known is not None and value != "":
        return require_choice(field, value, known)
    elif isinstance(value, str) and value:
        return value
    raise InvalidValue(f'{field} must be a name or "package.module:factory", got {show(value) if value else "an empty text"}')


def is_code_path(value: object) -> bool:
    """Return whether a value names code, as "package.module:name" does.

    >>> is_code_path("os.path:join"), is_code_path("cuda:0"), is_code_path("77:int64")
    (True, False, False)
    """
    if not isinstance(value, str) or ":" not in value:
        return False
    return all(part.isidentifier() for side in value.split(":", 1) for part in side.split("."))


def find_code_paths(value: object, key: str = "") -> dict[str, str]:
    """Return every text within a value that names code, by its dotted key.

    >>> find_code_paths({"model": {"name": "nets:make", "arguments": {"heads": ["nets:small", 3]}}})
    {'model.name': 'nets:make', 'model.arguments.heads[0]': 'nets:small'}
    """
    if isinstance(value, str):
        return {key: value} if is_code_path(value) else {}
    found: dict[str, str] = {}
    if isinstance(value, Mapping):
        for name, entry in value.items():
            found |= find_code_paths(entry, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list | tuple):
        for index, entry in enumerate(value):
            found |= find_code_paths(entry, f"{key}[{index}]")
    return found


def referenced(reference: str, what: str = "model") -> Any:
    """The object that "package.module:name" names; modules in the current folder are found too.

    what  says in an error what it is for

    >>> referenced("math:pi")
    3.141592653589793
    """
    module_name, _, path = reference.partition(":")
    if not module_name or not path:
        raise InvalidValue(f"{what} must be a name or package.module:factory, got {show(reference)}")
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        found: Any = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        raise InvalidValue(f"{what} {reference!r} cannot be imported: {error_line(error)}; is it installed, or in this folder?") from error
    for part in path.split("."):
        if not hasattr(found, part):
            near = difflib.get_close_matches(part, dir(found), n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise UnknownName(f"{what} {reference!r}: {module_name} has no {part!r}{hint}")
        found = getattr(found, part)
    return found


def factory(reference: str, what: str = "model", made: str = "a model") -> Callable[..., Any]:
    """The function or class that "package.module:factory" names.

    made  says in an error what it was to return

    >>> factory("math:sqrt")(9.0)
    3.0
    """
    found = referenced(reference, what)
    if not callable(found):
        raise InvalidValue(f"{what} {reference!r} must be a function or class that returns {made}, got {show(found)}")
    return found  # type: ignore[no-any-return]


def error_line(error: BaseException) -> str:
    """What went wrong in somebody else's code, in one line.

    >>> error_line(ValueError("two\\nlines"))
    'ValueError: two lines'
    """
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:200]}" if text else type(error).__name__
