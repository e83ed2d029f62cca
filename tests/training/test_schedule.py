"""The schedule: what is agreed and when, who is there, what is kept between rounds, and a clock that works in blocks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from airsplit.core.randomness import generator
from airsplit.models.profiling import profile_scenario
from airsplit.runs.record import PER_DEVICE
from airsplit.scenario.scenario import Scenario
from airsplit.scenario.settings import ALGORITHMS, TrainingSettings
from airsplit.system.clock import Clock
from airsplit.system.fleet import Fleet
from airsplit.training import virtual_time
from airsplit.training.participation import are_asked, averages_fronts, participants
from airsplit.training.schedule import Agreed, Schedule
from airsplit.training.virtual_time import (
    CHARGES,
    Charges,
    Draws,
    RoundCosts,
    Rows,
    draw_fluctuations,
    time_round,
)


def schedule(**settings: Any) -> Schedule:
    """Of a small network whose profile ships with the package; keys as in a scenario, with two underscores in place of the dot."""
    changes = {"fleet__devices": 6} | settings
    wanted = Scenario.load("demo").replace(
        **{name.replace("__", "."): value for name, value in changes.items()}
    )
    return Schedule(wanted, profile_scenario(wanted))


def assert_same_costs(found: RoundCosts, wanted: RoundCosts) -> None:
    """Bit for bit."""
    assert found.latency_s == wanted.latency_s
    for name in (*PER_DEVICE, "last"):
        assert getattr(found, name).tolist() == getattr(wanted, name).tolist(), name


# ---- plans and channels ------------------------------------------------------------------------------------------------------
def test_a_plan_is_made_at_once_and_holds_until_the_next_one_is_due() -> None:
    made = schedule(training__replan_every=3, fleet__redraw_fading=True)
    first = made.agreed
    assert (first.round, first.time_s) == (1, 0.0)
    assert first.splits is made.plan.splits
    due = []
    for number in range(1, 9):
        made.virtual_time_s = 10.0 * number
        if (again := made.replan_if_due(number)) is not None:
            due.append(number)
            assert made.agreed.shares is again.shares
            assert (made.agreed.round, made.agreed.time_s) == (number, 10.0 * number)
    assert due == [4, 7]
    assert first.shares.tolist() == made.plan.shares.tolist() != made.agreed.shares.tolist()


def test_channels_are_fixed_or_drawn_anew_or_replayed(tmp_path: Path) -> None:
    fixed = schedule()
    assert fixed.fleet_at(7, 3.0) is fixed.fleet
    moving = schedule(fleet__redraw_fading=True)
    assert (
        moving.fleet_at(2, 0.0).fading.tolist()
        == moving.fleet_at(2, 9.0).fading.tolist()
        != moving.fleet_at(3, 0.0).fading.tolist()
    )
    trace = tmp_path / "trace.csv"
    trace.write_text("time_s,one,two\n0,1e6,1e6\n5,2e6,4e6\n")
    replayed = schedule(fleet__devices=2, fleet__mean_distance_m=None, fleet__trace=str(trace))
    rates = [replayed.fleet_at(1, time_s).full_band_rate_bps for time_s in (0.0, 6.0)]
    assert [rate.tolist() for rate in rates if rate is not None] == [[1e6, 1e6], [2e6, 4e6]]


# ---- who is there ------------------------------------------------------------------------------------------------------------
def test_who_is_asked_is_the_same_as_a_list_and_as_a_mask() -> None:
    for participation in (1.0, 0.7, 0.5, 0.01):
        settings = TrainingSettings(participation=participation, seed=4)
        for number in range(1, 6):
            asked = are_asked(settings, number, 10)
            assert np.flatnonzero(asked).tolist() == participants(settings, number, 10)
            wanted = generator(4, "participation", number).permutation(10)[: asked.sum()]
            assert sorted(wanted.tolist()) == participants(settings, number, 10)


def test_a_device_that_drops_out_stops_at_its_own_moment() -> None:
    made = schedule(
        training__dropout_probability=0.5,
        training__participation=0.5,
        training__iterations_per_round=4,
    )
    for number in range(1, 20):
        found = made.turnout(number)
        lost = generator(0, "dropout", number).random(6) < 0.5
        moment = generator(0, "moment of dropout", number).integers(0, 4, 6)
        assert found.asked.sum() == 3
        assert (
            found.iterations.tolist()
            == np.where(found.asked, np.where(lost, moment, 4), 0).tolist()
        )
    assert schedule().turnout(1).iterations.tolist() == [5] * 6


def test_fronts_are_averaged_every_so_many_rounds() -> None:
    assert [n for n in range(1, 8) if averages_fronts(3, n)] == [3, 6]
    assert not any(averages_fronts(None, n) for n in range(1, 8))


# ---- charges -----------------------------------------------------------------------------------------------------------------
def test_every_algorithm_has_its_charges() -> None:
    assert tuple(CHARGES) == ALGORITHMS


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_what_a_round_asks_for_is_worked_out_once_for_each_plan(algorithm: str) -> None:
    made = schedule(
        training__algorithm=algorithm, fleet__redraw_fading=True, training__replan_every=2
    )
    first = made.charges(1)
    assert made.charges(2) is first
    assert made.replan_if_due(3) is not None
    again = made.charges(3)
    assert again is not first
    assert algorithm == "split-learning" or again.shares.tolist() != first.shares.tolist()


def test_rounds_that_average_fronts_have_charges_of_their_own() -> None:
    made = schedule(training__average_fronts_every=2)
    without, with_fronts = made.charges(1), made.charges(2)
    assert (made.charges(3), made.charges(4)) == (without, with_fronts)
    assert not without.up_once_bits.any()
    assert with_fronts.up_once_bits.all()


def test_what_is_agreed_anew_is_charged_for() -> None:
    made = schedule()
    before = made.charges(1)
    made.agreed = Agreed(np.full(6, 3), made.agreed.shares, 1, 0.0)
    assert (
        made.charges(1).work.tolist() == [16.0 * made.profile.macs[2]] * 6 != before.work.tolist()
    )


# ---- a clock that works in blocks --------------------------------------------------------------------------------------------
def some_round(
    waits: str, devices: int = 40, iterations: int = 23
) -> tuple[Charges, Fleet, Clock, Rows, Any]:
    rng = np.random.default_rng(3)
    fleet = Fleet.sample(devices, seed=1, distance_spread=0.5)
    columns = [10 ** rng.uniform(4, 6, devices) for _ in range(5)]
    charges = Charges(*columns, np.full(devices, 1 / devices), rng.uniform(0, 1, devices), waits)
    runs = rng.integers(0, iterations + 1, devices) * (rng.random(devices) < 0.5)
    return (
        charges,
        fleet,
        Clock(downlink=True),
        Draws(5, 2, iterations, devices),
        np.where(runs == 0, iterations, runs),
    )


@pytest.mark.parametrize("waits", ["iteration", "round", "turns"])
@pytest.mark.parametrize("numbers", [1, 100, 1000])
def test_a_round_costs_the_same_in_blocks(
    waits: str, numbers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = time_round(*some_round(waits))
    monkeypatch.setattr(virtual_time, "MOST_NUMBERS", numbers)
    blocks = time_round(*some_round(waits))
    assert blocks.latency_s == pytest.approx(whole.latency_s, rel=1e-13)
    assert blocks.last.tolist() == whole.last.tolist()
    for name in PER_DEVICE:
        assert getattr(blocks, name) == pytest.approx(
            getattr(whole, name), rel=1e-12, abs=1e-12 * whole.latency_s
        ), name


@pytest.mark.parametrize("waits", ["iteration", "round", "turns"])
def test_draws_that_are_made_when_needed_are_those_of_the_matrix(waits: str) -> None:
    charges, fleet, clock, draws, iterations = some_round(waits)
    matrix = draw_fluctuations(5, 2, 23, 40)
    assert_same_costs(
        time_round(charges, fleet, clock, draws, iterations),
        time_round(charges, fleet, clock, matrix, iterations),
    )
    assert len(draws) == 23
    assert draws[20:30].tolist() == matrix[20:].tolist()


def test_who_is_last_is_who_the_others_wait_for() -> None:
    """Two iterations of 1, 3, 2 and 5, 4, 6 seconds; the third device is there for one of them."""
    fleet = Fleet(seconds_per_mac=[1e-9] * 3, fluctuation=1.0, full_band_rate_bps=1e9)
    one, none = np.ones(3), np.zeros(3)
    X = np.array([[1.0, 3.0, 2.0], [5.0, 4.0, 6.0]])

    def last(waits: str, iterations: list[int]) -> list[int]:
        found: list[int] = time_round(
            Charges(one, none, none, none, none, one / 3, none, waits),
            fleet,
            Clock(),
            X,
            np.array(iterations),
        ).last.tolist()
        return found

    assert last("iteration", [2, 2, 2]) == [1, 2]
    assert last("iteration", [2, 2, 1]) == [1, 0]
    assert last("iteration", [1, 0, 1]) == [2]
    assert last("iteration", [0, 0, 0]) == []
    assert last("round", [2, 2, 2]) == [2]
    assert last("round", [2, 2, 1]) == [1]
    assert last("turns", [2, 0, 1]) == [0]
    assert last("round", [0, 0, 0]) == []
