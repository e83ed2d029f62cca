"""A comparison, for people."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from airsplit.cli.render import table
from airsplit.runs.comparison import Comparison
from airsplit.runs.wording import NO_ENERGY


def comparison_report(found: Comparison) -> list[Text | Table | str]:
    """Return the headline, the table and what its numbers are of."""
    whole = "bytes, work and energy" if found.has_energy else "bytes and work"
    parts: list[Text | Table | str] = [Text(found.headline, style="bold"), comparison_table(found)]
    parts.append(f"{found.describe()} Time is virtual; {whole} are of all devices and rounds.")
    if not found.has_energy:
        parts.append(f"Energy is {NO_ENERGY}.")
    return parts


def comparison_table(found: Comparison) -> Table:
    """A row for each algorithm."""
    made = table("algorithm", *found.columns, words=("algorithm",))
    for row in found.rows:
        made.add_row(row.algorithm, *found.format_row(row))
    return made
