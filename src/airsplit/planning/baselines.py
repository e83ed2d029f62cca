"""Baselines: equal shares, given or random options, and exhaustive search on tiny problems."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np

from airsplit.core.arrays import Floats, Ints
from airsplit.core.errors import Infeasible, InvalidValue
from airsplit.core.randomness import generator
from airsplit.planning.blocks import shares_of_blocks
from airsplit.planning.exact import TIE, quickest_at_shares
from airsplit.planning.problem import Problem
from airsplit.planning.shares import within_budget

MOST_COMBINATIONS = 200_000


def equal(problem: Problem) -> tuple[Ints, Floats]:
    """Give every device the same share, and the option that is best for it there."""
    K = problem.devices
    N = problem.blocks
    if N is None:
        shares = within_budget(np.ones(K))
    else:
        shares = shares_of_blocks(np.full(K, N // K), N)
    return quickest_at_shares(problem, 1.0, shares), shares


def fixed(problem: Problem) -> tuple[Ints, Floats]:
    """Take the given options, with the best shares for them."""
    if problem.split is None:
        raise InvalidValue(
            'split must be given for the method "fixed": one for all or one for each device, '
            "numbers or names"
        )
    return problem.split, problem.allocate(problem.split, risk=1.0)


def random(problem: Problem) -> tuple[Ints, Floats]:
    """Draw each device's option uniformly from those it may take; find the best shares for them."""
    allowed = problem.allowed
    count = allowed.sets.sum(axis=1)[allowed.set_of]
    u = generator(problem.seed, "random splits").random(problem.devices)
    # u < 1, but the product may round up to the count.
    nth = np.minimum((u * count).astype(np.int64), count - 1)
    # Stable sorting puts the options of each set first, in their order.
    members = np.argsort(~allowed.sets, axis=1, kind="stable")
    rows = members[allowed.set_of, nth]
    return rows, problem.allocate(rows, risk=1.0)


def exhaustive(problem: Problem) -> tuple[Ints, Floats]:
    """Try every combination of options, and of blocks if the band comes in blocks."""
    options = [problem.allowed.rows_of(k) for k in range(problem.devices)]
    count = math.prod(len(rows) for rows in options)
    if problem.blocks is not None:
        count *= math.comb(problem.blocks - 1, problem.devices - 1)
    if count > MOST_COMBINATIONS:
        raise Infeasible(
            f'"exhaustive" would try {count} combinations, more than {MOST_COMBINATIONS}; '
            'use "exact", which is as good'
        )

    # Ties go to the first combination, so to the earlier rows.
    best_s = np.inf
    best_rows = np.empty(0, dtype=np.int64)
    best_shares = np.empty(0)
    for combination in itertools.product(*options):
        rows = np.array(combination)
        for shares in _yield_shares(problem, rows):
            value_s = problem.worst_s(rows, shares, problem.risk)
            if value_s < best_s * (1 - TIE):
                best_s = value_s
                best_rows = rows
                best_shares = shares
    return best_rows, best_shares


def _yield_shares(problem: Problem, rows: Ints) -> Iterator[Floats]:
    """Yield the best shares, or every way to hand out the blocks."""
    N = problem.blocks
    if N is None:
        yield problem.allocate(rows, problem.risk)
        return
    for ends in itertools.combinations(range(1, N), problem.devices - 1):
        yield shares_of_blocks(np.diff(np.array([0, *ends, N])), N)
