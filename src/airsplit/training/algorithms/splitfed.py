"""SplitFed: split training whose fronts are averaged every round; with a server model for each device (V1), or with one (V2).

V2 as its authors describe it: in every iteration the server takes the devices in a random order, and its one model is updated
with each.  Their published code lets a device finish all its batches before the next one begins, which is split
learning with averaged fronts; that is disputed (issue 4 of its repository), and is not done here.
"""

from __future__ import annotations

import numpy as np
import torch

from airsplit.core.arrays import Ints
from airsplit.core.randomness import generator
from airsplit.training.algorithms.algorithm import Algorithm, nothing_personal
from airsplit.training.algorithms.sfl import deepest, train_side_by_side
from airsplit.training.local_steps import Crew, Task
from airsplit.training.state import Mean, State
from airsplit.training.virtual_time import splitfed_charges


def one_server_round(crew: Crew, state: State, task: Task) -> float | None:
    """V2: layers deeper than the deepest split exist once and are updated by every step; the others are averaged at the end.

    A device that drops out has moved the server's model until then; its own layers are lost.
    """
    replica, present = crew.replica, np.flatnonzero(task.iterations > 0)
    if not len(present):
        return None
    names = replica.front_keys(deepest(task.splits))
    replica.load(state.common)
    copies = {name: torch.stack([state.common[name]] * len(present)) for name in names}
    fronts = State({}, copies, deepest(task.splits), range(len(present)))
    losses = np.zeros(len(task.splits))
    for iteration in range(task.iterations_per_round):
        for at in _order(crew, task, iteration, present):
            k = int(present[at])
            replica.load(fronts.own(at))
            losses[k] += crew.step(k, task, iteration)
            fronts.keep(at, replica.taken(names))
    state.keep_common(replica, state.common.keys() - set(names))
    if not task.finishing:
        return None
    mean = Mean()
    for at, k in enumerate(present.tolist()):
        if task.iterations[k] == task.iterations_per_round:
            mean.add(fronts.own(at), float(task.weights[k]))
    mean.into({name: state.common[name] for name in names})
    return float(task.weights @ losses) / task.iterations_per_round


def _order(crew: Crew, task: Task, iteration: int, present: Ints) -> list[int]:
    """Who is still there, in the order in which the server takes them."""
    order = generator(crew.settings.seed, "server order", task.number, iteration).permutation(
        len(task.splits)
    )
    place = {int(k): at for at, k in enumerate(present)}
    return [place[int(k)] for k in order if task.iterations[k] > iteration]


SPLITFED_V1 = Algorithm("splitfed-v1", nothing_personal, train_side_by_side, splitfed_charges)
SPLITFED_V2 = Algorithm(
    "splitfed-v2", nothing_personal, one_server_round, splitfed_charges, in_turns=True
)
