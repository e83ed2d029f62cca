"""Planning beside general solvers: shares for given splits, and the joint choice of splits and shares."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

import airsplit as air
from airsplit.planning.arguments import make_problem
from airsplit.planning.problem import Problem
from airsplit.planning.shares import allocate_shares
from airsplit.system.profile import load_shipped_profile
from peers.environments import run, versions
from peers.table import Race, Section, duration, times
from timing import measure_s

LIMIT_S = 60.0
SIZES = (20, 1_000, 10_000, 100_000)
JOINT = (5, 20)
SOLVERS = {
    "brentq": "scipy's brentq on Σ b(τ) = 1",
    "clarabel": "cvxpy with Clarabel",
    "scs": "cvxpy with SCS",
}


def compared(quick: bool = False) -> Section:
    section = Section(
        "Planning",
        [
            "Shares: algorithm 1, all devices cut AlexNet at split 4, no fading, distances spread by half, seed 0. "
            "Joint: splits and shares together, AlexNet with all its splits, seed 0; for SCIP an exact mixed-integer cone program.",
            f"At most {LIMIT_S:.0f} s each. The solver alone leaves out what cvxpy takes to bring the problem into its form. "
            "Tolerances: Clarabel's own, 1e-6 for SCS, a gap of 1e-6 for SCIP. brentq is no rival of its kind: it needs the "
            "derivation that Σ b(τ) = 1 is all there is to solve. Our times are the best of repeated calls; "
            "so are brentq's; the others are called once, after a small problem that loads what they need.",
        ],
        ["job", "devices", "in all", "solver alone", "times ours", "objective against ours"],
        peers=[versions("solvers", "cvxpy", "clarabel", "scs", "pyscipopt", "scipy")],
    )
    for K in SIZES[:2] if quick else SIZES:
        shares(section, K)
    for K in JOINT[:1] if quick else JOINT:
        joint(section, K)
    return section


def fleet(K: int) -> air.Fleet:
    """A megahertz for each device, as in the paper's cell of 20."""
    return air.Fleet.sample(
        K, seed=0, distance_spread=0.5, fading=False, cell=air.Cell(bandwidth_hz=1e6 * K)
    )


def shares(section: Section, K: int) -> None:
    problem = make_problem(load_shipped_profile("alexnet"), fleet(K), split=4)
    rows = np.full(K, 3)
    busy = problem.busy_s(rows, 1.0)
    up = problem.options.up_bits[rows]
    down = problem.options.down_bits[rows]
    done = allocate_shares(problem.link, up, down, busy)
    ours = measure_s(lambda: allocate_shares(problem.link, up, down, busy), 20)
    section.rows.append(["shares: Airsplit", f"{K:,}", duration(ours), "", "1", ""])
    air_time = problem.link.seconds(up, down, np.ones(K))
    for solver, name in SOLVERS.items():
        peer(
            section,
            f"shares: {name}",
            K,
            solver,
            {"busy": busy, "air": air_time},
            ours,
            done.finish_s,
        )


def joint(section: Section, K: int) -> None:
    profile, crowd = load_shipped_profile("alexnet"), fleet(K)
    plan = air.plan(profile, crowd, method="exact")
    ours = measure_s(lambda: air.plan(profile, crowd, method="exact"), 20)
    section.rows.append(["joint: Airsplit's `plan`", f"{K:,}", duration(ours), "", "1", ""])
    busy, air_time = tables(make_problem(profile, crowd))
    peer(
        section,
        "joint: cvxpy with SCIP",
        K,
        "scip",
        {"busy": busy, "air": air_time},
        ours,
        plan.objective_s,
    )


def tables(problem: Problem) -> tuple[air.units.Floats, air.units.Floats]:
    """Busy time and air time with the whole band, devices × splits that the planner may choose from."""
    K = problem.devices
    allowed = [np.full(K, row) for row in np.flatnonzero(problem.allowed.by_all)]
    busy = np.stack([problem.busy_s(rows, 1.0) for rows in allowed], axis=1)
    link = problem.link
    up = problem.options.up_bits
    down = problem.options.down_bits
    return busy, np.stack(
        [link.seconds(up[rows], down[rows], np.ones(K)) for rows in allowed], axis=1
    )


def peer(
    section: Section,
    name: str,
    K: int,
    solver: str,
    arrays: dict[str, air.units.Floats],
    ours: float,
    objective: float,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "problem.npz"
        np.savez(path, **arrays)
        outcome = run("solvers", "solve", {"solver": solver, "path": str(path), "limit_s": LIMIT_S})
    if outcome.failed:
        section.rows.append([name, f"{K:,}", outcome.failed, "", "", ""])
        return
    found = outcome.found
    alone = found["solver_s"]
    if found["status"] != "optimal":
        section.rows.append(
            [name, f"{K:,}", f"{found['status']} after {duration(found['in_all_s'])}", "", "", ""]
        )
        return
    what, _, rival = name.partition(": ")
    off = found["objective_s"] / objective - 1
    section.rows.append(
        [
            name,
            f"{K:,}",
            duration(found["in_all_s"]),
            duration(alone),
            times(found["in_all_s"] / ours),
            f"{off:+.1e}",
        ]
    )
    section.races.append(
        Race(f"{what} for {K:,} devices, solver alone", "time", ours, rival, alone)
    )
