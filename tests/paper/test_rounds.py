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
from airsplit.planning.round_time import allocate_round
from airsplit.system.profile import load_shipped_profile

ALEXNET = load_shipped_profile("alexnet")
FLEET = air.Fleet.sample(20, seed=3)


def test_a_round_of_one_device_equals_the_count_by_hand():
    fleet = air.Fleet(seconds_per_mac=1e-9, fluctuation=2e9, full_band_rate_bps=1e6)
    allocated = allocate_round(fleet, np.array(1e9), np.array(2e6), times=10)
    assert allocated.compute_s == pytest.approx(15)
    assert allocated.transmit_s == pytest.approx(20)
    assert allocated.air_time_s == pytest.approx(20)
    assert allocated.total_s == pytest.approx(35)
    assert allocated.expected_max_s == pytest.approx(35)


def test_a_pass_is_a_whole_number_of_iterations():
    assert BATCH_SIZE * ITERATIONS == SAMPLES


def test_mean_compute_and_transmit_time_add_up_because_all_devices_finish_together():
    sfl = sfl_round(ALEXNET, FLEET, 8)
    fedavg = fedavg_round(ALEXNET, FLEET)
    fixed = split_round(ALEXNET, FLEET, 4)
    for round_ in (sfl, fedavg, fixed):
        assert round_.compute_s + round_.transmit_s == pytest.approx(round_.total_s, rel=1e-9)
        assert round_.expected_max_s > round_.total_s


def test_an_sfl_round_has_the_exact_plan_not_that_of_the_default_method():
    exact = air.plan(ALEXNET, FLEET, method="exact", max_split=8, batch_size=BATCH_SIZE)
    default = air.plan(
        ALEXNET, FLEET, method="expected-max", max_split=8, batch_size=BATCH_SIZE, certify=False
    )
    assert default.mean_latency_s > exact.mean_latency_s * 1.001
    assert sfl_round(ALEXNET, FLEET, 8).total_s == pytest.approx(
        ITERATIONS * exact.mean_latency_s, rel=1e-9
    )


def test_a_round_at_one_split_equals_the_planners_fixed_plan():
    plan = air.plan(ALEXNET, FLEET, method="fixed", split=4, batch_size=BATCH_SIZE)
    fixed = split_round(ALEXNET, FLEET, 4)
    air_time_s = float(plan.transmit_s @ plan.shares)
    assert fixed.total_s == pytest.approx(ITERATIONS * plan.mean_latency_s, rel=1e-9)
    assert fixed.expected_max_s == pytest.approx(ITERATIONS * plan.expected_latency_s, rel=1e-9)
    assert fixed.air_time_s == pytest.approx(ITERATIONS * air_time_s, rel=1e-9)


def test_an_sfl_round_attains_the_planners_optimum():
    best = air.plan(ALEXNET, FLEET, method="exact", max_split=8, batch_size=BATCH_SIZE)
    assert sfl_round(ALEXNET, FLEET, 8).total_s == pytest.approx(
        ITERATIONS * best.objective_s, rel=1e-9
    )


def test_fedavg_sends_every_parameter_once_and_computes_all_layers():
    fedavg = fedavg_round(ALEXNET, FLEET)
    bits = 62_378_344 * 32
    pace = FLEET.seconds_per_mac + 1 / FLEET.fluctuation
    assert fedavg.air_time_s == pytest.approx(float((bits / FLEET.rate_bps(1.0)).sum()))
    assert fedavg.compute_s == pytest.approx(1500 * 1_139_401_664 * float(pace.mean()))


def test_fedavg_with_its_own_shares_is_no_slower_than_with_equal_ones():
    compute_s = 1500 * 1_139_401_664 * (FLEET.seconds_per_mac + 1 / FLEET.fluctuation)
    equal_shares_s = compute_s + 62_378_344 * 32 / FLEET.rate_bps(1 / 20)
    assert fedavg_round(ALEXNET, FLEET).total_s < equal_shares_s.max()
