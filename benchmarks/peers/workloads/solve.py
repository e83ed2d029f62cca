"""Solve a planning problem with a general solver."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from peers.workloads import get_arguments, report

BRENTQ_REPEATS = 20


def solve_by_brentq(busy: Any, air: Any) -> dict[str, Any]:
    """Solve Σ b(τ) = 1, the equation that is left once it is known that all finish together."""
    from scipy.optimize import brentq

    low = float((busy + air).max())
    high = float(busy.max() + air.sum())
    times = []
    for _ in range(BRENTQ_REPEATS):
        start = time.perf_counter()
        tau = brentq(lambda tau: float((air / (tau - busy)).sum()) - 1, low, high, rtol=1e-13)
        times.append(time.perf_counter() - start)
    return {"objective_s": tau, "in_all_s": min(times), "solver_s": min(times), "status": "optimal"}


def allocate_shares(solver: str, busy: Any, air: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Find the least τ with busy + air / b ≤ τ and Σ b ≤ 1."""
    import cvxpy as cp

    # Shares in units of 1/K, times in units of the longest: the solver needs numbers near 1.
    K = len(busy)
    unit = float(busy.max())
    b = cp.Variable(K)
    tau = cp.Variable()
    limits = [cp.multiply(K * air / unit, cp.inv_pos(b)) + busy / unit <= tau, cp.sum(b) <= K]
    return solve(cp.Problem(cp.Minimize(tau), limits), solver, options, unit)


def allocate_jointly(busy: Any, air: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Solve the same problem with a split for each device to choose.

    With x in {0, 1}, one of them 1, the air time s needs b s ≥ Σ x air = (Σ x √air)², a rotated
    cone.
    """
    import cvxpy as cp

    K, rows = busy.shape
    unit = float(np.median(busy))
    x = cp.Variable((K, rows), boolean=True)
    b = cp.Variable(K)
    s = cp.Variable(K)
    tau = cp.Variable()
    root = cp.sum(cp.multiply(np.sqrt(K * air / unit), x), axis=1)
    cones = [cp.SOC(b[k] + s[k], cp.hstack([2 * root[k], b[k] - s[k]])) for k in range(K)]
    limits = [
        cp.sum(x, axis=1) == 1,
        cp.sum(b) <= K,
        b >= 0,
        s >= 0,
        cp.sum(cp.multiply(busy / unit, x), axis=1) + s <= tau,
    ]
    return solve(cp.Problem(cp.Minimize(tau), [*limits, *cones]), "SCIP", options, unit)


def solve(problem: Any, solver: str, options: dict[str, Any], unit: float) -> dict[str, Any]:
    """Solve a problem of cvxpy, and return its objective and times."""
    start = time.perf_counter()
    problem.solve(solver=solver, **options)
    in_all_s = time.perf_counter() - start
    return {
        "objective_s": problem.value * unit,
        "in_all_s": in_all_s,
        # Some solvers do not report their time.
        "solver_s": problem.solver_stats.solve_time or in_all_s,
        "status": problem.status,
    }


def run_solver(solver: str, busy: Any, air: Any, limit_s: float) -> dict[str, Any]:
    """Solve with one of the solvers that the driver knows."""
    if solver == "brentq":
        return solve_by_brentq(busy, air)
    if solver == "clarabel":
        return allocate_shares("CLARABEL", busy, air, {"time_limit": limit_s})
    if solver == "scs":
        options = {
            "time_limit_secs": limit_s,
            "eps_abs": 1e-6,
            "eps_rel": 1e-6,
            "max_iters": 10**6,
        }
        return allocate_shares("SCS", busy, air, options)
    scip_params = {"limits/time": limit_s, "limits/gap": 1e-6}
    return allocate_jointly(busy, air, {"scip_params": scip_params})


def main() -> None:
    """Solve a small problem, which loads what the solver needs, then the driver's."""
    arguments = get_arguments()
    problem = np.load(arguments["path"])
    busy, air = problem["busy"], problem["air"]
    run_solver(arguments["solver"], busy[:2], air[:2], arguments["limit_s"])
    report(**run_solver(arguments["solver"], busy, air, arguments["limit_s"]))


if __name__ == "__main__":
    main()
