"""The table of a comparison, for people."""

from __future__ import annotations

from rich.table import Table

from airsplit.cli.render import table
from airsplit.comparison import Comparison, Row
from airsplit.quantities import percent, quantity, seconds
from airsplit.trials import Estimate


def comparison_table(found: Comparison) -> Table:
    """A row for each algorithm."""
    target = f"time to {percent(found.target, 0)}"
    columns = ("accuracy", "worst device", target, "all rounds", "sent", "devices' work", "energy")
    made = table("algorithm", *columns, words=("algorithm",))
    for row in found.rows:
        made.add_row(*_cells(row, len(found.seeds)))
    return made


def _cells(row: Row, seeds: int) -> list[str]:
    time = "never" if row.time_to_target_s is None else seconds(row.time_to_target_s)
    some = f" ({row.reached} of {seeds})" if 0 < row.reached < seeds else ""
    work = [quantity(row.sent_bytes, "B"), quantity(row.device_macs, "MAC"), quantity(row.energy_j, "J")]
    return [row.algorithm, accuracy(row.accuracy), accuracy(row.worst_accuracy), time + some, seconds(row.virtual_time_s), *work]


def accuracy(value: Estimate | None) -> str:
    """
    >>> accuracy(Estimate(0.912, 0.013)), accuracy(Estimate(0.9, None)), accuracy(None)
    ('91.2 ± 1.3 %', '90.0 %', '–')
    """
    if value is None:
        return "–"
    return percent(value.mean) if value.half_width is None else f"{100 * value.mean:.1f} ± {percent(value.half_width)}"


def comparison_note(found: Comparison, of_seeds: str = "± is the 95 % interval") -> str:
    """What the numbers are means of."""
    training, seeds = found.scenario.training, found.seeds
    which = f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]} to {seeds[-1]}, {of_seeds}"
    return (
        f"{found.scenario.model.name}, {training.dataset} ({training.partition}), {training.rounds} rounds of "
        f"{training.iterations_per_round} iterations, batch {training.batch_size}; {which}."
    )
