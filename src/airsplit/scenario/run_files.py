"""Names of the files in a run folder, and how a scenario is recognized as a run's.

They are defined here, not in `runs`, because loading a scenario depends on them: a run folder may
come from somebody else, so code that only its scenario names is not imported.
"""

from __future__ import annotations

import os
from pathlib import Path

from airsplit.scenario.presets import list_presets

SCENARIO_FILE = "scenario.toml"
PLAN_FILE = "plan.json"
RECORDS_FILE = "rounds.jsonl"
CHANGES_FILE = "changes.json"
DIVERGENCE_FILE = "diverged.json"
REPORT_FILE = "report.html"
CHECKPOINT_FOLDER = "checkpoint"

# Users have no such files in folders of their own, so next to them a scenario of any name counts
# as the run's.
_ONLY_IN_RUNS = (RECORDS_FILE, CHANGES_FILE)

# Users may keep a plan next to a scenario, but hardly next to one called scenario.toml.
_BESIDE_SCENARIO_FILE = (*_ONLY_IN_RUNS, PLAN_FILE, CHECKPOINT_FOLDER, DIVERGENCE_FILE)


def run_folder_of(path_or_preset: str | os.PathLike[str]) -> Path | None:
    """Return the run folder that a scenario lies in; None for a preset and for any other file."""
    name = os.fspath(path_or_preset)
    if name in list_presets():
        return None

    file = Path(name).resolve()
    marks: tuple[str, ...] = _ONLY_IN_RUNS
    if file.name == SCENARIO_FILE:
        marks = _BESIDE_SCENARIO_FILE
    # A dangling link is a mark as well: lexists, not exists.
    if any(os.path.lexists(file.parent / mark) for mark in marks):
        return file.parent
    return None
