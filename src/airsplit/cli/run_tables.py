"""What a run came to, for people: and where its folder goes."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

from rich.table import Table

from airsplit.cli.options import RUNS
from airsplit.cli.render import facts
from airsplit.core.formatting import format_percent, format_quantity, format_seconds
from airsplit.runs.folder import RunFolder
from airsplit.runs.history import TIMES, has_energy, waiting_fraction
from airsplit.runs.metric import display_name
from airsplit.runs.wording import NO_ENERGY
from airsplit.scenario.scenario import Scenario


def folder_for(scenario: str, *, resume: bool) -> Path:
    """Where a run goes that was given no folder: runs/NAME, or the next that is free; when resuming, the last that is there."""
    file = Path(scenario)
    stem = (
        file.absolute().parent.name if file.name == "scenario.toml" else file.stem
    )  # a run's own scenario goes by the run's name

    def numbered(n: int) -> Path:
        return RUNS / (stem if n == 1 else f"{stem}-{n}")

    free = next(n for n in count(1) if not RunFolder(numbered(n)).has_rounds)
    return numbered(free - 1 if resume and free > 1 else free)


def averaged_of(folder: Path) -> tuple[int, int]:
    """How many parameters are averaged by the first plan of a run, and of how many; 0 of 0 where its folder does not say."""
    plan = RunFolder(folder).read_plan()
    averaged, total = plan.get("averaged_parameters"), plan.get("parameters")
    return (averaged, total) if isinstance(averaged, int) and isinstance(total, int) else (0, 0)


def inputs_sent_in(folder: Path) -> tuple[list[str], list[str]]:
    """Return the inputs that the first plan of a run sends as they are: raw ones, and others; none if its folder does not say."""
    plan = RunFolder(folder).read_plan()
    raw_inputs, other_inputs = (plan.get(key, []) for key in ("raw_inputs", "other_inputs"))
    if not isinstance(raw_inputs, list) or not isinstance(other_inputs, list):
        return [], []
    return [str(name) for name in raw_inputs], [str(name) for name in other_inputs]


def stopped(folder: Path) -> str:
    """What is said where a run was stopped."""
    trained = len(RunFolder(folder).read_records())
    if not trained:
        return "stopped before the first round was over; nothing was kept"
    return f"stopped after round {trained}; the run is in {folder}, and the same command with --resume goes on"


SCORES = (
    *(
        "test_accuracy",
        "test_accuracy_spread",
        "test_accuracy_worst",
        "own_accuracy",
        "own_accuracy_worst",
    ),
    *("test_metric", "test_metric_spread", "test_metric_worst", "test_loss"),
)


def run_summary(folder: Path) -> dict[str, Any]:
    """What all rounds came to, under the names of their fields; `energy_j` is None where computing would be missing from it."""
    run = RunFolder(folder)
    records = run.read_records()
    last = records[-1]
    scenario = Scenario.from_toml(run.read_scenario())
    energy_known = has_energy(run.read_plan(), scenario)
    evaluated = next((record for record in reversed(records) if record.test_loss is not None), last)
    return {
        "rounds": last.round,
        "virtual_time_s": last.virtual_time_s,
        "train_loss": last.train_loss,
        "metric": scenario.training.metric,
        **{name: getattr(evaluated, name) for name in SCORES},
        "sent_bytes": sum(sum(record.sent_bytes) for record in records),
        "received_bytes": sum(sum(record.received_bytes) for record in records),
        "macs": sum(sum(record.macs) for record in records),
        "energy_j": sum(sum(record.energy_j) for record in records) if energy_known else None,
        **{name: sum(sum(getattr(record, name)) for record in records) for name in TIMES},
    }


def run_report(summary: dict[str, Any], folder: Path, *, networked: bool = False) -> Table:
    """The same in words."""
    time = "of training" if networked else "of virtual time"
    lines = [("rounds", f"{summary['rounds']}, {format_seconds(summary['virtual_time_s'])} {time}")]
    if summary["test_metric"] is not None:
        mean, spread, worst = (
            f"{summary[name]:.4g}"
            for name in ("test_metric", "test_metric_spread", "test_metric_worst")
        )
        about = f"on the test set, mean over the devices' models (spread {spread}, worst {worst})"
        lines.append((display_name(summary["metric"]), f"{mean} {about}"))
    if summary["test_accuracy"] is not None:
        spread = f"spread {format_percent(summary['test_accuracy_spread'])}, worst {format_percent(summary['test_accuracy_worst'])}"
        lines.append(
            (
                "accuracy",
                f"{format_percent(summary['test_accuracy'])} on the test set, mean over the devices' models ({spread})",
            )
        )
    if summary["own_accuracy"] is not None:
        worst = format_percent(summary["own_accuracy_worst"])
        lines.append(
            (
                "",
                f"{format_percent(summary['own_accuracy'])} with classes weighted as each device has them (worst {worst})",
            )
        )
    if summary["test_loss"] is not None:
        lines.append(("loss", f"{summary['test_loss']:.3f} on the test set"))
    lines.append(
        (
            "sent",
            f"{format_quantity(summary['sent_bytes'], 'B')} up, {format_quantity(summary['received_bytes'], 'B')} down, by all devices",
        )
    )
    lines.append(("devices' work", format_quantity(summary["macs"], "MAC")))
    if summary["energy_j"] is not None:
        lines.append(("energy", f"{format_quantity(summary['energy_j'], 'J')}, of all devices"))
    elif not networked:  # over a network nobody measures it
        lines.append(("energy", NO_ENERGY))
    lines.append(
        (
            "waiting",
            f"{format_percent(waiting_fraction(summary), 0)} of the devices' time, until the last of them is done",
        )
    )
    lines.append(
        (
            "run folder",
            f"{folder}: scenario.toml, plan.json, rounds.jsonl, checkpoint/, report.html",
        )
    )
    return facts(lines)
