"""File and line of the user's model, for errors and explanations."""

from __future__ import annotations

import linecache
import os
import sys
import traceback
from typing import Any

import torch

# File and line.
Location = tuple[str, int]

_TORCH = os.path.dirname(torch.__file__)
_MODELS = os.path.dirname(os.path.dirname(__file__)) + os.sep
# A model of the zoo is a user's model, unlike the code around it that traces and cuts.
_ZOO = os.path.join(_MODELS, "zoo") + os.sep
# Torch runs Python of its own to infer the shape of a result.
_KERNELS = tuple(
    os.path.join(_TORCH, part)
    for part in ("_refs", "_prims", "_decomp", "_meta_registrations", "_library", "_inductor")
)


def current_location() -> Location:
    """Return the line of the model's code that is running."""
    frame: Any = sys._getframe(1)
    while frame is not None and not _is_user_code(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        return "", 0
    return frame.f_code.co_filename, frame.f_lineno


def describe_current_location() -> str:
    """Return the line of the model's code that is running as text."""
    return format_location(current_location())


def is_in_kernel() -> bool:
    """Return whether torch calls its own functions, to infer the shape of a result."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(_KERNELS):
            return True
        if _is_user_code(file):
            return False
        frame = frame.f_back
    return False


def locate_error(error: BaseException) -> Location | None:
    """Return the innermost line of the model's code that an error came through."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if _is_user_code(frame.filename):
            return frame.filename, frame.lineno or 0
    return None


def format_location(location: Location | None) -> str:
    """Return a location as text, with the source of the line if it is there.

    >>> format_location(("net.py", 12))
    'net.py:12'
    """
    file, number = location or ("", 0)
    if not file:
        return "a place without source"
    text = f"{os.path.basename(file)}:{number}"
    source = linecache.getline(file, number).strip()
    return f"{text} ({source})" if source else text


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or its type if it has none."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _is_user_code(file: str) -> bool:
    # "<string>" and the like: code that dataclasses and torch generate.
    if file.startswith((_TORCH, "<")):
        return False
    return file.startswith(_ZOO) or not file.startswith(_MODELS)
