"""What commands print: results on stdout, notes on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airsplit.core.errors import AirsplitError

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

USER_MISTAKE = 2
"""The exit code where a person must do something else."""


def note(text: object) -> None:
    """One line on stderr, without codes that a terminal would obey."""
    line = " ".join(str(text).split())
    print(
        "airsplit:",
        "".join(each if each.isprintable() else "?" for each in line),
        file=sys.stderr,
        flush=True,
    )


def print_parts(*parts: Any) -> None:
    """Tables and sentences, on stdout."""
    from airsplit.cli.render import screen

    console = screen()
    with console.capture() as captured:
        console.print(*parts, sep="\n")
    lines = captured.get().splitlines()
    print("\n".join(line.rstrip() for line in lines))


def save_plot(figure: Canvas, file: Path) -> None:
    """Write the picture of `--plot`, and say so."""
    from airsplit.plots.style import save_picture

    save_picture(figure, file)
    note(f"wrote {file}")


@contextmanager
def reports(folder: Path) -> Iterator[None]:
    """Write the report of every run in a folder when this block ends, however it ends.

    A page that cannot be written is no reason to lose a run, or to hide what stopped it.
    """
    from airsplit.report.page import write_report

    try:
        yield
    finally:
        for plan in (folder / "plan.json", *sorted(folder.glob("*/plan.json"))):
            if plan.exists():
                try:
                    write_report(plan.parent)
                except AirsplitError as error:
                    note(f"warning: there is no report: {error}")


def json_text(document: Any) -> str:
    """JSON with one line for each key, or for each entry of a list.

    >>> print(json_text({"splits": [1, 2], "gap": 0.5}))
    {
     "splits": [1, 2],
     "gap": 0.5
    }
    """
    if isinstance(document, list):
        return (
            "[\n " + ",\n ".join(json.dumps(entry, allow_nan=False) for entry in document) + "\n]"
        )
    pairs = (
        f"{json.dumps(key)}: {json.dumps(value, allow_nan=False)}"
        for key, value in document.items()
    )
    return "{\n " + ",\n ".join(pairs) + "\n}"
