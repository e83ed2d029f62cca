"""Split federated learning as the paper has it: per-device splits; only layers deeper than the deepest split are averaged."""

from __future__ import annotations

from collections import defaultdict

from airsplit.core.arrays import Ints
from airsplit.training import common_batch, stacked
from airsplit.training.algorithms.algorithm import Algorithm
from airsplit.training.local_steps import Crew, Task
from airsplit.training.participation import averages_fronts
from airsplit.training.state import Mean, State
from airsplit.training.virtual_time import sfl_charges


def train_side_by_side(crew: Crew, state: State, task: Task) -> float | None:
    """Every device trains E iterations from the common layers and its own; then the common layers are averaged.

    In memory one device, or a group of them, comes after the other: load, train, add to the mean, drop.
    """
    if not task.finishing:
        return None
    mine = [k for k in task.finishing if k in state.held]
    if common_batch.usable(crew, state, task, mine):
        return common_batch.train_as_one_batch(crew, state, task, mine)
    with crew.ranks.together():
        train = (
            stacked.train_stacked if stacked.usable(crew, state, task, mine) else _train_one_by_one
        )
        loss, mean = train(crew, state, task, mine)
    mean.add_up(state.common, crew.ranks, crew.ranks.holder(task.finishing[0], len(task.splits)))
    mean.into(state.common)
    return crew.ranks.total(loss)


def _train_one_by_one(crew: Crew, state: State, task: Task, mine: list[int]) -> tuple[float, Mean]:
    """E iterations of these devices, one after the other: their part of the mean loss, and of the mean of the common layers."""
    replica, loss, mean = crew.replica, 0.0, Mean()
    for k in mine:
        weight = float(task.weights[k])
        replica.load(state.of(k))
        loss += weight * crew.train(k, task)
        state.keep(k, replica.taken(state.personal))
        mean.add(replica.taken(state.common), weight)
    return loss, mean


def sfl_round(crew: Crew, state: State, task: Task) -> float | None:
    """One round; and every so many the personal layers are averaged, too."""
    loss = train_side_by_side(crew, state, task)
    if averages_fronts(crew.settings.average_fronts_every, task.number):
        average_fronts(crew, state, task)
    return loss


def average_fronts(crew: Crew, state: State, task: Task) -> None:
    """Average each personal layer among the devices that hold it themselves, and among those for whom the server holds it."""
    fronts = {
        split: set(crew.replica.front_keys(split))
        for split in set(task.splits[task.finishing].tolist())
    }
    alike = defaultdict[frozenset[int], list[str]](list)
    for name in state.personal:
        alike[frozenset(split for split, inside in fronts.items() if name in inside)].append(name)
    for holding, names in alike.items():
        for on_device in (True, False):
            devices = [k for k in task.finishing if (int(task.splits[k]) in holding) == on_device]
            if len(devices) > 1:
                _average_among(devices, names, crew, state, task)


def _average_among(
    devices: list[int], names: list[str], crew: Crew, state: State, task: Task
) -> None:
    total, mean = float(task.weights[devices].sum()), Mean()
    mine = {
        k: {name: tensor for name, tensor in state.own(k).items() if name in names}
        for k in devices
        if k in state.held
    }
    for k, own in mine.items():
        mean.add(own, float(task.weights[k]) / total)
    first = crew.ranks.holder(devices[0], len(task.splits))
    mean.add_up({name: crew.replica.tensors[name] for name in names}, crew.ranks, first)
    for own in mine.values():
        mean.into(own)


def deepest(splits: Ints) -> int:
    """max_k ℓ_k: the server does not hold the layers up to there for everybody."""
    return int(splits.max())


SFL = Algorithm("sfl", deepest, sfl_round, sfl_charges)
