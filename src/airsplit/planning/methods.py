"""The planning methods by name, and `plan`, which runs one.

Every method has one shape, `(problem) -> Proposal`. A proposal is checked, and its latencies and
its objective are computed by the package, whatever the method. A bound comes from our own solvers
only.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any

from airsplit.core.declared_settings import one_of
from airsplit.core.errors import InvalidValue, show
from airsplit.core.plugins import import_factory, require_choice_or_path
from airsplit.planning import baselines
from airsplit.planning.arguments import (
    BatchSize,
    Certify,
    ElementBits,
    OptimizerSlots,
    Quantile,
    Seed,
    make_problem,
)
from airsplit.planning.exact import solve
from airsplit.planning.expected_max import minimize_max
from airsplit.planning.paper_algorithms import alternate
from airsplit.planning.plan import Plan, make_plan
from airsplit.planning.problem import Problem
from airsplit.planning.proposal import Bound, Proposal, ProvenProposal, check_proposal
from airsplit.system.clock import Clock
from airsplit.system.fleet import Fleet
from airsplit.system.profile import Profile, RawInputs

Method = Callable[[Problem], Proposal]


def exact(problem: Problem) -> ProvenProposal:
    """The global optimum of max_k E[τ_k], or with `device_quantile` the largest device quantile."""
    objective = "largest-mean" if problem.device_quantile is None else "device-quantile"
    unit = "whole resource blocks" if problem.blocks is not None else "all splits and shares"
    return _solve_exactly(problem, objective, f"optimal over {unit}")


def paper(problem: Problem) -> Proposal:
    """The paper's algorithms 1 and 2, corrected; the best plan that the alternation visits."""
    alternation = alternate(problem)
    return Proposal(
        alternation.rows + 1,
        alternation.shares,
        objective="largest-mean",
        status=alternation.status,
        history=alternation.history,
    )


def equal(problem: Problem) -> Proposal:
    """Equal shares, and each device's best split for its share."""
    rows, shares = baselines.equal(problem)
    return Proposal(
        rows + 1, shares, objective="largest-mean", status="equal shares, each device's best split"
    )


def fixed(problem: Problem) -> Proposal:
    """The splits that are given, with the best shares for them."""
    rows, shares = baselines.fixed(problem)
    return Proposal(
        rows + 1, shares, objective="largest-mean", status="given splits, optimal shares"
    )


def random(problem: Problem) -> Proposal:
    """Splits drawn evenly from those that each device may take, with the best shares for them."""
    rows, shares = baselines.random(problem)
    return Proposal(
        rows + 1, shares, objective="largest-mean", status="random splits, optimal shares"
    )


def exhaustive(problem: Problem) -> Proposal:
    """Every combination of splits, and of resource blocks: for tiny problems only."""
    rows, shares = baselines.exhaustive(problem)
    return Proposal(rows + 1, shares, objective="largest-mean", status="every combination tried")


# The only registry: settings, command line, docs and tests read its keys.
METHODS: dict[str, Method] = {
    "expected-max": minimize_max,
    "exact": exact,
    "paper": paper,
    "equal": equal,
    "fixed": fixed,
    "random": random,
    "exhaustive": exhaustive,
}

DEFAULT_METHOD = "expected-max"


def _solve_exactly(problem: Problem, objective: str, status: str = "") -> ProvenProposal:
    """Return the optimum of the largest mean, or of the largest device quantile."""
    solution = solve(problem, problem.risk if objective == "device-quantile" else 1.0)
    return ProvenProposal(
        solution.rows + 1,
        solution.shares,
        objective=objective,
        status=status,
        history=solution.history,
        bound=Bound(solution.lower_s, "exact search"),
    )


def lower_bound(problem: Problem, objective: str) -> Bound:
    """Return a bound on an objective from our own solvers."""
    if objective in ("largest-mean", "device-quantile"):
        return _solve_exactly(problem, objective).bound
    if objective == "expected-max":
        # A method by path may aim at the mean although a quantile was asked for.
        problem = dataclasses.replace(problem, quantile=None)
    return minimize_max(problem).bound


# Arguments of `plan` that belong to one method.
METHOD_OF = {"split": "fixed", "quantile": "expected-max", "device_quantile": "exact"}


