"""Split federated learning as the paper has it: per-device splits; only layers deeper than the deepest split are averaged."""

from __future__ import annotations

from collections import defaultdict

from airsplit.learn.algorithm import Algorithm
from airsplit.learn.common_batch import train_as_one_batch, usable
from airsplit.learn.crew import Crew, Task
from airsplit.learn.state import Mean, State
from airsplit.learn.virtual_time import Charges, Terms, split_charges
from airsplit.units import Ints


def train_side_by_side(crew: Crew, state: State, task: Task) -> float | None:
    """Every device trains E iterations from the common layers and its own; then the common layers are averaged.

    In memory one device comes after the other: load, train, add to the mean, drop.
    """
    if not task.finishing:
        return None
    if usable(crew, state, task):
        return train_as_one_batch(crew, state, task)
    replica, mean, loss = crew.replica, Mean(), 0.0
    for k in task.finishing:
        weight = float(task.weights[k])
        replica.load(state.of(k))
        loss += weight * crew.train(k, task)
        state.keep(k, replica.taken(state.personal))
        mean.add(replica.taken(state.common), weight)
    mean.into(state.common)
    return loss


def sfl_round(crew: Crew, state: State, task: Task) -> float | None:
    """One round; and every so many the personal layers are averaged, too."""
    loss = train_side_by_side(crew, state, task)
    if averages_fronts(crew.settings.average_fronts_every, task.number):
        average_fronts(crew, state, task)
    return loss


def averages_fronts(every: int | None, round_number: int) -> bool:
    """Whether a round ends with the personal layers being averaged."""
    return every is not None and round_number % every == 0


def average_fronts(crew: Crew, state: State, task: Task) -> None:
    """Average each personal layer among the devices that hold it themselves, and among those for whom the server holds it."""
    fronts = {split: set(crew.replica.front_keys(split)) for split in set(task.splits[task.finishing].tolist())}
    alike = defaultdict[frozenset[int], list[str]](list)
    for name in state.personal:
        alike[frozenset(split for split, inside in fronts.items() if name in inside)].append(name)
    for holding, names in alike.items():
        for on_device in (True, False):
            _average_among([k for k in task.finishing if (int(task.splits[k]) in holding) == on_device], names, state, task)


def _average_among(devices: list[int], names: list[str], state: State, task: Task) -> None:
    if len(devices) < 2:
        return
    total, mean = float(task.weights[devices].sum()), Mean()
    for k in devices:
        mean.add({name: state.personal[name][k] for name in names}, float(task.weights[k]) / total)
    for k in devices:
        mean.into({name: state.personal[name][k] for name in names})


def deepest(splits: Ints) -> int:
    """max_k ℓ_k: the server does not hold the layers up to there for everybody."""
    return int(splits.max())


def sfl_charges(terms: Terms) -> Charges:
    """E iterations; where fronts are averaged, their weights too."""
    return split_charges(terms, weights_too=terms.fronts_averaged)


SFL = Algorithm("sfl", deepest, sfl_round, sfl_charges)
