"""simulate: train a scenario in virtual time, and keep what comes of it in a run folder."""

from __future__ import annotations

import os
import socket
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any

from airsplit.core.errors import Diverged, InvalidValue, show
from airsplit.runs.folder import Divergence, RunFolder
from airsplit.runs.provenance import describe_provenance
from airsplit.runs.record import ENERGY_INCLUDES_COMPUTING, RoundRecord
from airsplit.scenario.scenario import Scenario
from airsplit.training.coordinator import Training
from airsplit.training.ranks import OutOfTouch, Ranks, joined, ranks_of

STATE_BEGINS_ANEW = "training.algorithm {!r}: state that an algorithm of one's own keeps is not in the checkpoint; it starts over here"


def simulate(
    scenario: Scenario,
    *,
    out: str | os.PathLike[str] | None = None,
    resume: bool = False,
    data: str | os.PathLike[str] | None = None,
) -> Iterator[RoundRecord]:
    """Train a scenario on a virtual clock; yield one record per round.

    Everything is checked, loaded and planned before this returns. Each round is trained when its
    record is asked for.

    In processes started by torchrun, each trains its part of the devices, and all get the same
    records, so all must iterate. Only the first process writes, and needs `out`. Processes that
    torchrun restarts resume by themselves.

    Args:
        scenario: What to train.
        out: Folder for scenario, plan, records and checkpoints; None writes nothing.
        resume: Continue the run in `out`, bit for bit as if it had never stopped. Only
            training.rounds may differ from that run's scenario.
        data: Folder with data sets (default: AIRSPLIT_DATA, or the user's cache).

    >>> quick = Scenario.load("demo").replace(
    ...     **{"training.rounds": 1, "fleet.devices": 2, "training.iterations_per_round": 1}
    ... )
    >>> [record.round for record in simulate(quick)]
    [1]
    """
    if not isinstance(scenario, Scenario):
        raise InvalidValue(
            f"scenario must be an airsplit.Scenario, got {show(scenario)}; Scenario.load(name) makes one"
        )
    if out is None and resume:
        raise InvalidValue("resume needs out, the folder of the run to go on with")
    with ExitStack() as stack:
        ranks = stack.enter_context(joined(ranks_of()))
        return simulate_among(
            ranks, scenario, out=out, resume=resume, data=data, leaving=stack.pop_all()
        )


def simulate_among(
    ranks: Ranks,
    scenario: Scenario,
    *,
    out: str | os.PathLike[str] | None,
    resume: bool,
    data: str | os.PathLike[str] | None,
    leaving: ExitStack | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Iterator[RoundRecord]:
    """The same among processes that have joined.

    leaving   what is to be closed when the iterator ends
    tell      is told how far a round is, after every step
    """
    with ExitStack() if leaving is None else leaving as stack:
        folder = RunFolder(out) if out is not None and ranks.is_first else None
        with ranks.together():
            resume = folder is not None and (resume or _is_ours(ranks, folder))
            if folder is not None and not resume:
                folder.require_new()  # before anything slow
        training = Training(scenario, data=data, ranks=ranks, tell=tell)
        with ranks.together():
            if folder is not None:
                stack.enter_context(folder.lock())
        if ranks.any(folder is not None and resume and folder.has_rounds):
            _take_up(training, folder)
        else:
            with ranks.together():
                if folder is not None:
                    folder.begin(training.scenario.to_toml(), _written_plan(training))
        if folder is not None:
            ranks.remember(_note_of(folder), _this_process())
        return _kept(training, folder, stack.pop_all())


def _is_ours(ranks: Ranks, folder: RunFolder) -> bool:
    """Whether the run in a folder is one that torchrun has begun, or taken up, before it started the processes again."""
    return ranks.remembered(_note_of(folder)) not in ("", _this_process())


def _note_of(folder: RunFolder) -> str:
    return f"run in {folder.path.absolute()}"


def _this_process() -> str:
    return f"{socket.gethostname()} {os.getpid()}"


def _written_plan(training: Training) -> dict[str, Any]:
    """The plan, with what a reader needs besides: who the devices are, what all splits are called, and by what it was made."""
    about: dict[str, Any] = {
        "device_names": training.device_names,
        "all_split_names": list(training.profile.names),
    }
    about["parameters"] = int(training.profile.parameters.sum())
    about[ENERGY_INCLUDES_COMPUTING] = training.fleet.joules_per_mac is not None
    about["samples"] = training.sample_counts.tolist()
    return training.plan.to_dict() | about | describe_provenance()


def _take_up(training: Training, folder: RunFolder | None) -> None:
    """Bring a training to where the run in a folder stopped, and drop records of rounds that are not in its checkpoint.

    folder   None in a process that keeps none
    """
    with training.ranks.together():
        if folder is not None:
            folder.require_same_scenario(training.scenario)
    training.restore(None if folder is None else folder.checkpoint)
    with training.ranks.together():
        if folder is None:
            return
        if training.settings.rounds < training.round:
            done = f"{training.round}, which the run in {str(folder.path)!r} has already"
            raise InvalidValue(
                f"training.rounds must be at least {done}, got {training.settings.rounds}"
            )
        if ":" in training.settings.algorithm and training.round < training.settings.rounds:
            warnings.warn(STATE_BEGINS_ANEW.format(training.settings.algorithm), stacklevel=2)
        folder.drop_records_after(training.round)
        folder.clear_divergence()
        folder.rewrite_scenario(training.scenario.to_toml())


def _kept(
    training: Training, folder: RunFolder | None, leaving: ExitStack
) -> Iterator[RoundRecord]:
    """The records, each written down before the caller sees it; the checkpoint as often as the scenario says.

    Where one of several processes has had enough, it ends in all of them.
    """
    ranks, every, saved = training.ranks, training.settings.checkpoint_every, training.round
    keeps = ranks.any(folder is not None)

    def save() -> None:
        nonlocal saved
        if keeps and saved != training.round:
            training.save(None if folder is None else folder.checkpoint)
            saved = training.round

    with leaving:
        try:
            for record in training.rounds():
                with ranks.together():
                    if folder is not None:
                        folder.append(record)
                if record.round % every == 0 or record.round == training.settings.rounds:
                    save()
                try:
                    yield record
                except (
                    GeneratorExit
                ):  # the caller has had enough; between two rounds the state is whole
                    with suppress(OutOfTouch):  # the others may have been stopped, too
                        ranks.any(True)
                        save()
                    raise
                if ranks.any(False):
                    save()
                    return
        except Diverged as error:
            if folder is not None:
                folder.write_divergence(Divergence(training.round + 1, str(error)))
            raise
