"""Plan: a checked proposal with its latencies, its objective and a bound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from airsplit.core.arrays import Floats, Ints
from airsplit.planning.problem import Problem
from airsplit.planning.proposal import Bound, CheckedProposal, objective_s, objective_words
from airsplit.system.latency import LatencyLaw

# The words of a bound, for everybody who is shown one.
WORDS_OF_A_BOUND = (
    "Fixed: each device holds its share of the band for the whole iteration. "
    "Limits: the splits that min_split, max_split, memory and raw_inputs allow."
)

# A bound may exceed the optimum by the rounding of both, and by no more.
ROUNDING = 1e-6


@dataclass(frozen=True, eq=False, repr=False)
class Plan:
    """Splits and shares of a fleet, what they cost, and how far from the best possible that can be.

    All latencies are seconds of one iteration of `batch_size` samples, for the clock that was planned with.

    Attributes:
        objective: What the method aims at, in words: "mean of the largest", "largest mean", ….
        objective_s: The value of that objective.
        lower_bound_s: No plan within the limits has a smaller objective, whatever its method.
        bound: What the bound holds against, and how it was proven, in words. It never holds against a
            radio that divides the band anew within an iteration.
        raw_inputs: The model's inputs that some device sends to the server as they are, because `raw_inputs` allows it.
        other_inputs: The same of inputs that may always travel: labels, masks, and integers that look up no table.
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
        """In a line: arrays of a million devices are for those who ask for them."""
        cuts = f"splits {self.splits.min()} to {self.splits.max()}"
        seconds = f"mean_latency_s={self.mean_latency_s:.6g}, objective_s={self.objective_s:.6g} ({self.objective}), gap={self.gap:.2g}"
        return f"Plan({self.method!r}, {len(self)} devices, {cuts}, {seconds})"

    @property
    def latency_s(self) -> Floats:
        """E[τ_k], mean seconds of one iteration, of each device."""
        return self.compute_s + self.transmit_s + self.server_s

    @property
    def mean_latency_s(self) -> float:
        """max_k E[τ_k]: what the paper's algorithms minimize."""
        return float(self.latency_s.max())

    @property
    def expected_latency_s(self) -> float:
        """E[max_k τ_k]: what an iteration takes on average.  By numerical integration, when first asked for."""
        return self.law.expected_max_s

    @property
    def gap(self) -> float:
        """objective_s / lower_bound_s - 1: it takes at most this much longer than the best possible plan."""
        return self.objective_s / self.lower_bound_s - 1

    def quantile_s(self, p: float) -> float:
        """The time in which all devices are done with probability p."""
        return self.law.max_quantile_s(p)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and lists under the names of the attributes, ready for JSON."""
        arrays = {
            n: getattr(self, n).tolist()
            for n in ("splits", "shares", "compute_s", "transmit_s", "server_s")
        }
        plain = ("method", "mean_latency_s", "expected_latency_s", "objective", "objective_s", "lower_bound_s", "bound",
                 "gap", "averaged_parameters", "batch_size", "status", "iterations", "profile_fingerprint")  # fmt: skip
        lists = {
            n: list(getattr(self, n))
            for n in ("split_names", "history", "raw_inputs", "other_inputs")
        }
        return {n: getattr(self, n) for n in plain} | arrays | lists


def make_plan(problem: Problem, method: str, proposal: CheckedProposal, bound: Bound) -> Plan:
    """Return the plan of a checked proposal: its latencies and objective are computed here and nowhere else."""
    rows, shares = proposal.rows, proposal.shares
    law = problem.law(rows, shares)
    value = objective_s(problem, proposal, law)
    if bound.lower_s > value * (1 + ROUNDING):
        raise RuntimeError(
            f"the bound {bound.lower_s!r} s ({bound.how}) is above a plan of {value!r} s by method {method!r}, so it is false: "
            "this is a bug in Airsplit; please report it with the scenario"
        )

    names = np.array(problem.profile.names, dtype=object)
    shares_words = "fixed shares" if problem.blocks is None else "fixed whole resource blocks"
    raw_inputs, other_inputs = problem.profile.inputs_sent(np.unique(rows + 1))
    return Plan(
        method=method,
        splits=_frozen(rows + 1),
        split_names=tuple(names[rows]),
        shares=_frozen(shares),
        compute_s=_frozen(problem.compute_s(rows + 1)),
        transmit_s=_frozen(problem.transmit_s(rows, shares)),
        server_s=_frozen(problem.server_s[rows]),
        objective=objective_words(problem, proposal.objective),
        objective_s=value,
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


def _frozen(values: Any) -> Any:
    array = np.ascontiguousarray(values)
    array.flags.writeable = False
    return array
