"""Good plans for E[max_k τ_k]: other methods' options with refined shares, then swaps of options.

A swap changes the option of one device. Swaps are tried in the order of their reduced cost at the
prices of the current plan, each with its shares refined, until several in a row do not help.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from airsplit.core.arrays import Floats, Ints
from airsplit.planning import exact
from airsplit.planning.baselines import equal
from airsplit.planning.branch_and_bound import Candidate, Node
from airsplit.planning.cost_table import CostTable, LocalAir, select
from airsplit.planning.newton_shares import refine_shares
from airsplit.planning.options import Mask
from airsplit.planning.paper_algorithms import alternate
from airsplit.planning.prices import Pricing, price
from airsplit.planning.problem import Problem
from airsplit.planning.relaxation import relax


@dataclass(frozen=True, eq=False)
class ExpectedMax:
    """E[max_k τ_k] as an objective for branch and bound."""

    table: CostTable

    def refine(self, choice: Ints, shares: Floats) -> Candidate:
        """Return a choice with its best shares, searched for from the given ones."""
        table = self.table
        rows = table.rows_of(choice)
        up_bits = table.problem.options.up_bits[rows]
        down_bits = table.problem.options.down_bits[rows]
        value, b = refine_shares(
            select(table.shift_s, choice),
            select(table.scale_s, choice),
            table.problem.fluctuation,
            lambda b: table.problem.link.transmit(up_bits, down_bits, b),
            shares,
        )
        return Candidate(choice, b, value)

    def relax(
        self, allowed: Mask, weights: Floats, shares: Floats, *, enough_s: float, steps: int
    ) -> Node:
        """Bound all plans with allowed options by the convex relaxation.

        If one plan is left, its own prices are the best.
        """
        # A mixture of single options is a plan, and the relaxation is exact there.
        if (allowed.sum(axis=1) > 1).any():
            return relax(self.table, allowed, weights, shares, enough_s=enough_s, steps=steps)
        only = self.refine(allowed.argmax(axis=1), shares)
        pricing = self._price(only, allowed)
        return Node(
            allowed,
            pricing.bound_s,
            weights,
            only.shares,
            keep_below_s=pricing.costs_s,
            saving_s=np.zeros(len(shares)),
        )

    def improve(self, candidate: Candidate, most_tries: int) -> Candidate:
        """Swap options, cheapest first, until `most_tries` in a row do not help."""
        while True:
            costs = self._price(candidate, self.table.allowed).costs_s
            for choice in neighbors(costs, candidate.choice, most_tries):
                swapped = self.refine(choice, candidate.shares)
                # By a margin, so that the search cannot go in circles through rounding.
                if swapped.value_s < candidate.value_s * (1 - 1e-9):
                    candidate = swapped
                    break
            else:
                return candidate

    def _price(self, candidate: Candidate, allowed: Mask) -> Pricing:
        """Return the price bound from a plan's own prices."""
        law = self.table.law(candidate.choice, candidate.shares)
        local_air = LocalAir.near(self.table, candidate.shares)
        return price(self.table, allowed, law.smooth().last_device(), local_air)


def neighbors(costs: Floats, choice: Ints, most_swaps: int) -> list[Ints]:
    """Return all devices at their cheapest option, then single swaps, the most promising first.

    Args:
        costs: The reduced cost of each option, K × R; infinite if not allowed.

    >>> costs = np.array([[10.0, 13.0, 11.0], [20.0, 22.0, 19.0]])
    >>> [choice.tolist() for choice in neighbors(costs, np.array([0, 0]), most_swaps=2)]
    [[0, 2], [2, 0]]
    """
    cheapest = costs.argmin(axis=1)
    choices = []
    # With one device to change, this is the first single swap.
    if (cheapest != choice).sum() > 1:
        choices.append(cheapest)

    rise = costs - select(costs, choice)[:, None]
    np.put_along_axis(rise, choice[:, None], np.inf, axis=1)
    for at in np.argsort(rise, axis=None, kind="stable")[:most_swaps]:
        k, r = np.unravel_index(at, rise.shape)
        if not np.isfinite(rise[k, r]):
            break
        swapped = choice.copy()
        swapped[k] = r
        choices.append(swapped)
    return choices


def risk_levels(devices: int) -> list[float]:
    """Return the mean, then levels from the best case to beyond the mean of the maximum.

    They cover s in [0, ln K + 3]: the maximum of K draws of Exp(1) has a mean near ln K.

    >>> [round(s, 2) for s in risk_levels(20)]
    [1.0, 0.0, 1.2, 2.4, 3.6, 4.8, 6.0]
    """
    return [1.0, *np.linspace(0.0, np.log(devices) + 3, 6).tolist()]


@dataclass(frozen=True, eq=False)
class Rivals:
    """Plans of other methods.

    Attributes:
        plans: Rows and shares of each.
        jensen_s: E[max_k τ_k] ≥ max_k E[τ_k], so no plan is below the exact optimum of the latter.
    """

    plans: list[tuple[Ints, Floats]]
    jensen_s: float


def plan_rivals(problem: Problem) -> Rivals:
    """Plan exactly for several risks, mean first; by the paper's algorithm; with equal shares."""
    solutions = [exact.solve(problem, risk) for risk in risk_levels(problem.devices)]
    alternation = alternate(problem)
    plans = [
        *((solution.rows, solution.shares) for solution in solutions),
        (alternation.rows, alternation.shares),
        equal(problem),
    ]
    return Rivals(plans, jensen_s=solutions[0].lower_s)


def starting_candidates(objective: ExpectedMax, rivals: Rivals) -> list[Candidate]:
    """Return the rivals' options with refined shares, the best first.

    None is worse than the rival that it comes from, unless that takes an option off the front.
    """
    candidates: dict[bytes, Candidate] = {}
    for rows, shares in rivals.plans:
        choice = objective.table.choice_of(rows)
        # Rivals often agree on the options; refining is what costs time.
        key = choice.tobytes()
        if key not in candidates:
            candidates[key] = objective.refine(choice, shares)
    return sorted(candidates.values(), key=lambda c: c.value_s)


def round_relaxation(objective: ExpectedMax, node: Node) -> list[Candidate]:
    """Return plans from a mixture.

    Each device takes its heaviest option, or the one at 0.4 or 0.6 of the cumulated weights.
    """
    weights = np.where(node.allowed, node.weights, 0.0)
    # Neighboring options cost about the same, so the middle of a mixture is a fair guess.
    cumulated = weights.cumsum(axis=1) / weights.sum(axis=1, keepdims=True)
    choices = [weights.argmax(axis=1)]
    choices += [(cumulated > fraction).argmax(axis=1) for fraction in (0.4, 0.6)]
    return [objective.refine(choice, node.shares) for choice in choices]