def plan(
    profile: Profile,
    fleet: Fleet,
    *,
    method: Annotated[str, one_of(METHODS, or_path=True)] = DEFAULT_METHOD,
    method_arguments: Mapping[str, Any] | None = None,
    max_split: object = None,
    min_split: object = 1,
    batch_size: BatchSize = 1,
    element_bits: ElementBits = 32,
    clock: Clock | None = None,
    split: object = None,
    quantile: Quantile = None,
    device_quantile: Quantile = None,
    certify: Certify = True,
    optimizer_slots: OptimizerSlots = 0,
    raw_inputs: RawInputs = "refuse",
    seed: Seed = 0,
) -> Plan:
    """Choose every device's split and share of the band.

    Args:
        method: Planning method; code by path takes a `Problem` and returns a `Proposal`.
        method_arguments: Keyword arguments for a method by path.
        max_split: Deepest split allowed (default: the deepest that leaves a parameter to be
            averaged).
        min_split: Shallowest split allowed.
        batch_size: Samples that a device trains on in one iteration.
        element_bits: Bits of one element on the air.
        clock: What an iteration is charged for; the paper's costs by default.
        split: For "fixed": the splits.
        quantile: For "expected-max" or a method by path: minimize this quantile of max_k τ_k
            instead of its mean.
        device_quantile: For "exact" or a method by path: minimize the largest device quantile
            instead of the largest mean.
        certify: For "expected-max": tighten the lower bound by branch and bound.
        optimizer_slots: Numbers of optimizer state for each trained parameter, where devices have a
            limit on their memory: plain SGD 0, with momentum 1, Adam 2.
        raw_inputs: Whether splits may send an input of the model as it is: "refuse", "allow", or a
            list of the inputs that may be sent, such as position ids. See `Profile.raw_inputs`.
        seed: Random seed of the method "random".

    >>> profile = Profile(["a", "b"], [8, 8], [8, 16], [4, 2], parameters=[1, 1])
    >>> fleet = Fleet(seconds_per_mac=0.5, fluctuation=2.0, full_band_rate_bps=[128.0, 128.0])
    >>> p = plan(profile, fleet)
    >>> p.splits.tolist(), p.shares.round(6).tolist(), p.objective, round(p.objective_s, 6)
    ([1, 1], [0.5, 0.5], 'mean of the largest', 12.0)
    """
    propose = method_of(method, method_arguments)
    # An argument that the method ignores is an error, not a surprise.
    given = {"split": split, "quantile": quantile, "device_quantile": device_quantile}
    for option, owner in foreign_options(method).items():
        if given[option] is not None:
            raise InvalidValue(
                f'{option} belongs to the method "{owner}", but the method is "{method}"; '
                "change one of them"
            )

    problem = make_problem(
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
        optimizer_slots=optimizer_slots,
        raw_inputs=raw_inputs,
        seed=seed,
    )
    # A method by path may write into what it gets; what is checked and bounded stays as it is.
    proposal = propose(problem if method in METHODS else problem.copy())
    checked = check_proposal(problem, method, proposal)
    # Only our own solvers are believed: a method by path cannot state a bound.
    if method in METHODS and isinstance(proposal, ProvenProposal):
        bound = proposal.bound
    else:
        bound = lower_bound(problem, checked.objective)
    return make_plan(problem, method, checked, bound)


def method_of(name: str, arguments: Mapping[str, Any] | None = None) -> Method:
    """Return a built-in method, or import "package.module:function" and bind its arguments."""
    require_choice_or_path("method", name, METHODS)
    if ":" in name:
        return partial(import_factory(name, "method", "a Proposal"), **(arguments or {}))
    if arguments:
        raise InvalidValue(
            'method_arguments are for a method of your own, method = "package.module:function"; '
            f'leave them out for "{name}", got {show(dict(arguments))}'
        )
    return METHODS[name]


def foreign_options(method: str) -> dict[str, str]:
    """Return the options that a method does not take, each with the method that does.

    >>> foreign_options("exact")
    {'split': 'fixed', 'quantile': 'expected-max'}
    >>> foreign_options("package.module:function")
    {'split': 'fixed'}
    """
    # Code by path may aim at either quantile, but "split" would be ignored.
    taken: tuple[str, ...] = ()
    if ":" in method:
        taken = ("quantile", "device_quantile")
    return {
        option: owner
        for option, owner in METHOD_OF.items()
        if owner != method and option not in taken
    }
