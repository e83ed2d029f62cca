"""Branch and bound over splits: close the gap between the best plan and the best bound."""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass

import numpy as np

from airsplit.planning.relaxation import Mixture, Relaxed, relax
from airsplit.planning.search import Candidate, improve, polished
from airsplit.planning.tables import Mask, SplitTable


@dataclass(frozen=True, eq=False)
class Certified:
    """The best plan found, the proven bound, and how many nodes it took."""

    candidate: Candidate
    bound_s: float
    nodes: int


def pure(table: SplitTable, candidate: Candidate) -> Mixture:
    """A plan as a mixture with one split a device."""
    weights = np.zeros(table.shift_s.shape)
    weights[np.arange(len(candidate.choice)), candidate.choice] = 1.0
    return Mixture(weights, candidate.shares)


def branch_and_bound(table: SplitTable, candidate: Candidate, root: Relaxed, *, target: float, most_nodes: int) -> Certified:
    """Split the worst-bounded set of plans in two until the gap is at most `target`, or the nodes run out."""
    count = itertools.count()
    queue = [(root.bound_s, next(count), table.allowed, root)]
    nodes = 1
    while queue and nodes < most_nodes:
        bound, _, allowed, relaxed = queue[0]
        if candidate.value_s <= bound * (1 + target):
            break
        heapq.heappop(queue)
        candidate = _rounded(table, allowed, relaxed, candidate)
        for child in _children(allowed & _worth_keeping(relaxed, candidate), relaxed):
            enough = candidate.value_s / (1 + target)
            start = _restricted(relaxed.mixture, child)
            result = relax(table, child, start, enough_s=enough, steps=15)
            nodes += 1
            if result.bound_s < enough:
                heapq.heappush(queue, (max(result.bound_s, bound), next(count), child, result))
            elif result.bound_s < candidate.value_s:
                heapq.heappush(queue, (result.bound_s, next(count), child, result))
    bound = min([candidate.value_s, *(entry[0] for entry in queue)])
    return Certified(candidate, bound, nodes)


def _worth_keeping(relaxed: Relaxed, candidate: Candidate) -> Mask:
    """Splits whose reduced cost does not already exceed the gap: forcing any other would cost more than the best plan."""
    costs = relaxed.pricing.costs_s
    forced = relaxed.pricing.bound_s + costs - costs.min(axis=1, keepdims=True)
    return forced < candidate.value_s


def _children(allowed: Mask, relaxed: Relaxed) -> list[Mask]:
    """Take the most fractional device and divide its splits: its heaviest one, and the others."""
    weights = np.where(allowed, relaxed.mixture.weights, 0.0)
    open_to = allowed.sum(axis=1) > 1
    if not open_to.any():
        return [allowed] if allowed.any(axis=1).all() else []
    fraction = np.where(open_to, 1 - weights.max(axis=1), -1.0)
    k = int(fraction.argmax())
    r = int(weights[k].argmax())
    only, others = allowed.copy(), allowed.copy()
    only[k] = False
    only[k, r] = allowed[k, r]
    others[k, r] = False
    return [child for child in (only, others) if child.any(axis=1).all()]


def _restricted(mixture: Mixture, allowed: Mask) -> Mixture:
    """The mixture with forbidden splits taken out; a device left with nothing starts at its first allowed split."""
    weights = np.where(allowed, mixture.weights, 0.0)
    total = weights.sum(axis=1, keepdims=True)
    first = np.eye(allowed.shape[1])[allowed.argmax(axis=1)]
    return Mixture(np.where(total > 1e-9, weights / np.maximum(total, 1e-300), first), mixture.shares)


def _rounded(table: SplitTable, allowed: Mask, relaxed: Relaxed, candidate: Candidate) -> Candidate:
    """Round the mixture to its heaviest splits; keep the better plan."""
    choice = np.where(allowed, relaxed.mixture.weights, -1.0).argmax(axis=1)
    if (choice == candidate.choice).all():
        return candidate
    rounded = polished(table, choice, relaxed.mixture.shares)
    if rounded.value_s < candidate.value_s * (1 + 2e-3):
        rounded = improve(table, rounded, most_tries=4)
    return min(candidate, rounded, key=lambda c: c.value_s)
