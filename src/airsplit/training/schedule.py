"""Schedule: what a run does besides learning - plans, channels, who is asked, and what a round costs.  Pure numpy, no torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from airsplit.core.arrays import Floats, Ints
from airsplit.core.randomness import generator
from airsplit.planning.methods import plan
from airsplit.planning.plan import Plan
from airsplit.scenario.scenario import Scenario
from airsplit.system.fleet import Fleet
from airsplit.system.profile import Profile
from airsplit.training.participation import are_asked, averages_fronts
from airsplit.training.virtual_time import CHARGES, Charges, Draws, RoundCosts, Terms, time_round


@dataclass(frozen=True, eq=False)
class Agreed:
    """What the devices keep to until the next plan, and the moment whose channels it was planned for.

    round, time_s   when it was planned: before that round, at that virtual time
    """

    splits: Ints
    shares: Floats
    round: int
    time_s: float


@dataclass(frozen=True, eq=False)
class Turnout:
    """Who is there in a round.

    asked       whether each of K devices is asked to take part
    iterations  how many each runs: all E; none where it is not asked; fewer where it drops out
    """

    asked: NDArray[np.bool_]
    iterations: Ints


class Schedule:
    """The course of a run in virtual time.  A simulator and an engine that trains step through the same one.

    fleet  None: the scenario's

    plan             the first plan
    agreed           what holds now: that plan, or a later one
    virtual_time_s   until now; whoever steps through the rounds adds what each took
    """

    def __init__(self, scenario: Scenario, profile: Profile, fleet: Fleet | None = None) -> None:
        self.scenario, self.profile, self.settings = (
            scenario.resolve(profile),
            profile,
            scenario.training,
        )
        self.fleet = scenario.make_fleet() if fleet is None else fleet
        self.clock = scenario.make_clock()
        self.virtual_time_s = 0.0
        self.plan = self._plan(1)

    @property
    def agreed(self) -> Agreed:
        return self._agreed

    @agreed.setter
    def agreed(self, agreed: Agreed) -> None:
        self._agreed = agreed
        self._charges: dict[
            bool, Charges
        ] = {}  # by whether fronts are averaged; else they only follow from what is agreed

    # ---- plan and channels ---------------------------------------------------------------------------------------------------
    def _plan(self, number: int) -> Plan:
        """Plan for the channels at the beginning of a round, and keep to it from there on."""
        made = plan(
            self.profile,
            self.fleet_at(number, self.virtual_time_s),
            **self.scenario.plan_arguments(),
        )
        self.agreed = Agreed(made.splits, made.shares, number, self.virtual_time_s)
        return made

    def replan_if_due(self, number: int) -> Plan | None:
        """The new plan with which a round begins; None where what is agreed holds on."""
        every = self.settings.replan_every
        if every is None or number == 1 or (number - 1) % every:
            return None
        return self._plan(number)

    def fleet_at(self, number: int, time_s: float) -> Fleet:
        """The devices with their channels in a round: fixed, drawn anew, or replayed."""
        if self.fleet.trace is not None:
            return self.fleet.at(time_s)
        return (
            self.fleet.redraw_fading(self.settings.seed, number)
            if self.scenario.fleet.redraw_fading
            else self.fleet
        )

    # ---- rounds --------------------------------------------------------------------------------------------------------------
    def turnout(self, number: int) -> Turnout:
        """Who is asked to take part in a round, and how far each comes."""
        E, K, seed = self.settings.iterations_per_round, len(self.fleet), self.settings.seed
        asked = are_asked(self.settings, number, K)
        if not self.settings.dropout_probability:
            return Turnout(asked, np.where(asked, E, 0))
        lost = generator(seed, "dropout", number).random(K) < self.settings.dropout_probability
        moment = generator(seed, "moment of dropout", number).integers(0, E, K)
        return Turnout(asked, np.where(asked, np.where(lost, moment, E), 0))

    def costs(self, number: int, iterations: Ints) -> RoundCosts:
        """What a round costs in which each device runs so many iterations."""
        draws = Draws(
            self.settings.seed, number, self.settings.iterations_per_round, len(self.fleet)
        )
        return time_round(
            self.charges(number),
            self.fleet_at(number, self.virtual_time_s),
            self.clock,
            draws,
            iterations,
        )

    def charges(self, number: int) -> Charges:
        """What a round asks of the devices.  FedAvg's own shares take a while to find, so what is known is kept."""
        fronts = averages_fronts(self.settings.average_fronts_every, number)
        if fronts not in self._charges:
            self._charges[fronts] = _charges_of(self.settings.algorithm)(self._terms(fronts))
        return self._charges[fronts]

    def _terms(self, fronts_averaged: bool) -> Terms:
        agreed = self.agreed
        planned_for = self.fleet_at(agreed.round, agreed.time_s)
        bits, batch = self.scenario.element_bits, self.settings.batch_size
        return Terms(
            self.profile,
            planned_for,
            self.clock,
            agreed.splits,
            agreed.shares,
            batch,
            bits,
            fronts_averaged,
        )


def _charges_of(algorithm: str) -> Callable[[Terms], Charges]:
    """What a round costs; known without torch but for algorithms of one's own."""
    if ":" not in algorithm:
        return CHARGES[algorithm]
    from airsplit.training.algorithms import algorithm_of

    return algorithm_of(algorithm).charges
