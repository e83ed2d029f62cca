"""Totals of a run, and its final scores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airsplit.runs.folder import RunFolder
from airsplit.runs.history import TIMES, has_energy
from airsplit.scenario.scenario import Scenario

# The fields of a record that only evaluated rounds have.
SCORES = (
    "test_accuracy",
    "test_accuracy_spread",
    "test_accuracy_worst",
    "own_accuracy",
    "own_accuracy_worst",
    "test_metric",
    "test_metric_spread",
    "test_metric_worst",
    "test_loss",
)


def summarize_run(folder: Path) -> dict[str, Any]:
    """Return the totals over all rounds and the last scores, by the names of the records' fields.

    `energy_j` is None if the energy of computing is unknown: a sum without it would mislead.
    """
    run = RunFolder(folder)
    records = run.read_records()
    last = records[-1]
    scenario = Scenario.from_toml(run.read_scenario())

    # The last round is not evaluated if the run was stopped before its end.
    evaluated = last
    for record in reversed(records):
        if record.test_loss is not None:
            evaluated = record
            break

    def total(name: str) -> float:
        return sum(sum(getattr(record, name)) for record in records)

    energy_j = None
    if has_energy(run.read_plan(), scenario):
        energy_j = total("energy_j")

    return {
        "rounds": last.round,
        "virtual_time_s": last.virtual_time_s,
        "train_loss": last.train_loss,
        "metric": scenario.training.metric,
        **{name: getattr(evaluated, name) for name in SCORES},
        "sent_bytes": total("sent_bytes"),
        "received_bytes": total("received_bytes"),
        "macs": total("macs"),
        "energy_j": energy_j,
        **{name: total(name) for name in TIMES},
    }
