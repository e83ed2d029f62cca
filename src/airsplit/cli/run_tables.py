"""Results of a run and of a comparison, and the notes that a run begins or ends with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from airsplit.cli.plan_tables import describe_sent_inputs, warn_of_little_averaging
from airsplit.cli.tables import make_list, make_table
from airsplit.core.formatting import format_percent, format_quantity, format_seconds
from airsplit.data.batches import describe_short_devices_in
from airsplit.runs.comparison import Comparison
from airsplit.runs.folder import RunFolder
from airsplit.runs.history import waiting_fraction
from airsplit.runs.metric import display_name
from airsplit.runs.wording import NO_ENERGY
from airsplit.scenario.run_files import (
    CHECKPOINT_FOLDER,
    PLAN_FILE,
    RECORDS_FILE,
    REPORT_FILE,
    SCENARIO_FILE,
)
from airsplit.scenario.scenario import Scenario


def warn_of_little_averaging_in(folder: Path, scenario: Scenario) -> str | None:
    """Return a warning if a run averages hardly any parameters; None if its folder does not say."""
    plan = RunFolder(folder).read_plan()
    averaged = plan.get("averaged_parameters")
    total = plan.get("parameters")
    # A file of somebody else, or of another version, may hold anything.
    if not isinstance(averaged, int) or not isinstance(total, int):
        return None
    return warn_of_little_averaging(scenario, averaged, total)


def run_notes(folder: Path, scenario: Scenario) -> Iterator[str]:
    """Yield warnings and notes to print before a run is trained."""
    warning = warn_of_little_averaging_in(folder, scenario)
    if warning is not None:
        yield warning

    plan = RunFolder(folder).read_plan()
    short = describe_short_devices_in(plan)
    if short is not None:
        yield short

    # FedAvg cuts nothing, so no input leaves a device.
    if scenario.training.algorithm == "fedavg":
        return
    raw_inputs = plan.get("raw_inputs", [])
    other_inputs = plan.get("other_inputs", [])
    if isinstance(raw_inputs, list) and isinstance(other_inputs, list):
        yield from describe_sent_inputs(list(map(str, raw_inputs)), list(map(str, other_inputs)))


def describe_stop(folder: Path) -> str:
    """Return what is kept of a run that was stopped, and how to continue it."""
    trained = len(RunFolder(folder).read_records())
    if not trained:
        return "stopped before the end of the first round; nothing was kept"
    return (
        f"stopped after round {trained}; the run is in {folder}, and the same command with "
        "--resume continues it"
    )


def run_report(summary: dict[str, Any], folder: Path, *, networked: bool = False) -> Table:
    """Return a run's summary in words."""
    clock = "of training" if networked else "of virtual time"
    sent = format_quantity(summary["sent_bytes"], "B")
    received = format_quantity(summary["received_bytes"], "B")
    waiting = format_percent(waiting_fraction(summary), 0)

    lines = [
        ("rounds", f"{summary['rounds']}, {format_seconds(summary['virtual_time_s'])} {clock}"),
        *_scores(summary),
        ("sent", f"{sent} up, {received} down, by all devices"),
        ("devices' work", format_quantity(summary["macs"], "MAC")),
    ]
    if summary["energy_j"] is not None:
        lines.append(("energy", f"{format_quantity(summary['energy_j'], 'J')}, of all devices"))
    elif not networked:
        # Over a network nobody measures energy, so its absence needs no explanation.
        lines.append(("energy", NO_ENERGY))
    files = (SCENARIO_FILE, PLAN_FILE, RECORDS_FILE, f"{CHECKPOINT_FOLDER}/", REPORT_FILE)
    lines += [
        ("waiting", f"{waiting} of the devices' time, until the last of them is done"),
        ("run folder", f"{folder}: {', '.join(files)}"),
    ]
    return make_list(lines)


def _scores(summary: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the scores that a run has: metric, accuracy, loss."""
    if summary["test_metric"] is not None:
        yield (
            display_name(summary["metric"]),
            f"{summary['test_metric']:.4g} on the test set, mean over the devices' models "
            f"(spread {summary['test_metric_spread']:.4g}, "
            f"worst {summary['test_metric_worst']:.4g})",
        )
    if summary["test_accuracy"] is not None:
        yield (
            "accuracy",
            f"{format_percent(summary['test_accuracy'])} on the test set, mean over the devices' "
            f"models (spread {format_percent(summary['test_accuracy_spread'])}, "
            f"worst {format_percent(summary['test_accuracy_worst'])})",
        )
    # Devices with few labels may do well on theirs, but badly on the whole test set.
    if summary["own_accuracy"] is not None:
        yield (
            "",
            f"{format_percent(summary['own_accuracy'])} with classes weighted as each device "
            f"has them (worst {format_percent(summary['own_accuracy_worst'])})",
        )
    if summary["test_loss"] is not None:
        yield "loss", f"{summary['test_loss']:.3f} on the test set"


def comparison_report(comparison: Comparison) -> list[Text | Table | str]:
    """Return the headline of a comparison, a row for each algorithm, and what the numbers mean."""
    table = make_table("algorithm", *comparison.columns, words=("algorithm",))
    for row in comparison.rows:
        table.add_row(row.algorithm, *comparison.format_row(row))

    totals = "bytes and work"
    if comparison.has_energy:
        totals = "bytes, work and energy"
    parts: list[Text | Table | str] = [
        Text(comparison.headline, style="bold"),
        table,
        f"{comparison.describe()} Time is virtual; {totals} are of all devices and rounds.",
    ]
    # Energy without joules_per_mac would leave out computing, so no column shows it.
    if not comparison.has_energy:
        parts.append(f"Energy is {NO_ENERGY}.")
    return parts
