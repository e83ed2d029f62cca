"""What a run came to, for people: and where its folder goes."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

from rich.table import Table

from airsplit.cli.options import RUNS
from airsplit.cli.render import facts
from airsplit.quantities import percent, quantity, seconds
from airsplit.results import RoundRecord, RunFolder


def folder_for(scenario: str, *, resume: bool) -> Path:
    """Where a run goes that was given no folder: runs/NAME, or the next that is free; when resuming, the last that is there."""
    file = Path(scenario)
    stem = file.absolute().parent.name if file.name == "scenario.toml" else file.stem  # a run's own scenario goes by the run's name

    def numbered(n: int) -> Path:
        return RUNS / (stem if n == 1 else f"{stem}-{n}")

    free = next(n for n in count(1) if not RunFolder(numbered(n)).exists)
    return numbered(free - 1 if resume and free > 1 else free)


def averaged_of(folder: Path) -> tuple[int, int]:
    """How many parameters are averaged by the first plan of a run, and of how many; 0 of 0 where its folder does not say."""
    plan = RunFolder(folder).plan()
    averaged, total = plan.get("averaged_parameters"), plan.get("parameters")
    return (averaged, total) if isinstance(averaged, int) and isinstance(total, int) else (0, 0)


def stopped(folder: Path) -> str:
    """What is said where a run was stopped."""
    trained = len(RunFolder(folder).records())
    if not trained:
        return "stopped before the first round was over; nothing was kept"
    return f"stopped after round {trained}; the run is in {folder}, and the same command with --resume goes on"


def run_summary(records: list[RoundRecord]) -> dict[str, Any]:
    """What all rounds came to, under the names of their fields."""
    last = records[-1]
    evaluated = next((record for record in reversed(records) if record.test_loss is not None), last)
    scored = ("test_accuracy", "test_accuracy_spread", "test_accuracy_worst", "own_accuracy", "own_accuracy_worst", "test_loss")
    return {
        "rounds": last.round,
        "virtual_time_s": last.virtual_time_s,
        "train_loss": last.train_loss,
        **{name: getattr(evaluated, name) for name in scored},
        "sent_bytes": sum(sum(record.sent_bytes) for record in records),
        "received_bytes": sum(sum(record.received_bytes) for record in records),
        "macs": sum(sum(record.macs) for record in records),
        "energy_j": sum(sum(record.energy_j) for record in records),
        "idle_s": sum(sum(record.idle_s) for record in records),
    }


def run_report(summary: dict[str, Any], folder: Path, time: str = "of virtual time") -> Table:
    """The same in words."""
    lines = [("rounds", f"{summary['rounds']}, {seconds(summary['virtual_time_s'])} {time}")]
    if summary["test_accuracy"] is not None:
        spread = f"spread {percent(summary['test_accuracy_spread'])}, worst {percent(summary['test_accuracy_worst'])}"
        lines.append(("accuracy", f"{percent(summary['test_accuracy'])} on the test set, mean over the devices' models ({spread})"))
    if summary["own_accuracy"] is not None:
        worst = percent(summary["own_accuracy_worst"])
        lines.append(("", f"{percent(summary['own_accuracy'])} with classes weighted as each device has them (worst {worst})"))
    if summary["test_loss"] is not None:
        lines.append(("loss", f"{summary['test_loss']:.3f} on the test set"))
    lines.append(("sent", f"{quantity(summary['sent_bytes'], 'B')} up, {quantity(summary['received_bytes'], 'B')} down, by all devices"))
    energy = f", {quantity(summary['energy_j'], 'J')}" if summary["energy_j"] else ""  # over a network nobody measures it
    lines.append(("devices' work", f"{quantity(summary['macs'], 'MAC')}{energy}"))
    lines.append(("waiting", f"{seconds(summary['idle_s'])} of all devices together"))
    lines.append(("run folder", f"{folder}: scenario.toml, plan.json, rounds.jsonl, checkpoint/, report.html"))
    return facts(lines)
