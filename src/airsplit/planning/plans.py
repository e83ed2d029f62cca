"""Plan: what every planning method returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from airsplit.latency import LatencyLaw
from airsplit.planning.problem import Problem
from airsplit.units import Floats, Ints


@dataclass(frozen=True, eq=False, repr=False)
class Plan:
    """Splits and shares of a fleet, what they cost, and how far from the best possible that can be.

    All latencies are seconds of one iteration of `batch_size` samples, for the clock that was planned with.
    `objective_s` is what the method minimised; no plan within the limits, by any method, has less than `lower_bound_s`.
    """

    method: str
    splits: Ints
    split_names: tuple[str, ...]
    shares: Floats
    compute_s: Floats
    transmit_s: Floats
    server_s: Floats
    objective_s: float
    lower_bound_s: float
    averaged_parameters: int
    batch_size: int
    status: str
    iterations: int
    history: tuple[float, ...]
    profile_fingerprint: str
    law: LatencyLaw

    def __len__(self) -> int:
        return len(self.splits)

    def __repr__(self) -> str:
        """In a line: arrays of a million devices are for those who ask for them."""
        cuts = f"splits {self.splits.min()} to {self.splits.max()}"
        seconds = f"mean_latency_s={self.mean_latency_s:.6g}, objective_s={self.objective_s:.6g}, gap={self.gap:.2g}"
        return f"Plan({self.method!r}, {len(self)} devices, {cuts}, {seconds})"

    @property
    def latency_s(self) -> Floats:
        """E[τ_k], mean seconds of one iteration, of each device."""
        return self.compute_s + self.transmit_s + self.server_s

    @property
    def mean_latency_s(self) -> float:
        """max_k E[τ_k]: what the paper's algorithms minimise."""
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
        arrays = {n: getattr(self, n).tolist() for n in ("splits", "shares", "compute_s", "transmit_s", "server_s")}
        plain = ("method", "mean_latency_s", "expected_latency_s", "objective_s", "lower_bound_s", "gap", "averaged_parameters",
                 "batch_size", "status", "iterations", "profile_fingerprint")  # fmt: skip
        lists = {"split_names": list(self.split_names), "history": list(self.history)}
        return {n: getattr(self, n) for n in plain} | arrays | lists


def make_plan(
    problem: Problem,
    rows: Ints,
    shares: Floats,
    *,
    method: str,
    objective_s: float,
    lower_bound_s: float,
    status: str,
    history: tuple[float, ...] = (),
) -> Plan:
    """Work out what rows and shares cost.  A lower bound above the objective by rounding is lowered to it."""
    names = np.array(problem.profile.names, dtype=object)
    return Plan(
        method=method,
        splits=_frozen(rows + 1),
        split_names=tuple(names[rows]),
        shares=_frozen(shares),
        compute_s=_frozen(problem.compute_s(rows)),
        transmit_s=_frozen(problem.transmit_s(rows, shares)),
        server_s=_frozen(problem.server_s[rows]),
        objective_s=objective_s,
        lower_bound_s=min(lower_bound_s, objective_s),
        averaged_parameters=problem.profile.averaged_parameters(int(rows.max()) + 1),
        batch_size=problem.batch_size,
        status=status,
        iterations=len(history),
        history=history,
        profile_fingerprint=problem.profile.fingerprint,
        law=problem.law(rows, shares),
    )


def _frozen(values: Any) -> Any:
    array = np.ascontiguousarray(values)
    array.flags.writeable = False
    return array
