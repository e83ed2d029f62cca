r"""The method "expected-max": minimize E[max_k τ_k] or a quantile of max_k τ_k, with a certificate.

Over an option ℓ_k and a share b_k of each device, Σ_k b_k ≤ 1:

    E[max_k τ_k] = ∫ (1 - Π_k F_k(t; ℓ_k, b_k)) dt,

convex in the shares, combinatorial in the options. The plan comes from `search`; the lower bound is
the largest of Jensen's, max_k E[τ_k] ≤ E[max_k τ_k] with the left side minimized exactly, the price
bound and the convex relaxation; branch and bound closes the gap between them. For more than
MOST_TO_BRANCH devices the relaxation, and for more than MOST_TO_REFINE the price bound alone, is
what time allows.
"""

from __future__ import annotations

import math

import numpy as np

from airsplit.core.arrays import Floats, Ints
from airsplit.planning import exact
from airsplit.planning.blocks import round_to_blocks
from airsplit.planning.branch_and_bound import Candidate, Node, Objective, branch_and_bound
from airsplit.planning.cost_table import CostTable
from airsplit.planning.newton_shares import MOST_TO_REFINE
from airsplit.planning.problem import Problem
from airsplit.planning.proposal import Bound, ProvenProposal
from airsplit.planning.quantile import QuantileOfMax
from airsplit.planning.search import (
    ExpectedMax,
    Rivals,
    plan_rivals,
    round_relaxation,
    starting_candidates,
)
from airsplit.planning.shares import within_budget

# Branch and bound stops at this gap.
TARGET = 1e-3

# Branch and bound gives up here, after a few seconds; the gap then says how far it came.
MOST_NODES = 400
NODES_TIMES_DEVICES = 4000

# With more devices the relaxation's gap is small anyway, and a node costs seconds.
MOST_TO_BRANCH = 100

JENSEN = "Jensen's inequality"
DEVICE_QUANTILE = "the exact optimum of the largest device quantile"


def minimize_max(problem: Problem) -> ProvenProposal:
    """Minimize E[max_k τ_k], or a quantile of max_k τ_k; return the plan with a proven bound."""
    from threadpoolctl import threadpool_limits

    search = search_mean if problem.quantile is None else search_quantile
    # The matrices are small: threads save no time, and on a busy machine waiting for each other
    # costs them tenfold.
    with threadpool_limits(1, user_api="blas"):
        table = CostTable.of(problem)
        rivals = plan_rivals(problem)
        best, bound, history = search(problem, table, rivals)

    value_s = best.value_s
    rows = table.rows_of(best.choice)
    shares = within_budget(best.shares)
    if problem.blocks is not None:
        rounded = round_to_blocks(
            shares,
            problem.blocks,
            air_s=lambda b: problem.transmit_s(rows, b),
            law=lambda b: problem.law(rows, b),
            objective_s=problem.objective_s,
        )
        # The rivals come in whole blocks already.
        plans = [(rows, rounded), *rivals.plans]
        values = [problem.max_s(*plan) for plan in plans]
        value_s = min(values)
        rows, shares = plans[values.index(value_s)]
    return ProvenProposal(
        rows + 1,
        shares,
        objective="expected-max" if problem.quantile is None else "quantile",
        status=_describe_search(problem),
        history=(*history, value_s),
        bound=bound,
    )


def _describe_search(problem: Problem) -> str:
    """Return the steps of the search, in a few words."""
    steps = ["the best of the exact plans for several risks"]
    if problem.devices <= MOST_TO_REFINE:
        if problem.quantile is None:
            steps.append("swaps of splits")
        steps.append("refined shares")
    if problem.blocks is not None:
        steps.append("whole resource blocks")
    return ", then ".join(steps)


