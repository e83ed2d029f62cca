"""Algorithm 2: splits by optimal stopping and shares by algorithm 1, in turns.

It need not converge: taking the most probable layer is a heuristic, and the alternation can cycle.  The best plan seen is kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from airsplit.core.arrays import Floats, Ints
from airsplit.planning.problem import Problem
from airsplit.planning.stopping import backward_induction

_DEVICES_AT_ONCE = 1 << 14
_MOST_ROUNDS = 100


@dataclass(frozen=True, eq=False)
class Alternation:
    """Where the alternation went: the latency of each visited plan, the best one, and the length of the cycle (1: it converged)."""

    rows: Ints
    shares: Floats
    history: tuple[float, ...]
    cycle: int | None


def alternate(problem: Problem) -> Alternation:
    """Run algorithm 2 from equal shares until it stands still, repeats itself or runs out of rounds."""
    shares = np.full(problem.devices, 1 / problem.devices)
    seen: dict[bytes, int] = {}
    history: list[float] = []
    kept_rows, kept_shares = np.empty(0, dtype=np.int64), shares
    for turn in range(_MOST_ROUNDS):
        rows = most_probable_rows(problem, shares)
        key = rows.tobytes()
        if key in seen:
            return Alternation(kept_rows, kept_shares, tuple(history), turn - seen[key])
        seen[key] = turn
        shares = problem.allocate(rows, 1.0)
        history.append(problem.worst_s(rows, shares, 1.0))
        if history[-1] <= min(history):
            kept_rows, kept_shares = rows, shares
    return Alternation(kept_rows, kept_shares, tuple(history), None)


def most_probable_rows(problem: Problem, shares: Floats) -> Ints:
    """ℓ* = argmax P(ℓ) for every device at its share, devices in blocks to bound the memory."""
    layers = problem.choices
    rows = np.empty(problem.devices, dtype=np.int64)
    for at in range(0, problem.devices, _DEVICES_AT_ONCE):
        some = slice(at, at + _DEVICES_AT_ONCE)
        link = problem.link.take(some).column()
        air = (
            link.seconds(problem.up_bits[layers], problem.down_bits[layers], shares[some, None])
            + problem.server_s[layers]
        )
        air = np.where(layers <= problem.deepest[some, None], air, np.inf)
        a, eps = problem.fleet.seconds_per_mac[some], problem.fleet.fluctuation[some]
        _, _, probabilities = backward_induction(problem.work[layers], air, a, eps)
        rows[some] = layers[probabilities.argmax(axis=1)]
    return rows
