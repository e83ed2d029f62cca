"""Where in the model's code something happens: file and line, for errors and explanations."""

from __future__ import annotations

import linecache
import os
import sys
import traceback
from typing import Any

import torch

Location = tuple[str, int]
"""File and line."""

_TORCH = os.path.dirname(torch.__file__)
_MODELS = os.path.dirname(os.path.dirname(__file__))
_OURS = tuple(
    os.path.join(_MODELS, name)
    for name in ("tracing", "costs.py", "cut.py", "data_flow.py", "profiling.py", "splits.py")
)
_NOT_THE_MODEL = (_TORCH, *_OURS, "<")
_KERNELS = tuple(
    os.path.join(_TORCH, part)
    for part in ("_refs", "_prims", "_decomp", "_meta_registrations", "_library", "_inductor")
)


def current_location() -> Location:
    """The line of the model's code that is running."""
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_NOT_THE_MODEL):
        frame = frame.f_back
    return ("", 0) if frame is None else (frame.f_code.co_filename, frame.f_lineno)


def describe_current_location() -> str:
    """The same in words, with the line itself."""
    return format_location(current_location())


def is_in_kernel() -> bool:
    """Whether torch, not the model, is running: the code by which it infers the shape of a result."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(_KERNELS):
            return True
        if not file.startswith(_NOT_THE_MODEL):
            return False
        frame = frame.f_back
    return False


def locate_error(error: BaseException) -> Location | None:
    """The innermost line of the model's code that an error came through."""
    frames = reversed(traceback.extract_tb(error.__traceback__))
    return next(
        ((f.filename, f.lineno or 0) for f in frames if not f.filename.startswith(_NOT_THE_MODEL)),
        None,
    )


def format_location(place: Location | None) -> str:
    """
    >>> format_location(("net.py", 12))
    'net.py:12'
    """
    file, number = place or ("", 0)
    line = linecache.getline(file, number).strip()
    return (f"{os.path.basename(file)}:{number}" if file else "a place without source") + (
        f" ({line})" if line else ""
    )


def first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
