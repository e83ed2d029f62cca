"""Branch and bound over splits: close the gap between the best plan and the best bound.

What is minimized comes in as an `Objective`: E[max_k τ_k] and the quantiles of max_k τ_k are searched by the same code.
"""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from airsplit.core.arrays import Floats, Ints
from airsplit.planning.options import Mask


@dataclass(frozen=True, eq=False)
class Candidate:
    """A choice of splits with its best shares and their value."""

    choice: Ints
    shares: Floats
    value_s: float


@dataclass(frozen=True, eq=False)
class Node:
    """A set of plans: no plan with the allowed splits is below `bound_s`; `weights` (K × R) and `shares` say where it was attained.

    keep_below_s   K × R: forcing this split costs at least so much
    saving_s       K: how much each device gains by mixing splits, which no plan can do
    """

    allowed: Mask
    bound_s: float
    weights: Floats
    shares: Floats
    keep_below_s: Floats
    saving_s: Floats

    @property
    def is_leaf(self) -> bool:
        """Whether every device has one split left, so that there is nothing to divide."""
        return int(self.allowed.sum(axis=1).max()) == 1

    def restricted(self, allowed: Mask) -> tuple[Floats, Floats]:
        """Weights and shares with forbidden splits taken out; a device left with nothing starts at its first allowed split."""
        weights = np.where(allowed, self.weights, 0.0)
        total = weights.sum(axis=1, keepdims=True)
        first = np.eye(allowed.shape[1])[allowed.argmax(axis=1)]
        return np.where(total > 1e-9, weights / np.maximum(total, 1e-300), first), self.shares


class Objective(Protocol):
    """What branch and bound needs to know of the objective."""

    def polished(self, choice: Ints, shares: Floats) -> Candidate:
        """The best shares for a choice."""

    def improved(self, candidate: Candidate, most_tries: int) -> Candidate:
        """The candidate after swaps of splits that help."""

    def relaxed(
        self, allowed: Mask, weights: Floats, shares: Floats, *, enough_s: float, steps: int
    ) -> Node:
        """A bound over all plans with allowed splits, from a mixture to start at; it may stop once it exceeds `enough_s`."""


@dataclass(frozen=True, eq=False)
class Certified:
    """The best plan found, the proven bound, and how many sets of plans were bounded."""

    candidate: Candidate
    bound_s: float
    nodes: int


def branch_and_bound(
    objective: Objective, candidate: Candidate, root: Node, *, target: float, most_nodes: int
) -> Certified:
    """Divide the set of plans with the least bound until the gap is at most `target`, or the nodes run out."""
    order = itertools.count()
    queue = [(root.bound_s, next(order), root)]
    nodes = 1
    while queue and nodes < most_nodes and candidate.value_s > queue[0][0] * (1 + target):
        bound, _, node = queue[0]
        candidate = _rounded(objective, node, candidate)
        if node.is_leaf:
            break
        heapq.heappop(queue)
        for allowed in _children(node, candidate.value_s):
            enough = candidate.value_s / (1 + target)
            child = objective.relaxed(allowed, *node.restricted(allowed), enough_s=enough, steps=15)
            nodes += 1
            if child.bound_s < candidate.value_s:
                heapq.heappush(queue, (max(child.bound_s, bound), next(order), child))
    return Certified(candidate, min([candidate.value_s, *(entry[0] for entry in queue)]), nodes)


def _children(node: Node, value_s: float) -> list[Mask]:
    """Drop splits that cost more than the best plan, then divide one device's: those up to, and those behind, a split it mixes."""
    allowed = node.allowed & (node.keep_below_s < value_s)
    if not allowed.any(axis=1).all():
        return []
    divisible = allowed.sum(axis=1) > 1
    if not divisible.any():
        return [allowed]
    k = int(np.where(divisible, node.saving_s, -1.0).argmax())
    heaviest = np.argsort(np.where(allowed[k], node.weights[k], -1.0))[-2:]
    behind = np.arange(allowed.shape[1]) > heaviest.min()
    near, far = allowed.copy(), allowed.copy()
    near[k], far[k] = allowed[k] & ~behind, allowed[k] & behind
    return [near, far]


def _rounded(objective: Objective, node: Node, candidate: Candidate) -> Candidate:
    """Round the mixture to its heaviest splits; keep the better plan."""
    choice = np.where(node.allowed, node.weights, -1.0).argmax(axis=1)
    if (choice == candidate.choice).all():
        return candidate
    rounded = objective.polished(choice, node.shares)
    if rounded.value_s < candidate.value_s * (1 + 2e-3):
        rounded = objective.improved(rounded, most_tries=4)
    return min(candidate, rounded, key=lambda c: c.value_s)
