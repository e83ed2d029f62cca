"""Pictures as files: PNG, SVG or PDF, by their names."""

from __future__ import annotations

import os
from pathlib import Path

from matplotlib.figure import Figure as Canvas

from airsplit.core.errors import InvalidValue
from airsplit.core.files import write_bytes
from airsplit.plots import style


def picture_format(path: str | os.PathLike[str]) -> str:
    """The kind of file that a name asks for; worth a call before anything slow.

    >>> picture_format("out/alexnet.SVG")
    'svg'
    """
    kind = Path(path).suffix.lower().removeprefix(".")
    if kind not in style.KINDS:
        raise InvalidValue(
            f"picture {str(path)!r} must end in .png, .svg or .pdf; give it a name such as 'profile.png'"
        )
    return kind


def save_picture(figure: Canvas, path: str | os.PathLike[str]) -> None:
    """Write a figure as PNG, SVG or PDF, whole or not at all; the same figure gives the same bytes."""
    kind = picture_format(path)
    with style.look():
        write_bytes(path, style.picture_bytes(figure, kind, style.DOTS_PER_INCH))
