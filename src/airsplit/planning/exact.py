r"""The exact joint optimum of options and shares, for the largest mean or device quantile.

Minimize max_k [κ_k c_ℓ + s_ℓ + t_k(ℓ, b_k)] over an option ℓ_k and a share b_k of each device, with
Σ_k b_k ≤ 1; κ_k = a_k + s/ε_k at a risk s. To finish by τ device k needs

    q_k(τ) = min_ℓ R_k⁻¹(D_ℓ / (τ - κ_k c_ℓ - s_ℓ)),

so a plan with latency τ exists exactly when Σ_k q_k(τ) ≤ 1, and q_k falls as τ grows. Newton's
method on 1/Σq, kept in a bracket, comes close to the root; policy iteration ends there: take the
options that are best at a feasible τ, let algorithm 1 finish them as early as possible, repeat; τ
falls and stops at the optimum over all options and shares together. (Policy iteration alone is slow
if a deep split of a slow device is a pole just below τ; Newton alone can cycle, because Σq is not
convex.)

A step is one pass over the table, O(K R), and some eight passes suffice. Just below the optimum
Σ_k q_k > 1, which proves that no plan finishes by then.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from airsplit.core.arrays import Floats, Ints
from airsplit.planning.blocks import bracket_finish, share_out_blocks
from airsplit.planning.problem import Problem
from airsplit.planning.shares import allocate_shares

# Options that differ by less than this, relatively, tie: rounding must not decide between them.
TIE = 1e-12


@dataclass(frozen=True, eq=False)
class Solution:
    """Rows and shares of the optimum.

    Attributes:
        lower_s: A proven lower bound: no plan finishes by then.
        history: The latency after each step of policy iteration.
    """

    rows: Ints
    shares: Floats
    lower_s: float
    history: tuple[float, ...]


def solve(problem: Problem, risk: float) -> Solution:
    """Return the plan that minimizes max_k (x_k + s β_k) over allowed options and shares."""
    options = problem.options
    rows, near_s = approach(problem, risk)
    history: list[float] = []
    shares = np.empty(0)
    tau = np.inf
    while True:
        up_bits = options.up_bits[rows]
        down_bits = options.down_bits[rows]
        busy_s = problem.busy_s(rows, risk)
        allocation = allocate_shares(problem.link, up_bits, down_bits, busy_s, near_s)
        # τ falls from step to step until rounding stops it.
        if allocation.finish_s >= tau * (1 - 1e-14) and history:
            break
        tau = near_s = allocation.finish_s
        shares = allocation.shares
        history.append(tau)
        better = _quickest_by(problem, risk, tau, tie=TIE)
        if (better == rows).all():
            break
        rows = better

    lower_s = prove_lower(problem, risk, tau)
    if problem.blocks is not None:
        rows, shares, lower_s = solve_blocks(problem, risk, problem.blocks, lower_s)
    return Solution(rows, shares, lower_s, tuple(history))


def solve_blocks(
    problem: Problem, risk: float, blocks: int, lower_s: float
) -> tuple[Ints, Floats, float]:
    """Return rows, shares and a proven lower bound of the best plan in whole blocks."""
    low, high = bracket_finish(lambda t: needed_shares(problem, risk, t)[0], blocks, lower_s)
    needed, rows = needed_shares(problem, risk, high)
    shares = share_out_blocks(
        problem.link,
        problem.options.up_bits[rows],
        problem.options.down_bits[rows],
        problem.busy_s(rows, risk),
        needed,
        blocks,
    )
    if problem.devices == 1:
        # One device gets every block, so its optimum is that of a continuous band.
        return rows, shares, lower_s
    return rows, shares, low


def approach(problem: Problem, risk: float) -> tuple[Ints, float]:
    """Return rows that are best at, or next to, the least feasible τ, and about that τ."""
    # With the whole band for each device no plan is faster: the bracket begins there.
    full_band = np.ones(problem.devices)
    rows = quickest_at_shares(problem, risk, full_band)
    low = problem.worst_s(rows, full_band, risk)
    high = np.inf
    rows_at_low = rows
    rows_at_high = None
    tau = low
    for turn in range(200):
        b, rows = needed_shares(problem, risk, tau)
        total = float(b.sum())
        if total > 1:
            low = tau
            rows_at_low = rows
        else:
            high = tau
            rows_at_high = rows
        # Between two times with the same best rows policy iteration is at its end at once.
        if rows_at_high is not None and (
            (rows_at_low == rows_at_high).all() or high - low <= 1e-12 * high
        ):
            break

        tau += _newton_step(problem, rows, b, total)
        # Every fourth step is a bisection, so that a cycle of Newton's method cannot last.
        if not low < tau < high or turn % 4 == 3:
            tau = float(np.sqrt(low * high)) if high < np.inf else 2 * low
    return (rows_at_low if rows_at_high is None else rows_at_high), tau


def _newton_step(problem: Problem, rows: Ints, b: Floats, total: float) -> float:
    """Return Newton's step for 1/Σq = 1 at fixed rows; zero if some device cannot finish at all."""
    if not np.isfinite(total):
        return 0.0
    options = problem.options
    t = problem.link.transmit(options.up_bits[rows], options.down_bits[rows], b)
    # db/dτ = 1 / t'(b), because t(b) = τ - busy.
    slope = float((1 / t.slope).sum())
    return total * (1 - total) / slope


