"""Planning a scenario: with its own method, or with every method in turn."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from airsplit.cli.arguments import redirect_prints
from airsplit.core.errors import Infeasible
from airsplit.models.profiling import profile_scenario
from airsplit.planning.methods import plan
from airsplit.planning.plan import Plan
from airsplit.scenario.scenario import Scenario
from airsplit.system.fleet import Fleet
from airsplit.system.profile import Profile

# In the order of the table. Exhaustive search is exponential in the number of devices, and
# "fixed" needs a split.
COMPARED_METHODS = ("paper", "exact", "expected-max", "equal", "random")


@dataclass(frozen=True, eq=False)
class ScenarioPlan:
    """A plan, its scenario, profile and fleet, and how long planning took."""

    scenario: Scenario
    profile: Profile
    fleet: Fleet
    plan: Plan
    planning_s: float


def plan_scenario(scenario: Scenario) -> ScenarioPlan:
    """Plan a scenario with its own method."""
    profile = _get_profile(scenario)
    return _plan(scenario.plan.method, scenario, profile, scenario.make_fleet())


def plan_with_every_method(scenario: Scenario, note: Callable[[str], None]) -> list[ScenarioPlan]:
    """Plan with each method that can plan the scenario, and with "fixed" if it names a split."""
    # Once for all methods: counting a user's model may take longer than planning.
    profile = _get_profile(scenario)
    fleet = scenario.make_fleet()

    methods = list(COMPARED_METHODS)
    if scenario.plan.split is not None:
        methods.append("fixed")

    plans = []
    failures = {}
    for method in methods:
        try:
            plans.append(_plan(method, scenario, profile, fleet))
        except Infeasible as error:
            failures[method] = error

    if not plans:
        # All failed: the first reason is as good as any.
        raise next(iter(failures.values()))
    for method, reason in failures.items():
        note(f"{method} is left out: {reason}")
    return plans


def _get_profile(scenario: Scenario) -> Profile:
    # This needs no torch if the profile ships with the package.
    with redirect_prints():
        return profile_scenario(scenario)


def _plan(method: str, scenario: Scenario, profile: Profile, fleet: Fleet) -> ScenarioPlan:
    # Without profiling and drawing the fleet, which are the same for every method.
    start = time.perf_counter()
    chosen = plan(profile, fleet, **scenario.plan_arguments(method))
    return ScenarioPlan(scenario, profile, fleet, chosen, time.perf_counter() - start)
