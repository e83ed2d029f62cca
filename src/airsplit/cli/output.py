"""Printing: results on stdout, notes on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airsplit.core.errors import AirsplitError
from airsplit.scenario.run_files import PLAN_FILE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Exit code if the user must change something.
USER_MISTAKE = 2


def note(text: object) -> None:
    """Print one line on stderr, without control characters that a terminal would obey."""
    line = " ".join(str(text).split())
    printable = "".join(letter if letter.isprintable() else "?" for letter in line)
    print("airsplit:", printable, file=sys.stderr, flush=True)


def print_parts(*parts: Any) -> None:
    """Print tables and sentences on stdout."""
    from airsplit.cli.tables import make_console

    # Print in one piece, after rendering: an error while rendering leaves stdout empty.
    console = make_console()
    with console.capture() as capture:
        console.print(*parts, sep="\n")

    # rich pads table cells; trailing blanks are noise in a log and in a diff.
    lines = capture.get().splitlines()
    print("\n".join(line.rstrip() for line in lines))


def save_plot(figure: Figure, file: Path) -> None:
    """Write the plot of `--plot`, with a note."""
    from airsplit.plots.style import save_picture

    save_picture(figure, file)
    note(f"wrote {file}")


@contextmanager
def write_reports_on_exit(folder: Path, plans: str = PLAN_FILE) -> Iterator[None]:
    """Write the reports of runs when this block ends, however it ends.

    A report that cannot be written is no reason to lose a run, or to hide what stopped it.

    Args:
        folder: Folder of one run, or of several.
        plans: Pattern of the runs' plans in it (default: the folder is the run).
    """
    from airsplit.report.page import write_report

    try:
        yield
    finally:
        # A run that stopped before it had a plan has nothing to report.
        for plan in sorted(folder.glob(plans)):
            try:
                write_report(plan.parent)
            except AirsplitError as error:
                note(f"warning: no report was written: {error}")


def format_json(document: Any) -> str:
    """Return JSON with a line for each key of an object, or each entry of a list.

    >>> print(format_json({"splits": [1, 2], "gap": 0.5}))
    {
     "splits": [1, 2],
     "gap": 0.5
    }
    """
    # NaN and infinity are not JSON, so allow_nan=False turns them into an error.
    if isinstance(document, list):
        rows = [json.dumps(entry, allow_nan=False) for entry in document]
        return "[\n " + ",\n ".join(rows) + "\n]"
    rows = [
        f"{json.dumps(key)}: {json.dumps(value, allow_nan=False)}"
        for key, value in document.items()
    ]
    return "{\n " + ",\n ".join(rows) + "\n}"
