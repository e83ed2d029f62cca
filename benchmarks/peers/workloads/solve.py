"""Solve a planning problem with a general solver."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from peers.workloads import given, tell


def brentq(busy: Any, air: Any, _: float) -> dict[str, Any]:
    """The one equation that is left once it is known that all finish together."""
    from scipy.optimize import brentq

    low, high = float((busy + air).max()), float(busy.max() + air.sum())
    times = []
    for _ in range(20):
        start = time.perf_counter()
        tau = brentq(lambda tau: float((air / (tau - busy)).sum()) - 1, low, high, rtol=1e-13)
        times.append(time.perf_counter() - start)
    return {"objective_s": tau, "in_all_s": min(times), "solver_s": min(times), "status": "optimal"}


def shares(solver: str, busy: Any, air: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Least τ with busy + air / b ≤ τ and Σ b ≤ 1; b in units of 1/K and times of the longest busy time, for the solver's sake."""
    import cvxpy as cp

    K, unit = len(busy), float(busy.max())
    b, tau = cp.Variable(K), cp.Variable()
    limits = [cp.multiply(K * air / unit, cp.inv_pos(b)) + busy / unit <= tau, cp.sum(b) <= K]
    return solved(cp.Problem(cp.Minimize(tau), limits), solver, options, unit)


def joint(busy: Any, air: Any, options: dict[str, Any]) -> dict[str, Any]:
    """The same with a split for each device to choose.

    With x in {0, 1}, one of them 1, the air time s needs b s ≥ Σ x air = (Σ x √air)², a rotated cone.
    """
    import cvxpy as cp

    K, rows = busy.shape
    unit = float(np.median(busy))
    x, b, s, tau = (
        cp.Variable((K, rows), boolean=True),
        cp.Variable(K),
        cp.Variable(K),
        cp.Variable(),
    )
    root = cp.sum(cp.multiply(np.sqrt(K * air / unit), x), axis=1)
    cones = [cp.SOC(b[k] + s[k], cp.hstack([2 * root[k], b[k] - s[k]])) for k in range(K)]
    limits = [
        cp.sum(x, axis=1) == 1,
        cp.sum(b) <= K,
        b >= 0,
        s >= 0,
        cp.sum(cp.multiply(busy / unit, x), axis=1) + s <= tau,
    ]
    return solved(cp.Problem(cp.Minimize(tau), [*limits, *cones]), "SCIP", options, unit)


def solved(problem: Any, solver: str, options: dict[str, Any], unit: float) -> dict[str, Any]:
    start = time.perf_counter()
    problem.solve(solver=solver, **options)
    in_all = time.perf_counter() - start
    alone = problem.solver_stats.solve_time or in_all
    return {
        "objective_s": problem.value * unit,
        "in_all_s": in_all,
        "solver_s": alone,
        "status": problem.status,
    }


def work(solver: str, busy: Any, air: Any, limit_s: float) -> dict[str, Any]:
    if solver == "brentq":
        return brentq(busy, air, limit_s)
    if solver == "clarabel":
        return shares("CLARABEL", busy, air, {"time_limit": limit_s})
    if solver == "scs":
        return shares(
            "SCS",
            busy,
            air,
            {"time_limit_secs": limit_s, "eps_abs": 1e-6, "eps_rel": 1e-6, "max_iters": 10**6},
        )
    return joint(busy, air, {"scip_params": {"limits/time": limit_s, "limits/gap": 1e-6}})


def main() -> None:
    asked = given()
    problem = np.load(asked["path"])
    busy, air = problem["busy"], problem["air"]
    work(asked["solver"], busy[:2], air[:2], asked["limit_s"])
    tell(**work(asked["solver"], busy, air, asked["limit_s"]))


if __name__ == "__main__":
    main()
