"""Tables for people: presets, claims; and the screen that they are printed on."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Protocol

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text


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


def screen() -> Console:
    """Standard output: as wide as the terminal; where it is none, plain and 200 letters wide, so that lines stay whole."""
    return Console(
        file=sys.stdout,
        width=None if sys.stdout.isatty() else 200,
        highlight=False,
        markup=False,
        emoji=False,
    )


def table(*columns: str, words: Sequence[str] = (), prose: Sequence[str] = ()) -> Table:
    """An empty table.  Columns are numbers, set right, unless they are words, or prose, which wraps where it is narrow."""
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for column in columns:
        left, wraps = column in (*words, *prose), column in prose
        made.add_column(column, justify="left" if left else "right", no_wrap=not wraps)
    return made


def facts(pairs: Iterable[tuple[str, str]]) -> Table:
    """What each thing is: words on the left, sentences on the right."""
    made = Table.grid(padding=(0, 3))
    made.add_column(style="dim", no_wrap=True)
    made.add_column()
    for word, sentence in pairs:
        made.add_row(word, sentence)
    return made


def preset_table(descriptions: dict[str, str]) -> Table:
    made = Table.grid(padding=(0, 3))
    made.add_column(style="bold", no_wrap=True)
    made.add_column()
    for name, description in descriptions.items():
        made.add_row(name, description)
    return made


def claims_table(claims: Iterable[ClaimLike]) -> Table:
    """The paper's claims, what was measured, and whether they hold."""
    made = table(
        "id", "claim", "holds", "measured", words=("id", "holds"), prose=("claim", "measured")
    )
    for claim in claims:
        verdict = Text("yes", style="green") if claim.holds else Text("no", style="bold red")
        made.add_row(claim.id, claim.claim, verdict, claim.measured)
    return made
