"""Split learning: one model; device after device trains it, and hands the front over to the next."""

from __future__ import annotations

from airsplit.training.algorithms.algorithm import Algorithm, nothing_personal
from airsplit.training.local_steps import Crew, Task
from airsplit.training.state import State
from airsplit.training.virtual_time import sequential_charges


def sequential_round(crew: Crew, state: State, task: Task) -> float | None:
    """E iterations of each device, in order, each from where the one before it ended.  A device that drops out is passed over."""
    if not task.finishing:
        return None
    crew.replica.load(state.common)
    losses = [float(task.weights[k]) * crew.train(k, task) for k in task.finishing]
    state.keep_common(crew.replica)
    return sum(losses)


SPLIT_LEARNING = Algorithm(
    "split-learning", nothing_personal, sequential_round, sequential_charges, in_turns=True
)
