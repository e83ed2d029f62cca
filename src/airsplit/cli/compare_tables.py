"""The table of a comparison, for people."""

from __future__ import annotations

from rich.table import Table

from airsplit.cli.render import table
from airsplit.compared import Comparison


def comparison_table(found: Comparison) -> Table:
    """A row for each algorithm."""
    made = table("algorithm", *found.columns, words=("algorithm",))
    for row in found.rows:
        made.add_row(row.algorithm, *row.cells(len(found.seeds)))
    return made
