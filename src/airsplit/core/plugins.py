"""Code that a person names: "package.module:name", wherever a scenario takes a name."""

from __future__ import annotations

import difflib
import functools
import importlib
import inspect
import os
import sys
import sysconfig
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from airsplit.core.errors import (
    AirsplitError,
    InvalidValue,
    UnknownName,
    UserCodeError,
    require_choice,
    show,
)

_OURS = os.path.dirname(os.path.dirname(__file__)) + os.sep
_STANDARD_LIBRARY = tuple(sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib"))
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
# The user's code calls these, or we do: a line in them is not where to look.
_LIBRARIES = ("torch", "numpy")
_CALLED_AT = "called at "


def require_choice_or_path(field: str, value: object, known: Collection[str] | None = None) -> str:
    """A known name, or "package.module:factory"; nothing is imported.

    >>> require_choice_or_path("training.dataset", "my.sensors:make", ("digits", "mnist"))
    'my.sensors:make'
    """
    if isinstance(value, str) and ":" in value:
        if is_code_path(value):
            return value
    elif known is not None and value != "":
        if isinstance(value, str) and value not in known and "." in value:
            # "package.module.name", as Python itself would have it
            module, _, name = value.rpartition(".")
            raise UnknownName(
                f"{field} {show(value)} is not known; write code as {module}:{name}. Known: {', '.join(sorted(known))}"
            )
        return require_choice(field, value, known)
    elif isinstance(value, str) and value:
        return value
    raise InvalidValue(
        f'{field} must be a name or "package.module:factory", got {show(value) if value else "an empty text"}'
    )


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


def import_object(reference: str, what: str = "model") -> Any:
    """The object that "package.module:name" names; modules in the current folder are found too.

    what  says in an error what it is for

    >>> import_object("math:pi")
    3.141592653589793
    """
    module_name, _, path = reference.partition(":")
    if not module_name or not path:
        raise InvalidValue(
            f"{what} must be a name or package.module:factory, got {show(reference)}"
        )
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        found: Any = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(
            f"{error.name}."
        ):
            hint = _where_modules_are(str(error.name))
            raise InvalidValue(
                f"{what} {reference!r} cannot be imported: {error_line(error)}; {hint}"
            ) from None
        raise UserCodeError(
            f"{what} {reference!r} cannot be imported: {_with_place(error)}"
        ) from error
    for part in path.split("."):
        if not hasattr(found, part):
            near = difflib.get_close_matches(part, dir(found), n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise UnknownName(f"{what} {reference!r}: {module_name} has no {part!r}{hint}")
        found = getattr(found, part)
    return found


def _where_modules_are(missing: str) -> str:
    """Return a hint for a module that is not there."""
    near = difflib.get_close_matches(missing, [file.stem for file in Path.cwd().glob("*.py")], n=1)
    return f"did you mean {near[0]!r}?" if near else "is it installed, or in this folder?"


def import_factory(
    reference: str, what: str = "model", made: str = "a model"
) -> Callable[..., Any]:
    """The function or class that "package.module:factory" names; what it raises becomes a UserCodeError.

    made  says in an error what it was to return

    >>> import_factory("math:sqrt")(9.0)
    3.0
    """
    found = import_object(reference, what)
    if not callable(found):
        raise InvalidValue(
            f"{what} {reference!r} must be a function or class that returns {made}, got {show(found)}"
        )
    return wrap_user_code(found, f"{what} {reference!r}")


# ---- when the user's code fails ------------------------------------------------------------------------------------------------
def wrap_user_code(function: Callable[..., Any], what: str) -> Callable[..., Any]:
    """Return a user's function such that its exceptions become a UserCodeError.

    Args:
        function: A function or class.
        what: What it is, for the error: "training.loss 'mine:loss'".

    >>> wrap_user_code(lambda x: 1 / x, "training.loss 'mine:loss'")(4.0)
    0.25
    """
    begins_at = _definition(function)

    @functools.wraps(function, updated=())
    def call(*args: Any, **kwargs: Any) -> Any:
        with user_code(what, begins_at=begins_at):
            return function(*args, **kwargs)

    with suppress(TypeError, ValueError):  # a builtin may not say what it takes
        vars(call)["__signature__"] = inspect.signature(function, follow_wrapped=False)
    return call


@contextmanager
def user_code(
    what: str, *, at: str = "", begins_at: str = "", passing: tuple[type[BaseException], ...] = ()
) -> Iterator[None]:
    """Turn exceptions of the user's code into a UserCodeError of one line, with file and line.

    Errors of this package pass as they are; to a UserCodeError only `at` is added.

    Args:
        what: The code that runs: "the model or the loss".
        at: What it runs for: "training stopped at device 3, round 1, iteration 2".
        begins_at: Where the code begins, for a call that fails before its first line.
        passing: Further exceptions that pass as they are.
    """
    before = f"{at}: " if at else ""
    try:
        yield
    except passing:
        raise
    except UserCodeError as error:
        raise UserCodeError(f"{before}{error}") from error.__cause__
    except AirsplitError:
        raise
    except (Exception, SystemExit) as error:
        raise UserCodeError(f"{before}{what} failed: {_with_place(error, begins_at)}") from error


def locate_in_user_code(error: BaseException) -> str:
    """Return "file:line" of the deepest line of the user's own code that an error came through; "" if there is none."""
    if isinstance(error, SyntaxError) and error.filename and not error.filename.startswith("<"):
        return _place_text(error.filename, error.lineno or 1)
    frames = [
        (frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    frames = [(file, line) for file, line in frames if not file.startswith((_OURS, "<"))]
    own = [
        (file, line)
        for file, line in frames
        if not _package(file) and not file.startswith(_STANDARD_LIBRARY)
    ]
    if not own:
        # the user's code may be an installed package: then it is the first one that was called
        installed = [
            (file, line) for file, line in frames if _package(file) not in ("", *_LIBRARIES)
        ]
        own = [
            (file, line) for file, line in installed if _package(file) == _package(installed[0][0])
        ]
    if own:
        return _place_text(*own[-1])
    notes = [note for note in getattr(error, "__notes__", ()) if note.startswith(_CALLED_AT)]
    return notes[0].removeprefix(_CALLED_AT) if notes else ""


def note_place(error: BaseException, file: str, line: int) -> None:
    """Note on an exception which line of the user's code called what raised it, where no frame of that code is left."""
    if file and not file.startswith(_OURS):
        error.add_note(_CALLED_AT + _place_text(file, line))


def _package(file: str) -> str:
    """Return the installed package that a file belongs to; "" if it is not installed.

    >>> _package("/usr/lib/python3/site-packages/torch/nn/modules/module.py"), _package("/home/me/losses.py")
    ('torch', '')
    """
    for folder in _INSTALLED:
        _, found, rest = file.rpartition(folder)
        if found:
            return rest.partition(os.sep)[0]
    return ""


def _definition(function: Callable[..., Any]) -> str:
    """Return where a function begins: a call with the wrong arguments fails before its first line."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return "" if code is None else _place_text(code.co_filename, code.co_firstlineno)


def _place_text(file: str, line: int) -> str:
    """Return "file:line", relative to the current folder where the file is in it."""
    here = os.getcwd() + os.sep
    return f"{file.removeprefix(here)}:{line}"


def _with_place(error: BaseException, otherwise: str = "") -> str:
    place = locate_in_user_code(error) or otherwise
    return error_line(error) + (f" ({place})" if place else "")


def error_line(error: BaseException) -> str:
    """What went wrong in somebody else's code, in one line.

    >>> error_line(ValueError("two\\nlines"))
    'ValueError: two lines'
    """
    try:
        # a SyntaxError without its place, which is said beside it
        said = str(error.msg if isinstance(error, SyntaxError) else error)
    except Exception:  # an exception of the user's own may fail at this, too
        said = ""
    text = " ".join(said.split())
    return f"{type(error).__name__}: {text[:200]}" if text else type(error).__name__
