"""The method "expected-max": minimize E[max_k τ_k], or a quantile of max_k τ_k, with a certificate."""

from __future__ import annotations

import math

import numpy as np

from airsplit.core.arrays import Floats, Ints
from airsplit.planning import exact
from airsplit.planning.blocks import round_to_blocks
from airsplit.planning.branch_and_bound import Candidate, Node, Objective, branch_and_bound
from airsplit.planning.newton_shares import MOST_TO_POLISH
from airsplit.planning.options import SplitTable
from airsplit.planning.problem import Problem
from airsplit.planning.proposal import Bound, ProvenProposal
from airsplit.planning.quantile import QuantileOfMax
from airsplit.planning.search import (
    ExpectedMax,
    Rivals,
    rivals_of,
    rounded_candidates,
    starting_candidates,
)
from airsplit.planning.shares import within_budget

TARGET = 1e-3
"""The gap at which branch and bound is content."""
MOST_NODES, NODES_TIMES_DEVICES = 400, 4000
"""Where branch and bound gives up, after a few seconds; the gap then says how far it came."""
MOST_TO_BRANCH = 100
"""With more devices than this the relaxation's gap is small anyway, and a node costs seconds."""


JENSEN = "Jensen's inequality"
DEVICE_QUANTILE = "the exact optimum of the largest device quantile"
Proof = tuple[float, str]
"""Seconds that no plan can beat, and why."""


def minimize_max(problem: Problem) -> ProvenProposal:
    """Return the plan with the least E[max_k τ_k], or quantile of max_k τ_k, that the search finds, with a proven bound."""
    from threadpoolctl import threadpool_limits

    search = _search_mean if problem.quantile is None else _search_quantile
    # the matrices are small: threads save no time, and on a busy machine waiting for each other costs them tenfold
    with threadpool_limits(1, user_api="blas"):
        table, rivals = SplitTable.of(problem), rivals_of(problem)
        best, bound, how, history = search(problem, table, rivals)
    value, rows, shares = best.value_s, table.rows_of(best.choice), within_budget(best.shares)
    if problem.blocks is not None:
        rounded = round_to_blocks(
            shares,
            problem.blocks,
            air_s=lambda b: problem.transmit_s(rows, b),
            law=lambda b: problem.law(rows, b),
            objective_s=problem.objective_s,
        )
        options = [(rows, rounded), *rivals.plans]
        value, rows, shares = min(
            ((problem.max_s(*option), *option) for option in options), key=lambda option: option[0]
        )
    return ProvenProposal(
        rows + 1,
        shares,
        objective="expected-max" if problem.quantile is None else "quantile",
        status=_status(problem),
        history=(*history, value),
        bound=Bound(bound, how),
    )


def _status(problem: Problem) -> str:
    """Return how the search went about it, in a few words."""
    steps = ["the best of the exact plans for several risks"]
    if problem.devices <= MOST_TO_POLISH:
        steps += (
            ["refined shares"]
            if problem.quantile is not None
            else ["swaps of splits", "refined shares"]
        )
    if problem.blocks is not None:
        steps += ["whole resource blocks"]
    return ", then ".join(steps)


Found = tuple[Candidate, float, str, list[float]]


def _search_mean(problem: Problem, table: SplitTable, rivals: Rivals) -> Found:
    objective = ExpectedMax(table)
    best = starting_candidates(objective, rivals)[0]
    history = [best.value_s]
    K = problem.devices
    if K <= MOST_TO_POLISH:
        best = objective.improved(best, most_tries=12 if K <= MOST_TO_BRANCH else 0)
        history.append(best.value_s)
    steps = 1 if not problem.certify or K > MOST_TO_POLISH else 30
    root = objective.relaxed(
        table.allowed,
        _pure(table, best),
        best.shares,
        enough_s=best.value_s / (1 + 1e-6),
        steps=steps,
    )
    jensen = rivals.jensen_s
    if steps == 1:
        return best, *_larger((root.bound_s, "price bound"), (jensen, JENSEN)), history
    if K > MOST_TO_BRANCH:
        best = min([best, *rounded_candidates(objective, root)], key=lambda c: c.value_s)
        return best, *_larger((root.bound_s, "convex relaxation"), (jensen, JENSEN)), history
    return *_certify(
        objective, best, root, (jensen, JENSEN), "price bound and convex relaxation"
    ), history


def _search_quantile(problem: Problem, table: SplitTable, rivals: Rivals) -> Found:
    """Between the optimum of the largest device quantile p, which is below, and that of p^(1/K), which keeps p for all together."""
    assert problem.quantile is not None  # noqa: S101 - the caller looked
    p, X = problem.quantile, problem.fluctuation
    below = exact.solve(problem, X.quantile(p)).lower_s
    each = exact.solve(problem, X.tail_quantile(-math.expm1(math.log(p) / problem.devices)))
    plans = [(each.rows, each.shares), *rivals.plans]
    best = min((_as_it_is(table, p, *plan) for plan in plans), key=lambda c: c.value_s)
    above = best.value_s
    if problem.devices > MOST_TO_POLISH:
        return best, below, DEVICE_QUANTILE, [above]
    objective = QuantileOfMax(table, p, below)
    root = objective.relaxed(
        table.allowed, _pure(table, best), best.shares, enough_s=above, steps=1
    )
    best = min(
        [best, *(objective.polished(c, root.shares) for c in objective.roundings(root))],
        key=lambda c: c.value_s,
    )
    history = [above, best.value_s]
    if not problem.certify or problem.devices > MOST_TO_BRANCH:
        return best, root.bound_s, "price bound", history
    return *_certify(objective, best, root, (below, DEVICE_QUANTILE), "price bound"), history


def _as_it_is(table: SplitTable, p: float, rows: Ints, shares: Floats) -> Candidate:
    choice = table.choice(rows)
    return Candidate(choice, shares, table.law(choice, shares).max_quantile_s(p))


def _larger(bound: Proof, other: Proof) -> Proof:
    """The better of two lower bounds; where they are equal, the first."""
    return other if other[0] > bound[0] else bound


def _certify(
    objective: Objective, best: Candidate, root: Node, other: Proof, at_root: str
) -> tuple[Candidate, float, str]:
    most_nodes = min(MOST_NODES, NODES_TIMES_DEVICES // len(best.choice))
    done = branch_and_bound(objective, best, root, target=TARGET, most_nodes=most_nodes)
    how = at_root if done.nodes == 1 else f"branch and bound, {done.nodes} nodes"
    return done.candidate, *_larger((done.bound_s, how), other)


def _pure(table: SplitTable, candidate: Candidate) -> Floats:
    """A plan as a mixture with one split a device."""
    return np.eye(table.shift_s.shape[1])[candidate.choice]
