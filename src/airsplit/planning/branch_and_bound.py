"""Branch and bound over options: close the gap between the best plan and the best bound.

A node is a set of plans: those whose options are in its K × R mask. Its bound is proven; the least
bound of the open nodes bounds every plan. The node with the least bound is divided in two by the
options of one device, which is valid for any order of the options and works best if neighbors in
the table are alike.

The objective is a parameter: E[max_k τ_k] and the quantiles of max_k τ_k are searched by the same
code.
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
    """A choice of options with its best shares and their value."""

    choice: Ints
    shares: Floats
    value_s: float


@dataclass(frozen=True, eq=False)
class Node:
    """A set of plans, and a mixture of options at which its bound was attained.

    Attributes:
        allowed: The options of each device in the set, K × R.
        bound_s: No plan of the set is below it.
        weights: The mixture, K × R.
        shares: The shares of the mixture.
        keep_below_s: A bound on the plans of the set with each option, K × R.
        saving_s: Each device's gain from mixing options, which no plan can do.
    """

    allowed: Mask
    bound_s: float
    weights: Floats
    shares: Floats
    keep_below_s: Floats
    saving_s: Floats

    @property
    def is_leaf(self) -> bool:
        """Whether every device has one option left, so that there is nothing to divide."""
        return int(self.allowed.sum(axis=1).max()) == 1

    def weights_within(self, allowed: Mask) -> Floats:
        """Return the weights without forbidden options.

        A device left with nothing starts at its first allowed option.
        """
        weights = np.where(allowed, self.weights, 0.0)
        total = weights.sum(axis=1, keepdims=True)
        # The mixture is only where the next bound starts, so any allowed option will do.
        first: Floats = np.eye(allowed.shape[1])[allowed.argmax(axis=1)]
        return np.where(total > 1e-9, weights / np.maximum(total, 1e-300), first)


class Objective(Protocol):
    """The operations on an objective that branch and bound needs."""

    def refine(self, choice: Ints, shares: Floats) -> Candidate:
        """Return a choice with its best shares, searched for from the given ones."""

    def improve(self, candidate: Candidate, most_tries: int) -> Candidate:
        """Return the candidate after swaps of options that help."""

    def relax(
        self, allowed: Mask, weights: Floats, shares: Floats, *, enough_s: float, steps: int
    ) -> Node:
        """Bound all plans with allowed options, starting from a mixture.

        It may stop once the bound exceeds `enough_s`.
        """


@dataclass(frozen=True, eq=False)
class Certified:
    """The best plan found, a proven bound on all plans, and how many sets were bounded."""

    candidate: Candidate
    bound_s: float
    nodes: int


def branch_and_bound(
    objective: Objective, candidate: Candidate, root: Node, *, target: float, most_nodes: int
) -> Certified:
    """Divide the node with the least bound until the gap is at most `target` or nodes run out."""
    # The running number decides between equal bounds, so that nodes are never compared.
    order = itertools.count()
    queue = [(root.bound_s, next(order), root)]
    nodes = 1
    while queue and nodes < most_nodes and candidate.value_s > queue[0][0] * (1 + target):
        bound_s, _, node = queue[0]
        candidate = round_mixture(objective, node, candidate)
        if node.is_leaf:
            break

        heapq.heappop(queue)
        for allowed in divide(node, candidate.value_s):
            child = objective.relax(
                allowed,
                node.weights_within(allowed),
                node.shares,
                enough_s=candidate.value_s / (1 + target),
                steps=15,
            )
            nodes += 1
            # Else no plan of the part is better than the best one: drop it.
            if child.bound_s < candidate.value_s:
                # A part has no plan below the bound of the whole.
                heapq.heappush(queue, (max(child.bound_s, bound_s), next(order), child))

    open_bounds = [entry[0] for entry in queue]
    return Certified(candidate, min([candidate.value_s, *open_bounds]), nodes)


def divide(node: Node, value_s: float) -> list[Mask]:
    """Drop options that cost more than the best plan, then divide those of one device.

    It is the device that saves most by mixing: one part has its options up to one that it mixes,
    the other part the later ones.
    """
    allowed = node.allowed & (node.keep_below_s < value_s)
    if not allowed.any(axis=1).all():
        return []
    is_divisible = allowed.sum(axis=1) > 1
    if not is_divisible.any():
        return [allowed]

    k = int(np.where(is_divisible, node.saving_s, -1.0).argmax())
    # Cut between the two heaviest options, so that neither part can mix them.
    heaviest = np.argsort(np.where(allowed[k], node.weights[k], -1.0))[-2:]
    is_behind = np.arange(allowed.shape[1]) > heaviest.min()
    near = allowed.copy()
    near[k] = allowed[k] & ~is_behind
    far = allowed.copy()
    far[k] = allowed[k] & is_behind
    return [near, far]


def round_mixture(objective: Objective, node: Node, candidate: Candidate) -> Candidate:
    """Round the mixture to its heaviest options; return the better plan."""
    choice = np.where(node.allowed, node.weights, -1.0).argmax(axis=1)
    if (choice == candidate.choice).all():
        return candidate
    rounded = objective.refine(choice, node.shares)
    if rounded.value_s < candidate.value_s * (1 + 2e-3):
        # Close enough that a few swaps may make it the best.
        rounded = objective.improve(rounded, most_tries=4)
    return min(candidate, rounded, key=lambda c: c.value_s)
