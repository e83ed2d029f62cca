"""Building blocks of printed tables, and the small tables of presets and claims."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Protocol

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

# Columns without a terminal: wide enough that a line of a table is a line of a log.
PLAIN_WIDTH = 200


# A protocol, so that tables of other commands do not import the paper's figures.
class ClaimLike(Protocol):
    """A claim of the paper, as the figures report it."""

    @property
    def id(self) -> str: ...
    @property
    def claim(self) -> str: ...
    @property
    def measured(self) -> str: ...
    @property
    def holds(self) -> bool: ...


def make_console() -> Console:
    """Return a console for stdout: as wide as the terminal, or plain and wide without one."""
    # No markup: names of models and devices are the user's, and may contain brackets.
    width = None if sys.stdout.isatty() else PLAIN_WIDTH
    return Console(file=sys.stdout, width=width, highlight=False, markup=False, emoji=False)


def make_table(*columns: str, words: Sequence[str] = (), prose: Sequence[str] = ()) -> Table:
    """Return a table without rows.

    Args:
        columns: Headings; these columns hold numbers and are right-aligned by default.
        words: Columns to left-align.
        prose: Columns to left-align and to wrap on a narrow terminal.
    """
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for column in columns:
        # Only prose may wrap: a number or a name in two lines is hard to read.
        is_left = column in words or column in prose
        table.add_column(
            column, justify="left" if is_left else "right", no_wrap=column not in prose
        )
    return table


def make_list(pairs: Iterable[tuple[str, str]], *, style: str = "dim") -> Table:
    """Return a list of terms on the left and sentences on the right."""
    table = Table.grid(padding=(0, 3))
    table.add_column(style=style, no_wrap=True)
    table.add_column()
    for term, sentence in pairs:
        table.add_row(term, sentence)
    return table


def claims_table(claims: Iterable[ClaimLike]) -> Table:
    """Return the paper's claims, what was measured, and whether they hold."""
    table = make_table(
        "id", "claim", "holds", "measured", words=("id", "holds"), prose=("claim", "measured")
    )
    for claim in claims:
        verdict = Text("yes", style="green") if claim.holds else Text("no", style="bold red")
        table.add_row(claim.id, claim.claim, verdict, claim.measured)
    return table