def needed_shares(problem: Problem, risk: float, tau: float) -> tuple[Floats, Ints]:
    """Return q_k(τ) and the rows that attain it; infinite for a device that cannot make it."""
    rows = _quickest_by(problem, risk, tau)
    return problem.needed_shares(rows, tau - problem.busy_s(rows, risk)), rows


def _quickest_by(problem: Problem, risk: float, tau: float, tie: float = 0.0) -> Ints:
    """Return the row with which each device needs the least band to finish by τ.

    Ties, to a relative `tie`, go to the earlier row.
    """
    options = problem.options
    kappa = problem.pace(risk)
    is_open = problem.allowed.by_all
    has_one_payload = options.has_one_payload
    best = np.full(problem.devices, -np.inf)
    rows = problem.allowed.first_of(problem.front_rows)
    # One payload: the score is (τ - busy) / D. Else it is the negative share, whose margin is below
    # one.
    margin = 1 + tie if has_one_payload else 1 - tie

    for row in problem.hull_rows:
        # In place: at a million devices each temporary array costs as much as its arithmetic.
        score = kappa * -options.work[row]
        score += tau - problem.server_s[row]
        if has_one_payload:
            score /= options.up_bits[row]
        else:
            score = -problem.link.share(options.up_bits[row], options.down_bits[row], score)
        is_better = score > best * margin if tie else score > best
        if not is_open[row]:
            is_better &= problem.allowed.includes(row)
        np.copyto(best, score, where=is_better)
        np.copyto(rows, row, where=is_better)
    return rows


def quickest_at_shares(problem: Problem, risk: float, shares: Floats) -> Ints:
    """Return the row with which each device finishes first at given shares.

    Ties go to the earlier row.
    """
    options = problem.options
    kappa = problem.pace(risk)
    is_open = problem.allowed.by_all
    best = np.full(problem.devices, np.inf)
    rows = problem.allowed.first_of(problem.front_rows)
    for row in problem.front_rows:
        finish_s = kappa * options.work[row] + problem.server_s[row]
        finish_s += problem.link.seconds(options.up_bits[row], options.down_bits[row], shares)
        # Strictly better, so that the earlier row wins a tie.
        is_better = finish_s < best * (1 - TIE)
        if not is_open[row]:
            is_better &= problem.allowed.includes(row)
        np.copyto(best, finish_s, where=is_better)
        np.copyto(rows, row, where=is_better)
    return rows


def prove_lower(problem: Problem, risk: float, tau: float) -> float:
    """Return a time just below the optimum τ by which no plan finishes, because Σ q_k > 1."""
    # Rounding in τ or in Σq may hide the excess at first, so the margin grows.
    margin = 1e-13
    while True:
        lower_s = tau * (1 - margin)
        if float(needed_shares(problem, risk, lower_s)[0].sum()) > 1:
            return lower_s
        margin *= 10
