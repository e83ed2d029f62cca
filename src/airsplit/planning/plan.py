"""Plan: a checked proposal with its latencies, its objective and a bound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from airsplit.core.arrays import Floats, Ints
from airsplit.planning.problem import Problem
from airsplit.planning.proposal import Bound, CheckedProposal, describe_objective, objective_s
from airsplit.system.latency import LatencyLaw

# The scope of a bound, for every place that shows one.
WORDS_OF_A_BOUND = (
    "Fixed: each device holds its share of the band for the whole iteration. "
    "Limits: the splits that min_split, max_split, memory and raw_inputs allow."
)

# A bound may exceed the optimum by the rounding of both, and by no more.
ROUNDING = 1e-6

# The attributes that make up a plan in JSON, by their form.
_PLAIN = (
    "method",
    "mean_latency_s",
    "expected_latency_s",
    "objective",
    "objective_s",
    "lower_bound_s",
    "bound",
    "gap",
    "averaged_parameters",
    "batch_size",
    "status",
    "iterations",
    "profile_fingerprint",
)
_ARRAYS = ("splits", "shares", "compute_s", "transmit_s", "server_s")
_LISTS = ("split_names", "history", "raw_inputs", "other_inputs")


@dataclass(frozen=True, eq=False, repr=False)
class Plan:
    """Splits and shares of a fleet, their latencies, and a bound on the best possible plan.

    All latencies are seconds of one iteration of `batch_size` samples, for the clock that was
    planned with.

    Attributes:
        objective: The objective of the method in words: "mean of the largest", "largest mean", ….
        objective_s: The value of that objective.
        lower_bound_s: No plan within the limits has a smaller objective, whatever its method.
        bound: What the bound holds against, and how it was proven, in words. It never holds against
            a radio that re-divides the band within an iteration.
        raw_inputs: Inputs of the model that some device sends to the server as they are, because
            the argument `raw_inputs` allows it.
        other_inputs: Inputs sent as they are that may always travel: labels, masks, and integers
            that look up no table.
    """

    method: str
    splits: Ints
    split_names: tuple[str, ...]
    shares: Floats
    compute_s: Floats
    transmit_s: Floats
    server_s: Floats
    objective: str
    objective_s: float
    lower_bound_s: float
    bound: str
    averaged_parameters: int
    batch_size: int
    status: str
    iterations: int
    history: tuple[float, ...]
    profile_fingerprint: str
    raw_inputs: tuple[str, ...]
    other_inputs: tuple[str, ...]
    law: LatencyLaw

    def __len__(self) -> int:
        return len(self.splits)

    def __repr__(self) -> str:
        """Return one line, without the arrays, which may have a million entries."""
        return (
            f"Plan({self.method!r}, {len(self)} devices, "
            f"splits {self.splits.min()} to {self.splits.max()}, "
            f"mean_latency_s={self.mean_latency_s:.6g}, "
            f"objective_s={self.objective_s:.6g} ({self.objective}), gap={self.gap:.2g})"
        )

    @property
    def latency_s(self) -> Floats:
        """E[τ_k], mean seconds of one iteration, of each device."""
        return self.compute_s + self.transmit_s + self.server_s

    @property
    def mean_latency_s(self) -> float:
        """max_k E[τ_k], which the paper's algorithms minimize."""
        return float(self.latency_s.max())

    @property
    def expected_latency_s(self) -> float:
        """E[max_k τ_k], the mean time of an iteration; integrated numerically on first use."""
        return self.law.expected_max_s

    @property
    def gap(self) -> float:
        """objective_s / lower_bound_s - 1: how much longer than the best plan, at most."""
        return self.objective_s / self.lower_bound_s - 1

    def quantile_s(self, p: float) -> float:
        """Return the time in which all devices are done with probability p."""
        return self.law.max_quantile_s(p)

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers and lists under the names of the attributes, ready for JSON."""
        plain = {name: getattr(self, name) for name in _PLAIN}
        arrays = {name: getattr(self, name).tolist() for name in _ARRAYS}
        lists = {name: list(getattr(self, name)) for name in _LISTS}
        return plain | arrays | lists


def make_plan(problem: Problem, method: str, proposal: CheckedProposal, bound: Bound) -> Plan:
    """Return the plan of a checked proposal.

    Its latencies and its objective are computed here and nowhere else.
    """
    rows = proposal.rows
    shares = proposal.shares
    law = problem.law(rows, shares)
    value = objective_s(problem, proposal, law)
    if bound.lower_s > value * (1 + ROUNDING):
        raise RuntimeError(
            f"the bound {bound.lower_s!r} s ({bound.how}) is above a plan of {value!r} s by method "
            f"{method!r}, so it is false: this is a bug in Airsplit; please report it with the "
            "scenario"
        )

    # An object array, so that a million names are picked without a loop.
    names = np.array(problem.profile.names, dtype=object)
    shares_words = "fixed shares" if problem.blocks is None else "fixed whole resource blocks"
    raw_inputs, other_inputs = problem.profile.inputs_sent(np.unique(rows + 1))
    return Plan(
        method=method,
        splits=_freeze(rows + 1),
        split_names=tuple(names[rows]),
        shares=_freeze(shares),
        compute_s=_freeze(problem.compute_s(rows + 1)),
        transmit_s=_freeze(problem.transmit_s(rows, shares)),
        server_s=_freeze(problem.server_s[rows]),
        objective=describe_objective(problem, proposal.objective),
        objective_s=value,
        # Within ROUNDING, so that a gap is never negative.
        lower_bound_s=min(bound.lower_s, value),
        bound=f"any splits and {shares_words} within the limits; {bound.how}",
        averaged_parameters=int(problem.options.averaged_parameters[rows].min()),
        batch_size=problem.batch_size,
        status=proposal.status,
        iterations=len(proposal.history),
        history=proposal.history,
        profile_fingerprint=problem.profile.fingerprint,
        raw_inputs=raw_inputs,
        other_inputs=other_inputs,
        law=law,
    )


def _freeze(values: Any) -> Any:
    """Return a read-only array."""
    array = np.ascontiguousarray(values)
    array.flags.writeable = False
    return array
