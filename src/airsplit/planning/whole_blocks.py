"""Shares of an E[max] plan in whole blocks: round down, hand out the rest where it helps most, then exchange single blocks."""

from __future__ import annotations

import numpy as np

from airsplit.core.arrays import Floats, Ints
from airsplit.planning.blocks import shares_of_blocks
from airsplit.planning.problem import Problem


def to_whole_blocks(problem: Problem, rows: Ints, shares: Floats) -> Floats:
    """Multiples of 1/N near the shares, at least one block each."""
    N, K = problem.blocks or 0, problem.devices
    counts = np.maximum(1, np.floor(shares * N * (1 + 1e-12))).astype(np.int64)
    while counts.sum() > N:
        counts[int(np.where(counts > 1, counts - shares * N, -np.inf).argmax())] -= 1
    while counts.sum() < N:
        counts[int(_gain(problem, rows, counts).argmax())] += 1
    value = problem.max_s(rows, counts / N)
    for _ in range(2 * K):
        trial = _exchanged(problem, rows, counts)
        reached = np.inf if trial is None else problem.max_s(rows, trial / N)
        if trial is None or reached >= value:
            break
        counts, value = trial, reached
    return shares_of_blocks(counts, N)


def _gain(problem: Problem, rows: Ints, counts: Ints, blocks: int = 1) -> Floats:
    """What E[max] loses, to first order, when each device alone gets so many blocks more."""
    N = problem.blocks or 0
    last = problem.law(rows, counts / N).last_device().last
    return last * (
        problem.transmit_s(rows, counts / N) - problem.transmit_s(rows, (counts + blocks) / N)
    )


def _exchanged(problem: Problem, rows: Ints, counts: Ints) -> Ints | None:
    """One block from the device that misses it least to the one that needs it most; None where nobody can give."""
    if counts.max() == 1 or len(counts) == 1:
        return None
    loss = np.where(counts > 1, -_gain(problem, rows, np.maximum(counts, 2), -1), np.inf)
    giver, taker = int(loss.argmin()), int(_gain(problem, rows, counts).argmax())
    if giver == taker:
        return None
    trial = counts.copy()
    trial[giver] -= 1
    trial[taker] += 1
    return trial
