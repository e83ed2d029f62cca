"""The planning methods by name, the only registry of them, and `plan`, which runs one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from airsplit.clock import Clock
from airsplit.errors import InvalidValue, show
from airsplit.fleet import Fleet
from airsplit.planning import baselines
from airsplit.planning.alternating import Alternation, alternate
from airsplit.planning.exact import solve
from airsplit.planning.expected_max import minimise_expected_max
from airsplit.planning.plans import Plan, make_plan
from airsplit.planning.problem import Problem, problem_of
from airsplit.profiles import Profile, RawInputs
from airsplit.references import factory, require_choice_or_path
from airsplit.units import Floats, Ints

Method = Callable[[Problem], Plan]


def exact(problem: Problem) -> Plan:
    """The global optimum of max_k E[τ_k], or with `device_quantile` of the largest device quantile."""
    best = solve(problem, problem.risk)
    unit = "whole resource blocks" if problem.blocks is not None else "all splits and shares"
    return make_plan(
        problem,
        best.rows,
        best.shares,
        method="exact",
        objective_s=problem.worst_s(best.rows, best.shares, problem.risk),
        lower_bound_s=best.lower_s,
        status=f"optimal over {unit}",
        history=best.history,
    )


def paper(problem: Problem) -> Plan:
    """The paper's algorithms 1 and 2, corrected; the best plan that the alternation visits."""
    found = alternate(problem)
    return against_exact(problem, "paper", found.rows, found.shares, _alternation_status(found), found.history)


def _alternation_status(found: Alternation) -> str:
    visited = len(found.history)
    if found.cycle == 1:
        return f"converged after {visited} alternations"
    if found.cycle is None:
        return f"neither converged nor cycled within {visited} alternations; the best plan seen is kept"
    return f"cycles: {found.cycle} plans repeat after {visited} alternations; the best plan seen is kept"


def _baseline(name: str, choose: Callable[[Problem], tuple[Ints, Floats]], status: str) -> Method:
    def method(problem: Problem) -> Plan:
        rows, shares = choose(problem)
        return against_exact(problem, name, rows, shares, status)

    method.__doc__ = choose.__doc__
    return method


def against_exact(problem: Problem, name: str, rows: Ints, shares: Floats, status: str, history: tuple[float, ...] = ()) -> Plan:
    """The plan of a method that aims at max_k E[τ_k], bounded by the exact optimum of it.

    rows    splits, counted from zero
    status  how the method ended, in a few words
    """
    return make_plan(
        problem,
        rows,
        shares,
        method=name,
        objective_s=problem.worst_s(rows, shares, 1.0),
        lower_bound_s=solve(problem, 1.0).lower_s,
        status=f"{status}; bound: the exact optimum",
        history=history,
    )


METHODS: dict[str, Method] = {
    "paper": paper,
    "exact": exact,
    "expected-max": minimise_expected_max,
    "equal": _baseline("equal", baselines.equal, "equal shares, each device's best split"),
    "fixed": _baseline("fixed", baselines.fixed, "given splits, optimal shares"),
    "random": _baseline("random", baselines.random, "random splits, optimal shares"),
    "exhaustive": _baseline("exhaustive", baselines.exhaustive, "every combination tried"),
}

METHOD_OF = {"split": "fixed", "quantile": "expected-max", "device_quantile": "exact"}
"""Options that belong to one method."""


def plan(
    profile: Profile,
    fleet: Fleet,
    *,
    method: str = "exact",
    max_split: object = None,
    min_split: object = 1,
    batch_size: int = 1,
    element_bits: int = 32,
    clock: Clock | None = None,
    split: object = None,
    quantile: float | None = None,
    device_quantile: float | None = None,
    certify: bool = True,
    optimiser_slots: int = 0,
    raw_inputs: RawInputs = "refuse",
    seed: int = 0,
) -> Plan:
    """Choose every device's split and share of the band.

    method           "exact", "expected-max", "paper", or a baseline: "equal", "fixed", "random", "exhaustive"; or your own,
                     "package.module:function": it takes a Problem and returns a Plan
    max_split        deepest split allowed: a number, a name, or one for each device; None: the deepest that leaves a parameter
                     to be averaged
    split            what "fixed" takes: one for all or one for each device, numbers or names
    quantile         with "expected-max": minimise this quantile of max_k τ_k instead of its mean
    device_quantile  with "exact": minimise the largest device quantile instead of the largest mean
    optimiser_slots  numbers of optimiser state for each trained parameter, where devices have a limit on their memory: plain SGD 0,
                     with momentum 1, Adam 2
    raw_inputs       splits that would send an input of the model as it is: "refuse" leaves them out, "allow" does not; or a list
                     of the inputs that may travel, such as position ids.  See `profile.raw_inputs`
    certify          with "expected-max": tighten the lower bound by branch and bound; False keeps the price bound

    >>> profile = Profile(["a", "b"], layer_macs=[8, 8], matmul_macs=[8, 16], activation_elements=[4, 2], parameters=[1, 1])
    >>> fleet = Fleet(seconds_per_mac=0.5, fluctuation=2.0, full_band_rate_bps=[128.0, 128.0])
    >>> p = plan(profile, fleet)
    >>> p.splits.tolist(), p.shares.round(6).tolist(), round(p.mean_latency_s, 6)
    ([1, 1], [0.5, 0.5], 10.0)
    """
    planner = method_of(method)
    _require_match(method, split=split, quantile=quantile, device_quantile=device_quantile)
    problem = problem_of(
        profile,
        fleet,
        max_split=max_split,
        min_split=min_split,
        batch_size=batch_size,
        element_bits=element_bits,
        clock=clock,
        split=split,
        quantile=quantile,
        device_quantile=device_quantile,
        certify=certify,
        optimiser_slots=optimiser_slots,
        raw_inputs=raw_inputs,
        seed=seed,
    )
    made = planner(problem)
    if not isinstance(made, Plan):
        raise InvalidValue(f"method {method!r} must return a Plan, got {show(made)}; airsplit.planning.plans.make_plan makes one")
    return made


def method_of(name: str) -> Method:
    """A method by its name, or the function that "package.module:function" names."""
    require_choice_or_path("method", name, METHODS)
    return factory(name, "method", "a Plan") if ":" in name else METHODS[name]


def _require_match(method: str, **options: Any) -> None:
    for option, owner in METHOD_OF.items():
        if options[option] is not None and method != owner:
            raise InvalidValue(f'{option} belongs to the method "{owner}", but the method is "{method}"; change one of them')
