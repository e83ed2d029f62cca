"""What other methods are compared with: equal shares, given splits, random splits, and exhaustive search on tiny problems."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np

from airsplit.core.arrays import Floats, Ints
from airsplit.core.errors import Infeasible, InvalidValue
from airsplit.core.randomness import generator
from airsplit.planning.blocks import shares_of_blocks
from airsplit.planning.exact import best_at_shares
from airsplit.planning.problem import Problem
from airsplit.planning.shares import within_budget

MOST_COMBINATIONS = 200_000


def equal(problem: Problem) -> tuple[Ints, Floats]:
    """Every device the same share, and the split that is best for it there."""
    K, N = problem.devices, problem.blocks
    shares = within_budget(np.ones(K)) if N is None else shares_of_blocks(np.full(K, N // K), N)
    return best_at_shares(problem, 1.0, shares), shares


def fixed(problem: Problem) -> tuple[Ints, Floats]:
    """The splits that were given, with the best shares for them."""
    if problem.split is None:
        raise InvalidValue(
            'split must be given for the method "fixed": one for all or one for each device, numbers or names'
        )
    return problem.split, problem.allocate(problem.split, 1.0)


def random(problem: Problem) -> tuple[Ints, Floats]:
    """A split drawn evenly from those that each device may take, with the best shares for them."""
    span = np.searchsorted(problem.choices, problem.deepest, side="right")
    u = generator(problem.seed, "random splits").random(problem.devices)
    rows = problem.choices[np.minimum((u * span).astype(np.int64), span - 1)]
    return rows, problem.allocate(rows, 1.0)


def exhaustive(problem: Problem) -> tuple[Ints, Floats]:
    """Try every combination of splits (and of blocks, where the band comes in blocks)."""
    options = [problem.choices[problem.choices <= deepest] for deepest in problem.deepest]
    N, K = problem.blocks, problem.devices
    count = math.prod(len(o) for o in options) * (math.comb(N - 1, K - 1) if N is not None else 1)
    if count > MOST_COMBINATIONS:
        raise Infeasible(
            f'"exhaustive" would try {count} combinations, more than {MOST_COMBINATIONS}; use "exact", which is as good'
        )
    best: tuple[float, Ints, Floats] | None = None
    for choice in itertools.product(*options):
        rows = np.array(choice)
        for shares in _share_vectors(problem, rows):
            value = problem.worst_s(rows, shares, problem.risk)
            if best is None or value < best[0] * (1 - 1e-12):  # rounding decides no tie
                best = value, rows, shares
    assert best is not None  # noqa: S101 - every device has at least one option
    return best[1], best[2]


def _share_vectors(problem: Problem, rows: Ints) -> Iterator[Floats]:
    N, K = problem.blocks, problem.devices
    if N is None:
        yield problem.allocate(rows, problem.risk)
        return
    for ends in itertools.combinations(range(1, N), K - 1):
        yield shares_of_blocks(np.diff(np.array([0, *ends, N])), N)
