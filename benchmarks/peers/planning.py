"""Planning beside general solvers: shares for given splits, and splits and shares together."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import airsplit as air
from airsplit.core.arrays import Floats
from airsplit.planning.arguments import make_problem
from airsplit.planning.problem import Problem
from airsplit.planning.shares import allocate_shares
from airsplit.system.profile import load_shipped_profile
from peers.environments import list_versions, run_workload
from peers.table import Race, Section, format_duration, format_ratio
from timing import measure_s

LIMIT_S = 60.0
SHARES_DEVICES = (20, 1_000, 10_000, 100_000)
JOINT_DEVICES = (5, 20)
SOLVERS = {
    "brentq": "scipy's brentq on Σ b(τ) = 1",
    "clarabel": "cvxpy with Clarabel",
    "scs": "cvxpy with SCS",
}


@dataclass(frozen=True)
class Task:
    """A problem for a solver, and our solution of it.

    Attributes:
        busy: Seconds that each device computes, with a column for each split it may choose.
        air: Seconds that it sends with the whole band, of the same shape.
        objective_s: Latency that Airsplit finds.
        ours_s: Time that Airsplit takes.
    """

    kind: str
    devices: int
    busy: Floats
    air: Floats
    objective_s: float
    ours_s: float


def compare(quick: bool = False) -> Section:
    """Compare all solvers on fleets of several sizes."""
    section = Section(
        "Planning",
        [
            "Shares: algorithm 1, all devices cut AlexNet at split 4, no fading, distances spread "
            "by half, seed 0. Joint: splits and shares together, AlexNet with all its splits, seed "
            "0; for SCIP an exact mixed-integer cone program.",
            f"At most {LIMIT_S:.0f} s each. The solver alone leaves out what cvxpy takes to bring "
            "the problem into its form. Tolerances: Clarabel's own, 1e-6 for SCS, a gap of 1e-6 "
            "for SCIP. brentq is no rival of its kind: it needs the derivation that Σ b(τ) = 1 is "
            "all there is to solve. Our times are the best of repeated calls; so are brentq's; the "
            "others are called once, after a small problem that loads what they need.",
        ],
        ["job", "devices", "in all", "solver alone", "times ours", "objective against ours"],
        peers=[list_versions("solvers", "cvxpy", "clarabel", "scs", "pyscipopt", "scipy")],
    )
    for K in SHARES_DEVICES[:2] if quick else SHARES_DEVICES:
        task = make_shares_task(K)
        add_ours(section, task, "Airsplit")
        for solver, name in SOLVERS.items():
            add_solver(section, task, solver, name)
    for K in JOINT_DEVICES[:1] if quick else JOINT_DEVICES:
        task = make_joint_task(K)
        add_ours(section, task, "Airsplit's `plan`")
        add_solver(section, task, "scip", "cvxpy with SCIP")
    return section


def make_fleet(K: int) -> air.Fleet:
    """Return a fleet with a megahertz for each device, as in the paper's cell of 20."""
    return air.Fleet.sample(
        K, seed=0, distance_spread=0.5, fading=False, cell=air.Cell(bandwidth_hz=1e6 * K)
    )


def make_shares_task(K: int) -> Task:
    """Allocate shares with all devices cut at split 4."""
    problem = make_problem(load_shipped_profile("alexnet"), make_fleet(K), split=4)
    rows = np.full(K, 3)
    busy = problem.busy_s(rows, 1.0)
    up = problem.options.up_bits[rows]
    down = problem.options.down_bits[rows]
    return Task(
        "shares",
        K,
        busy,
        problem.link.seconds(up, down, np.ones(K)),
        objective_s=allocate_shares(problem.link, up, down, busy).finish_s,
        ours_s=measure_s(lambda: allocate_shares(problem.link, up, down, busy), 20),
    )


def make_joint_task(K: int) -> Task:
    """Plan splits and shares."""
    profile = load_shipped_profile("alexnet")
    fleet = make_fleet(K)
    busy, air_time = tabulate_times(make_problem(profile, fleet))
    return Task(
        "joint",
        K,
        busy,
        air_time,
        objective_s=air.plan(profile, fleet, method="exact").objective_s,
        ours_s=measure_s(lambda: air.plan(profile, fleet, method="exact"), 20),
    )


def tabulate_times(problem: Problem) -> tuple[Floats, Floats]:
    """Return busy time, and air time with the whole band.

    Both have a row for each device and a column for each split that all devices may choose.
    """
    K = problem.devices
    options = problem.options
    columns = [np.full(K, row) for row in np.flatnonzero(problem.allowed.by_all)]
    busy = [problem.busy_s(rows, 1.0) for rows in columns]
    air_time = [
        problem.link.seconds(options.up_bits[rows], options.down_bits[rows], np.ones(K))
        for rows in columns
    ]
    return np.stack(busy, axis=1), np.stack(air_time, axis=1)


def add_ours(section: Section, task: Task, name: str) -> None:
    """Add the row of Airsplit."""
    time = format_duration(task.ours_s)
    section.rows.append([f"{task.kind}: {name}", f"{task.devices:,}", time, "", "1", ""])


def add_solver(section: Section, task: Task, solver: str, name: str) -> None:
    """Run a solver in its environment, and add its row and its race."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "problem.npz"
        np.savez(path, busy=task.busy, air=task.air)
        outcome = run_workload(
            "solvers", "solve", {"solver": solver, "path": str(path), "limit_s": LIMIT_S}
        )
    cells = [f"{task.kind}: {name}", f"{task.devices:,}"]
    if outcome.failure:
        section.rows.append([*cells, outcome.failure, "", "", ""])
        return
    values = outcome.values
    time = format_duration(values["in_all_s"])
    if values["status"] != "optimal":
        section.rows.append([*cells, f"{values['status']} after {time}", "", "", ""])
        return
    section.rows.append(
        [
            *cells,
            time,
            format_duration(values["solver_s"]),
            format_ratio(values["in_all_s"] / task.ours_s),
            f"{values['objective_s'] / task.objective_s - 1:+.1e}",
        ]
    )
    section.races.append(
        Race(
            f"{task.kind} for {task.devices:,} devices, solver alone",
            "time",
            task.ours_s,
            name,
            values["solver_s"],
        )
    )
