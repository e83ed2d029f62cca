r"""The exact joint optimum of splits and shares.

To finish by τ device k needs q_k(τ) = min_ℓ R_k⁻¹(D_ℓ / (τ - κ_k c_ℓ - server_ℓ)); a plan with latency τ exists exactly when
Σ_k q_k(τ) ≤ 1, and q_k falls as τ grows.  Newton's method on 1/Σq, kept in a bracket, comes close to the root; policy iteration
ends there: take the splits that are best at a feasible τ, let algorithm 1 finish them as early as possible, repeat; τ falls and
stops at the optimum over all splits and shares together.  (Policy iteration alone is slow where a deep split of a slow device is
a pole just below τ; Newton alone can cycle, because Σq is not convex.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from airsplit.core.arrays import Floats, Ints
from airsplit.planning.blocks import bracket_finish, share_out_blocks
from airsplit.planning.problem import Problem
from airsplit.planning.shares import allocate_shares


@dataclass(frozen=True, eq=False)
class Solution:
    """Rows and shares of the optimum; `lower_s` is proven: no plan finishes by then."""

    rows: Ints
    shares: Floats
    lower_s: float
    history: tuple[float, ...]


def solve(problem: Problem, risk: float) -> Solution:
    """The plan that minimizes max_k (x_k + s β_k) over all allowed splits and all shares."""
    link, up, down = problem.link, problem.up_bits, problem.down_bits
    rows, near = approach(problem, risk)
    history: list[float] = []
    shares, tau = np.empty(0), np.inf
    while True:
        done = allocate_shares(link, up[rows], down[rows], problem.busy_s(rows, risk), near)
        if done.finish_s >= tau * (1 - 1e-14) and history:
            break
        tau = near = done.finish_s
        shares = done.shares
        history.append(tau)
        better = best_at(problem, risk, tau, tie=1e-12)  # rounding decides no tie
        if (better == rows).all():
            break
        rows = better
    lower = proven_lower(problem, risk, tau)
    if problem.blocks is not None:
        rows, shares, lower = _in_blocks(problem, risk, problem.blocks, lower)
    return Solution(rows, shares, lower, tuple(history))


def _in_blocks(
    problem: Problem, risk: float, blocks: int, lower_s: float
) -> tuple[Ints, Floats, float]:
    """Return rows, shares and a proven lower bound of the best plan in whole blocks."""
    low, high = bracket_finish(lambda t: needed_shares(problem, risk, t)[0], blocks, lower_s)
    needed, rows = needed_shares(problem, risk, high)
    up, down, busy_s = problem.up_bits[rows], problem.down_bits[rows], problem.busy_s(rows, risk)
    shares = share_out_blocks(problem.link, up, down, busy_s, needed, blocks)
    # A device alone gets every block: its optimum is that of a band that divides at will.
    return rows, shares, low if problem.devices > 1 else lower_s


def approach(problem: Problem, risk: float) -> tuple[Ints, float]:
    """Rows that are best at, or next to, the least feasible τ, and that τ to some accuracy."""
    rows = best_at_shares(problem, risk, np.ones(problem.devices))
    low, high = problem.worst_s(rows, np.ones(problem.devices), risk), np.inf
    at_low, at_high, tau = rows, None, low
    for turn in range(200):
        b, rows = needed_shares(problem, risk, tau)
        total = float(b.sum())
        if total > 1:
            low, at_low = tau, rows
        else:
            high, at_high = tau, rows
        if at_high is not None and ((at_low == at_high).all() or high - low <= 1e-12 * high):
            break
        tau += _newton_step(problem, rows, b, total)
        if not low < tau < high or turn % 4 == 3:
            tau = float(np.sqrt(low * high)) if high < np.inf else 2 * low
    return (at_low if at_high is None else at_high), tau


def _newton_step(problem: Problem, rows: Ints, b: Floats, total: float) -> float:
    """Newton's step for 1/Σq = 1 with the rows held; nothing where some device cannot finish at all."""
    if not np.isfinite(total):
        return 0.0
    slope = float(
        (1 / problem.link.transmit(problem.up_bits[rows], problem.down_bits[rows], b).slope).sum()
    )
    return total * (1 - total) / slope


def best_at(problem: Problem, risk: float, tau: float, tie: float = 0.0) -> Ints:
    """The row with which each device needs the least band to finish by τ; ties, to a relative `tie`, go to the smaller split."""
    kappa = problem.pace(risk)
    best = np.full(problem.devices, -np.inf)
    rows = np.full(problem.devices, problem.rows[0])
    capped = int(problem.deepest.min()) < int(problem.hull_rows[-1])
    margin = 1 + tie if problem.one_payload else 1 - tie  # a share counts as a negative score
    for row in problem.hull_rows:
        score = kappa * -problem.work[row]
        score += tau - problem.server_s[row]
        if problem.one_payload:
            score /= problem.up_bits[row]
        else:
            score = -problem.link.share(problem.up_bits[row], problem.down_bits[row], score)
        better = score > best * margin if tie else score > best
        if capped:
            better &= problem.allowed(row)
        np.copyto(best, score, where=better)
        np.copyto(rows, row, where=better)
    return rows


def needed_shares(problem: Problem, risk: float, tau: float) -> tuple[Floats, Ints]:
    """q_k(τ) and the rows that attain it; infinite for a device that cannot finish by then."""
    rows = best_at(problem, risk, tau)
    spare = tau - problem.busy_s(rows, risk)
    return problem.link.share(problem.up_bits[rows], problem.down_bits[rows], spare), rows


def best_at_shares(problem: Problem, risk: float, shares: Floats) -> Ints:
    """The row with which each device finishes first at given shares; ties go to the smaller split."""
    best = np.full(problem.devices, np.inf)
    rows = np.full(problem.devices, problem.rows[0])
    kappa = problem.pace(risk)
    for row in problem.rows:
        ends = kappa * problem.work[row] + problem.server_s[row]
        ends += problem.link.seconds(problem.up_bits[row], problem.down_bits[row], shares)
        better = (ends < best * (1 - 1e-12)) & problem.allowed(row)  # rounding decides no tie
        np.copyto(best, ends, where=better)
        np.copyto(rows, row, where=better)
    return rows


def proven_lower(problem: Problem, risk: float, tau: float) -> float:
    """A time just below the optimum τ by which no plan can finish, because Σ q_k exceeds one there."""
    margin = 1e-13
    while True:
        lower = tau * (1 - margin)
        if float(needed_shares(problem, risk, lower)[0].sum()) > 1:
            return lower
        margin *= 10
