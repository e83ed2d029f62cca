"""Planning a scenario: with its own method, or with each method in turn."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from airsplit.cli.arguments import what_is_printed_as_notes
from airsplit.core.errors import Infeasible
from airsplit.models.profiling import profile_scenario
from airsplit.planning.methods import plan
from airsplit.planning.plan import Plan
from airsplit.scenario.scenario import Scenario
from airsplit.system.fleet import Fleet
from airsplit.system.profile import Profile

COMPARED = ("paper", "exact", "expected-max", "equal", "random")


@dataclass(frozen=True, eq=False)
class Planned:
    """A plan, what it is a plan of, and how long the planning took."""

    scenario: Scenario
    profile: Profile
    fleet: Fleet
    plan: Plan
    planning_s: float


def plan_once(scenario: Scenario) -> Planned:
    """The scenario's plan, with its own method."""
    profile = _profile(scenario)
    return _timed(scenario.plan.method, scenario, profile, scenario.make_fleet())


def plan_with_each(scenario: Scenario, note: Callable[[str], None]) -> list[Planned]:
    """A plan by each method that can plan the scenario, and by "fixed" where a split is given."""
    profile, fleet = _profile(scenario), scenario.make_fleet()
    planned, failed = [], {}
    for method in COMPARED if scenario.plan.split is None else (*COMPARED, "fixed"):
        try:
            planned.append(_timed(method, scenario, profile, fleet))
        except Infeasible as error:
            failed[method] = error
    if not planned:
        raise next(iter(failed.values()))
    for method, reason in failed.items():
        note(f"{method} is left out: {reason}")
    return planned


def _profile(scenario: Scenario) -> Profile:
    """What the scenario's model costs.  Needs torch unless its profile ships with the package."""
    with what_is_printed_as_notes():
        return profile_scenario(scenario)


def _timed(method: str, scenario: Scenario, profile: Profile, fleet: Fleet) -> Planned:
    start = time.perf_counter()
    made = plan(profile, fleet, **scenario.plan_arguments(method))
    return Planned(scenario, profile, fleet, made, time.perf_counter() - start)
