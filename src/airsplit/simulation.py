"""simulate: train a scenario in virtual time, and keep what comes of it in a run folder."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from airsplit import __version__
from airsplit.errors import AirsplitError, InvalidValue, show
from airsplit.learn.engine import Training
from airsplit.report.page import write_report
from airsplit.results import RoundRecord, RunFolder
from airsplit.scenario import Scenario


def simulate(
    scenario: Scenario,
    *,
    out: str | os.PathLike[str] | None = None,
    resume: bool = False,
    data: str | os.PathLike[str] | None = None,
) -> Iterator[RoundRecord]:
    """Train a scenario in virtual time: an iterator that trains a round for each record that is asked for.

    out      a folder for the run: scenario, plan, records, checkpoint, report; None: nothing is written
    resume   go on with the run in `out`, bit for bit as if it had never stopped; only training.rounds may differ
    data     the folder with data sets; None: AIRSPLIT_DATA, or the usual one

    Everything is checked, loaded and planned before the iterator comes back.

    >>> quick = Scenario.load("demo").replace(**{"training.rounds": 1, "fleet.devices": 2, "training.iterations_per_round": 1})
    >>> [record.round for record in simulate(quick)]
    [1]
    """
    if not isinstance(scenario, Scenario):
        raise InvalidValue(f"scenario must be an airsplit.Scenario, got {show(scenario)}; Scenario.load(name) makes one")
    if out is None and resume:
        raise InvalidValue("resume needs out, the folder of the run to go on with")
    if out is None:
        return Training(scenario, data=data).rounds()
    folder = RunFolder(out)
    if not resume:
        folder.require_new()  # before anything slow
    training = Training(scenario, data=data)
    with ExitStack() as stack:
        stack.enter_context(folder.locked())
        if resume and folder.exists:
            _take_up(training, folder)
        else:
            folder.begin(training.scenario.to_toml(), _written_plan(training))
        return _kept(training, folder, stack.pop_all())


def _written_plan(training: Training) -> dict[str, Any]:
    """The plan, with what a reader needs besides: who the devices are, what all splits are called, and by what it was made."""
    about = {"device_names": training.device_names, "all_split_names": list(training.profile.names), "airsplit_version": __version__}
    return training.plan.to_dict() | about


def _take_up(training: Training, folder: RunFolder) -> None:
    """Bring a training to where the run in a folder stopped, and drop records of rounds that are not in its checkpoint."""
    require_same(Scenario.from_toml(folder.scenario()), training.scenario)
    training.restore(folder.checkpoint)
    if training.settings.rounds < training.round:
        done = f"{training.round}, which the run in {str(folder.path)!r} has already"
        raise InvalidValue(f"training.rounds must be at least {done}, got {training.settings.rounds}")
    folder.keep_until(training.round)
    folder.rewrite_scenario(training.scenario.to_toml())


def require_same(before: Scenario, now: Scenario) -> None:
    """Only the number of rounds may differ from the run's scenario."""
    for table, section in before.settings().items():
        other = getattr(now, table)
        for key in type(section).model_fields:
            old, new = getattr(section, key), getattr(other, key)
            if old != new and (table, key) != ("training", "rounds"):
                raise InvalidValue(
                    f"{table}.{key} must be as in the run that is resumed, {show(old)}, got {show(new)}; only training.rounds may differ"
                )


def _kept(training: Training, folder: RunFolder, lock: ExitStack) -> Iterator[RoundRecord]:
    """The records, each written down before the caller sees it; the checkpoint as often as the scenario says."""
    saved, every = training.round, training.settings.checkpoint_every
    with lock:
        try:
            for record in training.rounds():
                folder.append(record)
                if record.round % every == 0 or record.round == training.settings.rounds:
                    training.save(folder.checkpoint)
                    saved = record.round
                try:
                    yield record
                except GeneratorExit:  # the caller has had enough; between two rounds the state is whole
                    if saved != record.round:
                        training.save(folder.checkpoint)
                    raise
        finally:
            report_on(folder)


def report_on(folder: RunFolder) -> None:
    """A page that cannot be written is no reason to lose a run, or to hide what stopped it."""
    try:
        write_report(folder.path)
    except AirsplitError as error:
        warnings.warn(f"there is no report: {error}", stacklevel=2)
