"""User code that a scenario names as "package.module:name"."""

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

_PACKAGE_FOLDER = os.path.dirname(os.path.dirname(__file__)) + os.sep
_STANDARD_LIBRARY = tuple(sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib"))
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")

# Called by user code or by this package, so a line in them is never where the mistake is.
_LIBRARIES = ("torch", "numpy")

_CALL_NOTE = "called at "


def require_choice_or_path(field: str, value: object, known: Collection[str] | None = None) -> str:
    """Return a value that is a known name or has the form "package.module:factory".

    Nothing is imported. If `known` is None, any name passes.

    >>> require_choice_or_path("training.dataset", "my.sensors:make", ("digits", "mnist"))
    'my.sensors:make'
    """
    has_colon = isinstance(value, str) and ":" in value
    is_any_name = known is None and value != "" and not has_colon
    if isinstance(value, str) and (is_any_name or is_code_path(value)):
        return value
    if known is None or value == "" or has_colon:
        shown = "an empty text"
        if value:
            shown = show(value)
        raise InvalidValue(f'{field} must be a name or "package.module:factory", got {shown}')

    if isinstance(value, str) and value not in known and "." in value:
        # Written as in Python, package.module.name, without the colon.
        module, _, name = value.rpartition(".")
        raise UnknownName(
            f"{field} {show(value)} is not known; write code as {module}:{name}. "
            f"Known: {', '.join(sorted(known))}"
        )
    return require_choice(field, value, known)


def is_code_path(value: object) -> bool:
    """Return whether a value names code, as "package.module:name" does.

    >>> is_code_path("os.path:join"), is_code_path("cuda:0"), is_code_path("77:int64")
    (True, False, False)
    """
    if not isinstance(value, str) or ":" not in value:
        return False
    return all(part.isidentifier() for side in value.split(":", 1) for part in side.split("."))


def find_code_paths(value: object, key: str = "") -> dict[str, str]:
    """Return all texts within a value that name code, by their dotted keys.

    >>> find_code_paths({"model": {"name": "nets:make", "arguments": {"heads": ["nets:small", 3]}}})
    {'model.name': 'nets:make', 'model.arguments.heads[0]': 'nets:small'}
    """
    paths: dict[str, str] = {}
    if isinstance(value, str) and is_code_path(value):
        paths[key] = value
    elif isinstance(value, Mapping):
        for name, entry in value.items():
            paths |= find_code_paths(entry, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list | tuple):
        for index, entry in enumerate(value):
            paths |= find_code_paths(entry, f"{key}[{index}]")
    return paths


def import_object(reference: str, what: str = "model") -> Any:
    """Import the object "package.module:name", from the current folder as well.

    Args:
        what: Purpose of the object, for errors.

    >>> import_object("math:pi")
    3.141592653589793
    """
    module_name, _, path = reference.partition(":")
    if not module_name or not path:
        raise InvalidValue(
            f"{what} must be a name or package.module:factory, got {show(reference)}"
        )

    imported = _import_module(module_name, f"{what} {reference!r}")
    for part in path.split("."):
        if not hasattr(imported, part):
            matches = difflib.get_close_matches(part, dir(imported), n=1)
            hint = ""
            if matches:
                hint = f"; did you mean {matches[0]!r}?"
            raise UnknownName(f"{what} {reference!r}: {module_name} has no {part!r}{hint}")
        imported = getattr(imported, part)
    return imported


def _import_module(name: str, what: str) -> Any:
    """Import a user's module; tell a module that is missing from one that fails."""
    # The path of an installed command begins with the folder of its script, not the current one.
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)

    try:
        return importlib.import_module(name)
    # SystemExit is not an Exception, but a script without a main guard may raise it.
    except (Exception, SystemExit) as error:
        # A missing dependency of the module raises ModuleNotFoundError as well, but names itself.
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is None or not f"{name}.".startswith(f"{missing}."):
            raise UserCodeError(f"{what} cannot be imported: {_error_with_place(error)}") from error

        module_files = [file.stem for file in Path.cwd().glob("*.py")]
        matches = difflib.get_close_matches(missing, module_files, n=1)
        hint = "is it installed, or in this folder?"
        if matches:
            hint = f"did you mean {matches[0]!r}?"
        raise InvalidValue(f"{what} cannot be imported: {error_line(error)}; {hint}") from None


def import_factory(
    reference: str, what: str = "model", result: str = "a model"
) -> Callable[..., Any]:
    """Import a function or class; what it raises when called becomes a UserCodeError.

    Args:
        what: Purpose of the function, for errors.
        result: What it should return, for errors.

    >>> import_factory("math:sqrt")(9.0)
    3.0
    """
    factory = import_object(reference, what)
    if not callable(factory):
        raise InvalidValue(
            f"{what} {reference!r} must be a function or class that returns {result}, "
            f"got {show(factory)}"
        )
    return wrap_user_code(factory, f"{what} {reference!r}")


