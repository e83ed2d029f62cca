"""Rounds of SFL and FedAvg against hand counts and the planner."""

from __future__ import annotations

import numpy as np
import pytest

import airsplit as air
from airsplit.paper.rounds import (
    BATCH_SIZE,
    ITERATIONS,
    SAMPLES,
    fedavg_round,
    sfl_round,
    split_round,
)
from airsplit.paper.sweeps import band, over_fleets, tidy
from airsplit.planning.round_time import allocate_round
from airsplit.system.profile import load_shipped_profile

ALEXNET = load_shipped_profile("alexnet")
FLEET = air.Fleet.sample(20, seed=3)


def test_a_round_of_one_device_is_counted_by_hand():
    fleet = air.Fleet(seconds_per_mac=1e-9, fluctuation=2e9, full_band_rate_bps=1e6)
    done = allocate_round(fleet, np.array(1e9), np.array(2e6), times=10)
    assert done.compute_s == pytest.approx(15)
    assert done.transmit_s == pytest.approx(20)
    assert done.air_time_s == pytest.approx(20)
    assert done.total_s == pytest.approx(35)
    assert done.expected_max_s == pytest.approx(35)


def test_a_pass_is_a_whole_number_of_iterations():
    assert BATCH_SIZE * ITERATIONS == SAMPLES


def test_all_devices_finish_together_so_that_the_parts_add_up():
    for done in (
        sfl_round(ALEXNET, FLEET, 8),
        fedavg_round(ALEXNET, FLEET),
        split_round(ALEXNET, FLEET, 4),
    ):
        assert done.compute_s + done.transmit_s == pytest.approx(done.total_s, rel=1e-9)
        assert done.expected_max_s > done.total_s


def test_a_round_of_sfl_is_the_exact_plan_whatever_the_default_method_is():
    plan = air.plan(ALEXNET, FLEET, method="exact", max_split=8, batch_size=BATCH_SIZE)
    other = air.plan(
        ALEXNET, FLEET, method="expected-max", max_split=8, batch_size=BATCH_SIZE, certify=False
    )
    assert other.mean_latency_s > plan.mean_latency_s * 1.001
    assert sfl_round(ALEXNET, FLEET, 8).total_s == pytest.approx(
        ITERATIONS * plan.mean_latency_s, rel=1e-9
    )


def test_a_round_at_one_split_is_the_planners_fixed_plan():
    plan = air.plan(ALEXNET, FLEET, method="fixed", split=4, batch_size=BATCH_SIZE)
    done = split_round(ALEXNET, FLEET, 4)
    assert done.total_s == pytest.approx(ITERATIONS * plan.mean_latency_s, rel=1e-9)
    assert done.expected_max_s == pytest.approx(ITERATIONS * plan.expected_latency_s, rel=1e-9)
    assert done.air_time_s == pytest.approx(
        ITERATIONS * float(plan.transmit_s @ plan.shares), rel=1e-9
    )


def test_an_sfl_round_is_the_planners_optimum():
    best = air.plan(ALEXNET, FLEET, method="exact", max_split=8, batch_size=BATCH_SIZE)
    assert sfl_round(ALEXNET, FLEET, 8).total_s == pytest.approx(
        ITERATIONS * best.objective_s, rel=1e-9
    )


def test_fedavg_sends_every_parameter_once_and_computes_everything():
    done = fedavg_round(ALEXNET, FLEET)
    bits = 62_378_344 * 32
    pace = FLEET.seconds_per_mac + 1 / FLEET.fluctuation
    assert done.air_time_s == pytest.approx(float((bits / FLEET.rate_bps(1.0)).sum()))
    assert done.compute_s == pytest.approx(1500 * 1_139_401_664 * float(pace.mean()))


def test_fedavg_with_its_own_shares_is_no_slower_than_with_equal_ones():
    busy = 1500 * 1_139_401_664 * (FLEET.seconds_per_mac + 1 / FLEET.fluctuation)
    equal = busy + 62_378_344 * 32 / FLEET.rate_bps(1 / 20)
    assert fedavg_round(ALEXNET, FLEET).total_s < equal.max()


def test_a_band_is_taken_over_the_fleets():
    values = band(np.arange(22.0).reshape(2, 11))
    assert values == {"median": [5.0, 16.0], "p10": [1.0, 12.0], "p90": [9.0, 20.0]}


def test_fleets_are_those_of_seeds_from_zero():
    paces = over_fleets(3, 100, (0.2e-9, 1e-9), lambda fleet: fleet.seconds_per_mac)
    expected = [
        air.Fleet.sample(20, seed=seed, mean_distance_m=100).seconds_per_mac for seed in range(3)
    ]
    assert np.array_equal(paces, expected)


def test_tidy_numbers_are_plain_and_short():
    assert tidy({1: (np.float64(1 / 3), np.int64(2), True, None)}) == {
        "1": [0.333333333, 2, True, None]
    }
