"""Good plans for E[max]: the splits of other methods, polished shares, then swaps of splits by their reduced cost."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from airsplit.core.arrays import Floats, Ints
from airsplit.planning import exact
from airsplit.planning.baselines import equal
from airsplit.planning.branch_and_bound import Candidate, Node
from airsplit.planning.newton_shares import polish_shares
from airsplit.planning.options import LocalAir, Mask, SplitTable, pick
from airsplit.planning.paper_algorithms import alternate
from airsplit.planning.prices import Pricing, price
from airsplit.planning.problem import Problem
from airsplit.planning.relaxation import relax


@dataclass(frozen=True, eq=False)
class ExpectedMax:
    """E[max_k τ_k] as an objective for branch and bound."""

    table: SplitTable

    def polished(self, choice: Ints, shares: Floats) -> Candidate:
        """The best shares for a choice."""
        table, problem, rows = self.table, self.table.problem, self.table.rows_of(choice)
        up, down = problem.up_bits[rows], problem.down_bits[rows]
        value, b = polish_shares(
            pick(table.shift_s, choice),
            pick(table.scale_s, choice),
            problem.fluctuation,
            lambda b: problem.link.transmit(up, down, b),
            shares,
        )
        return Candidate(choice, b, value)

    def relaxed(
        self, allowed: Mask, weights: Floats, shares: Floats, *, enough_s: float, steps: int
    ) -> Node:
        """The convex relaxation; for one plan its own prices, which are then the best."""
        choice = allowed.argmax(axis=1)
        if (allowed.sum(axis=1) > 1).any():
            return relax(self.table, allowed, weights, shares, enough_s=enough_s, steps=steps)
        only = self.polished(choice, shares)
        pricing = self._priced(only, allowed)
        return Node(
            allowed, pricing.bound_s, weights, only.shares, pricing.costs_s, np.zeros(len(choice))
        )

    def improved(self, candidate: Candidate, most_tries: int) -> Candidate:
        """Swap splits, cheapest first, until `most_tries` in a row do not help."""
        while True:
            better = self._better_neighbor(candidate, most_tries)
            if better is None:
                return candidate
            candidate = better

    def _priced(self, candidate: Candidate, allowed: Mask) -> Pricing:
        here = self.table.law(candidate.choice, candidate.shares).smooth().last_device()
        return price(self.table, allowed, here, LocalAir.near(self.table, candidate.shares))

    def _better_neighbor(self, candidate: Candidate, most_tries: int) -> Candidate | None:
        costs = self._priced(candidate, self.table.allowed).costs_s
        for choice in _neighbors(costs, candidate.choice, most_tries):
            swapped = self.polished(choice, candidate.shares)
            if swapped.value_s < candidate.value_s * (1 - 1e-9):
                return swapped
        return None


def _neighbors(costs: Floats, choice: Ints, most: int) -> list[Ints]:
    """All devices at their cheapest split, then single swaps, the most promising first."""
    cheapest = costs.argmin(axis=1)
    found = [cheapest] if (cheapest != choice).sum() > 1 else []
    rise = costs - pick(costs, choice)[:, None]
    np.put_along_axis(rise, choice[:, None], np.inf, axis=1)
    for at in np.argsort(rise, axis=None, kind="stable")[:most]:
        k, r = np.unravel_index(at, rise.shape)
        if not np.isfinite(rise[k, r]):
            break
        swapped = choice.copy()
        swapped[k] = r
        found.append(swapped)
    return found


def risk_levels(devices: int) -> list[float]:
    """The mean, then from the best case to beyond the mean of the maximum: s in [0, ln K + 3].

    >>> [round(s, 2) for s in risk_levels(20)]
    [1.0, 0.0, 1.2, 2.4, 3.6, 4.8, 6.0]
    """
    return [1.0, *np.linspace(0.0, np.log(devices) + 3, 6).tolist()]


@dataclass(frozen=True, eq=False)
class Rivals:
    """Rows and shares of what other methods plan, and Jensen's bound: E[max] is at least the exact optimum of the largest mean."""

    plans: list[tuple[Ints, Floats]]
    jensen_s: float


def rivals_of(problem: Problem) -> Rivals:
    """Exact plans for several risk levels, the mean first, the paper's algorithm and equal shares."""
    exact_plans = [exact.solve(problem, risk) for risk in risk_levels(problem.devices)]
    paper = alternate(problem)
    plans = [
        *((plan.rows, plan.shares) for plan in exact_plans),
        (paper.rows, paper.shares),
        equal(problem),
    ]
    return Rivals(plans, exact_plans[0].lower_s)


def starting_candidates(objective: ExpectedMax, rivals: Rivals) -> list[Candidate]:
    """The rivals' splits with polished shares, the best first: what comes of them is never worse than a rival."""
    found: dict[bytes, Candidate] = {}
    for rows, shares in rivals.plans:
        choice = objective.table.choice(rows)
        if choice.tobytes() not in found:
            found[choice.tobytes()] = objective.polished(choice, shares)
    return sorted(found.values(), key=lambda c: c.value_s)


def rounded_candidates(objective: ExpectedMax, node: Node) -> list[Candidate]:
    """Plans from a mixture: each device's heaviest split, and its split at two points of the cumulated weights."""
    weights = np.where(node.allowed, node.weights, 0.0)
    cumulated = weights.cumsum(axis=1) / weights.sum(axis=1, keepdims=True)
    choices = [weights.argmax(axis=1), *((cumulated > part).argmax(axis=1) for part in (0.4, 0.6))]
    return [objective.polished(choice, node.shares) for choice in choices]
