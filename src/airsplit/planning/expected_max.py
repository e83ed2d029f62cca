"""The method "expected-max": minimise E[max_k τ_k], or a quantile of max_k τ_k, with a certificate."""

from __future__ import annotations

import numpy as np

from airsplit.planning import exact
from airsplit.planning.bandwidth import within_budget
from airsplit.planning.branching import branch_and_bound, pure
from airsplit.planning.plans import Plan, make_plan
from airsplit.planning.prices import price
from airsplit.planning.problem import Problem
from airsplit.planning.relaxation import relax
from airsplit.planning.search import Candidate, improve, starts
from airsplit.planning.tables import LocalAir, SplitTable

TARGET = 1e-3


def minimise_expected_max(problem: Problem) -> Plan:
    """The plan with the least E[max_k τ_k] that the search finds, and a proven lower bound on the least there is."""
    table = SplitTable.of(problem)
    candidates = starts(table)
    best = improve(table, candidates[0], most_tries=12)
    root = relax(table, table.allowed, pure(table, best), enough_s=best.value_s / (1 + 1e-6), steps=30 if problem.certify else 1)
    bound, nodes = root.bound_s, 1
    if problem.certify:
        done = branch_and_bound(table, best, root, target=TARGET, most_nodes=400)
        best, bound, nodes = done.candidate, done.bound_s, done.nodes
    rows = table.rows[best.choice]
    shares = within_budget(best.shares)
    return make_plan(
        problem,
        rows,
        shares,
        method="expected-max",
        objective_s=problem.law(rows, shares).expected_max_s,
        lower_bound_s=bound,
        status=f"{nodes} nodes",
    )
