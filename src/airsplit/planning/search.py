"""Good plans for E[max]: exact splits at several risk levels, polished shares, then single swaps of splits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from airsplit.planning import exact
from airsplit.planning.polishing import polish_shares
from airsplit.planning.prices import price
from airsplit.planning.tables import LocalAir, SplitTable
from airsplit.units import Floats, Ints


@dataclass(frozen=True, eq=False)
class Candidate:
    """A choice of splits with its best shares and their E[max]."""

    choice: Ints
    shares: Floats
    value_s: float


def polished(table: SplitTable, choice: Ints, shares: Floats) -> Candidate:
    """The best shares for a choice."""
    problem = table.problem
    rows = table.rows[choice]
    up, down = problem.up_bits[rows], problem.down_bits[rows]
    value, b = polish_shares(
        table.pick(table.shift_s, choice),
        table.pick(table.scale_s, choice),
        problem.fluctuation,
        lambda b: problem.link.transmit(up, down, b),
        shares,
    )
    return Candidate(choice, b, value)


def risk_levels(devices: int, count: int) -> Floats:
    """From the best case to beyond the mean of the maximum: s in [0, ln K + 3]."""
    return np.linspace(0.0, np.log(devices) + 3, count)


def starts(table: SplitTable, *, count: int = 6) -> list[Candidate]:
    """Exact plans for several risk levels, polished; the best first."""
    problem = table.problem
    found: dict[bytes, Candidate] = {}
    for risk in (1.0, *risk_levels(problem.devices, count)):
        solution = exact.solve(problem, float(risk))
        choice = table.choice(solution.rows)
        if choice.tobytes() not in found:
            found[choice.tobytes()] = polished(table, choice, solution.shares)
    return sorted(found.values(), key=lambda c: c.value_s)


def improve(table: SplitTable, candidate: Candidate, *, most_tries: int) -> Candidate:
    """Swap splits, cheapest first by their reduced cost, until `most_tries` in a row do not help."""
    while True:
        better = _better_neighbour(table, candidate, most_tries)
        if better is None:
            return candidate
        candidate = better


def _better_neighbour(table: SplitTable, candidate: Candidate, most_tries: int) -> Candidate | None:
    here = table.law(candidate.choice, candidate.shares).last_device()
    pricing = price(table, table.allowed, here, LocalAir.near(table, candidate.shares))
    cheapest = pricing.costs_s.argmin(axis=1)
    if (cheapest != candidate.choice).sum() > 1:
        together = polished(table, cheapest, candidate.shares)
        if together.value_s < candidate.value_s * (1 - 1e-9):
            return together
    saving = table.pick(pricing.costs_s, candidate.choice)[:, None] - pricing.costs_s
    saving[np.arange(len(saving)), candidate.choice] = -np.inf
    order = np.argsort(-saving, axis=None, kind="stable")[:most_tries]
    for k, r in zip(*np.unravel_index(order, saving.shape), strict=True):
        if not table.allowed[k, r]:
            break
        choice = candidate.choice.copy()
        choice[k] = r
        swapped = polished(table, choice, candidate.shares)
        if swapped.value_s < candidate.value_s * (1 - 1e-9):
            return swapped
    return None
