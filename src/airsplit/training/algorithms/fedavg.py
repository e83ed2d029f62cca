"""Federated averaging: every device trains the whole model; then all of it is averaged."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from airsplit.training.algorithms.algorithm import Algorithm, nothing_personal
from airsplit.training.algorithms.sfl import train_side_by_side
from airsplit.training.local_steps import Crew, Task
from airsplit.training.state import State
from airsplit.training.virtual_time import whole_charges


def fedavg_round(crew: Crew, state: State, task: Task) -> float | None:
    """E iterations on each device, uncut, and the mean of everything."""
    uncut = np.full_like(task.splits, len(crew.replica.outline.splits))
    return train_side_by_side(crew, state, replace(task, splits=uncut))


FEDAVG = Algorithm("fedavg", nothing_personal, fedavg_round, whole_charges)