def wrap_user_code(function: Callable[..., Any], what: str) -> Callable[..., Any]:
    """Wrap a user's function so that what it raises becomes a UserCodeError.

    Args:
        function: A function or class.
        what: Its purpose and name, for errors: "training.loss 'mine:loss'".

    >>> wrap_user_code(lambda x: 1 / x, "training.loss 'mine:loss'")(4.0)
    0.25
    """
    # With wrong arguments a call fails before its first line, and leaves no frame in user code.
    code = getattr(inspect.unwrap(function), "__code__", None)
    begins_at = ""
    if code is not None:
        begins_at = _format_place(code.co_filename, code.co_firstlineno)

    # updated=(): a class's attributes are not the wrapper's.
    @functools.wraps(function, updated=())
    def call(*args: Any, **kwargs: Any) -> Any:
        with user_code(what, begins_at=begins_at):
            return function(*args, **kwargs)

    # Callers choose arguments by the signature; some builtins have none.
    with suppress(TypeError, ValueError):
        vars(call)["__signature__"] = inspect.signature(function, follow_wrapped=False)
    return call


@contextmanager
def user_code(
    what: str, *, at: str = "", begins_at: str = "", passing: tuple[type[BaseException], ...] = ()
) -> Iterator[None]:
    """Turn exceptions of user code into a UserCodeError of one line, with file and line.

    Errors of this package pass unchanged, except that `at` is added to a UserCodeError.

    Args:
        what: The code that runs: "the model or the loss".
        at: The step it runs in: "training stopped at device 3, round 1, iteration 2".
        begins_at: Where the code begins, for a call that fails before its first line.
        passing: Other exceptions that pass unchanged.
    """
    prefix = f"{at}: " if at else ""
    try:
        yield
    except passing:
        raise
    except UserCodeError as error:
        # The cause is the user's exception, not the error that this one replaces.
        raise UserCodeError(f"{prefix}{error}") from error.__cause__
    except AirsplitError:
        raise
    except (Exception, SystemExit) as error:
        raise UserCodeError(
            f"{prefix}{what} failed: {_error_with_place(error, begins_at)}"
        ) from error


def locate_in_user_code(error: BaseException) -> str:
    """Return "file:line" of the deepest frame in user code; "" if there is none."""
    # A module with a syntax error never runs, so no frame of the traceback is in it.
    if isinstance(error, SyntaxError) and error.filename and not error.filename.startswith("<"):
        return _format_place(error.filename, error.lineno or 1)

    places = [
        (frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    # Code from a string, such as a dataclass's methods, has a name in angle brackets and no file.
    places = [place for place in places if not place[0].startswith((_PACKAGE_FOLDER, "<"))]
    user_places = [
        (file, line)
        for file, line in places
        if not _find_package(file) and not file.startswith(_STANDARD_LIBRARY)
    ]
    if not user_places:
        # The user's code may be an installed package; then it is the outermost one.
        installed = [place for place in places if _find_package(place[0]) not in ("", *_LIBRARIES)]
        user_places = [
            place
            for place in installed
            if _find_package(place[0]) == _find_package(installed[0][0])
        ]
    if user_places:
        return _format_place(*user_places[-1])

    # A replayed graph has no frames of the user's code; its interpreter left a note instead.
    for note in getattr(error, "__notes__", ()):
        if note.startswith(_CALL_NOTE):
            return str(note.removeprefix(_CALL_NOTE))
    return ""


def note_place(error: BaseException, file: str, line: int) -> None:
    """Note on an exception the line of user code that it comes from, for when its frame is gone."""
    if file and not file.startswith(_PACKAGE_FOLDER):
        error.add_note(_CALL_NOTE + _format_place(file, line))


def _find_package(file: str) -> str:
    """Return the installed package that a file belongs to; "" if it is not installed.

    >>> _find_package("/usr/lib/python3/site-packages/torch/nn/modules/module.py")
    'torch'
    >>> _find_package("/home/me/losses.py")
    ''
    """
    for folder in _INSTALLED:
        _, separator, rest = file.rpartition(folder)
        if separator:
            return rest.partition(os.sep)[0]
    return ""


def _format_place(file: str, line: int) -> str:
    """Return "file:line", relative to the current folder if the file is in it."""
    current_folder = os.getcwd() + os.sep
    return f"{file.removeprefix(current_folder)}:{line}"


def _error_with_place(error: BaseException, default: str = "") -> str:
    place = locate_in_user_code(error) or default
    if not place:
        return error_line(error)
    return f"{error_line(error)} ({place})"


def error_line(error: BaseException) -> str:
    """Return the type and message of an exception, on one line.

    >>> error_line(ValueError("two\\nlines"))
    'ValueError: two lines'
    """
    try:
        if isinstance(error, SyntaxError):
            # Its text repeats the file and line, which callers add.
            message = str(error.msg)
        else:
            message = str(error)
    except Exception:
        # __str__ of a user's exception may fail as well.
        message = ""
    text = " ".join(message.split())
    if not text:
        return type(error).__name__
    return f"{type(error).__name__}: {text[:200]}"