def search_mean(
    problem: Problem, table: CostTable, rivals: Rivals
) -> tuple[Candidate, Bound, list[float]]:
    """Return the best plan for E[max_k τ_k], a bound, and the values on the way."""
    K = problem.devices
    objective = ExpectedMax(table)
    best = starting_candidates(objective, rivals)[0]
    history = [best.value_s]
    if K <= MOST_TO_REFINE:
        # Each try costs O(K·N); in large fleets single swaps gain next to nothing.
        most_tries = 12 if K <= MOST_TO_BRANCH else 0
        best = objective.improve(best, most_tries=most_tries)
        history.append(best.value_s)

    # One step is the price bound at the plan itself; more steps tighten it.
    steps = 30
    if not problem.certify or K > MOST_TO_REFINE:
        steps = 1
    root = objective.relax(
        table.allowed,
        _pure_weights(table, best),
        best.shares,
        # A bound this close proves the plan optimal for all practical purposes.
        enough_s=best.value_s / (1 + 1e-6),
        steps=steps,
    )
    jensen = Bound(rivals.jensen_s, JENSEN)
    if steps == 1:
        return best, _larger(Bound(root.bound_s, "price bound"), jensen), history
    if K > MOST_TO_BRANCH:
        candidates = [best, *round_relaxation(objective, root)]
        best = min(candidates, key=lambda c: c.value_s)
        return best, _larger(Bound(root.bound_s, "convex relaxation"), jensen), history
    best, bound = _certify(objective, best, root, "price bound and convex relaxation")
    return best, _larger(bound, jensen), history


def search_quantile(
    problem: Problem, table: CostTable, rivals: Rivals
) -> tuple[Candidate, Bound, list[float]]:
    """Return the best plan for a quantile of max_k τ_k, a bound, and the values on the way.

    The optimum of the largest device quantile p is below it. That of p^(1/K) is above: if each
    device keeps a time with probability p^(1/K), all keep it together with probability p.
    """
    assert problem.quantile is not None  # noqa: S101 - the caller looked
    p = problem.quantile
    X = problem.fluctuation
    lower_s = exact.solve(problem, X.quantile(p)).lower_s
    # 1 - p^(1/K), accurate also if that is tiny.
    late = -math.expm1(math.log(p) / problem.devices)
    together = exact.solve(problem, X.tail_quantile(late))
    plans = [(together.rows, together.shares), *rivals.plans]
    best = min((_evaluate(table, p, *plan) for plan in plans), key=lambda c: c.value_s)
    upper_s = best.value_s
    device_quantile = Bound(lower_s, DEVICE_QUANTILE)
    if problem.devices > MOST_TO_REFINE:
        return best, device_quantile, [upper_s]

    objective = QuantileOfMax(table, p, lower_s)
    weights = _pure_weights(table, best)
    root = objective.relax(table.allowed, weights, best.shares, enough_s=upper_s, steps=1)
    # The bound is attained by mixtures: round them to plans.
    rounded = [objective.refine(c, root.shares) for c in objective.round_mixture(root)]
    best = min([best, *rounded], key=lambda c: c.value_s)
    history = [upper_s, best.value_s]
    if not problem.certify or problem.devices > MOST_TO_BRANCH:
        return best, Bound(root.bound_s, "price bound"), history
    best, bound = _certify(objective, best, root, "price bound")
    return best, _larger(bound, device_quantile), history


def _evaluate(table: CostTable, p: float, rows: Ints, shares: Floats) -> Candidate:
    """Return a plan as a candidate for the p-quantile of max_k τ_k."""
    choice = table.choice_of(rows)
    return Candidate(choice, shares, table.law(choice, shares).max_quantile_s(p))


def _certify(
    objective: Objective, best: Candidate, root: Node, at_root: str
) -> tuple[Candidate, Bound]:
    """Run branch and bound from the root; return the best plan and the bound that it proves."""
    # A node takes time in proportion to the devices.
    most_nodes = min(MOST_NODES, NODES_TIMES_DEVICES // len(best.choice))
    done = branch_and_bound(objective, best, root, target=TARGET, most_nodes=most_nodes)
    how = at_root if done.nodes == 1 else f"branch and bound, {done.nodes} nodes"
    return done.candidate, Bound(done.bound_s, how)


def _larger(bound: Bound, other: Bound) -> Bound:
    """Return the better of two lower bounds; the first if they are equal."""
    return other if other.lower_s > bound.lower_s else bound


def _pure_weights(table: CostTable, candidate: Candidate) -> Floats:
    """Return a plan as a mixture with one option for each device, K × R."""
    return np.eye(table.shift_s.shape[1])[candidate.choice]
