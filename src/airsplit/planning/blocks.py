"""A band that comes in N equal blocks: shares are n_k / N."""

from __future__ import annotations

import heapq
from collections.abc import Callable

import numpy as np

from airsplit.core.arrays import Floats, Ints
from airsplit.planning.problem import Problem

Need = Callable[[float], tuple[Floats, Ints]]


def blocks_needed(shares: Floats, blocks: int) -> Floats:
    """Whole blocks that cover the shares; a share that is a whole number of blocks but for rounding needs no more.

    >>> blocks_needed(np.array([0.1, 0.2000000000000001, 0.25]), 10).tolist()
    [1.0, 2.0, 3.0]
    """
    return np.maximum(1.0, np.ceil(shares * blocks * (1 - 1e-12)))


def rounding_room(devices: int) -> float:
    """What so many shares may sum to, so that no order of adding them up exceeds one."""
    return 1 - 2 * devices * float(np.finfo(np.float64).eps)


def shares_of_blocks(counts: Ints, blocks: int) -> Floats:
    """Counts as shares of the band, short of it by a rounding error, so that they sum to at most one in whatever order.

    >>> float(shares_of_blocks(np.full(10, 10), 100).sum()) <= 1.0
    True
    """
    return counts / blocks * rounding_room(len(counts))


def allocate_blocks(
    need: Need, problem: Problem, risk: float, lower_s: float
) -> tuple[Ints, Floats, float]:
    """Rows, shares and a proven lower bound of the best plan in whole blocks.

    `need(τ)` gives the shares, and rows, with which each device just finishes by τ.  The number of blocks falls as τ grows, so
    the least feasible τ is found by halving; `lower_s`, the optimum of a band that divides at will, is where to begin.
    """
    N, K = problem.blocks or 0, problem.devices
    low, high = lower_s, lower_s
    while blocks_needed(need(high)[0], N).sum() > N:
        low, high = high, 2 * high
    while high - low > 1e-13 * high:
        middle = 0.5 * (low + high)
        if blocks_needed(need(middle)[0], N).sum() > N:
            low = middle
        else:
            high = middle
    shares, rows = need(high)
    counts = blocks_needed(shares, N).astype(np.int64)
    counts = give_to_slowest(problem, risk, rows, counts, N - int(counts.sum()))
    return rows, shares_of_blocks(counts, N), low if K > 1 else lower_s


def give_to_slowest(problem: Problem, risk: float, rows: Ints, counts: Ints, spare: int) -> Ints:
    """Hand out blocks that are left, each to the device that would finish last."""
    N = problem.blocks or 0
    counts = counts.copy()
    busy = problem.busy_s(rows, risk)
    queue = [(-float(e), k) for k, e in enumerate(busy + problem.transmit_s(rows, counts / N))]
    heapq.heapify(queue)
    for _ in range(spare):
        _, k = heapq.heappop(queue)
        counts[k] += 1
        share = np.array([counts[k] / N])
        link = problem.link.take(slice(k, k + 1))
        air = link.seconds(
            problem.up_bits[rows[k : k + 1]], problem.down_bits[rows[k : k + 1]], share
        )
        heapq.heappush(queue, (-float(busy[k] + air[0]), k))
    return counts
