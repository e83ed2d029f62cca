"""The virtual clock: three devices worked by hand for every algorithm, and long runs against the planner's integrals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq

from airsplit import Cell, Clock, Fleet, Profile, plan
from airsplit.scenario.settings import ALGORITHMS as NAMES
from airsplit.training.algorithms import ALGORITHMS
from airsplit.training.virtual_time import Charges, RoundCosts, Terms, draw_fluctuations, time_round

# Layer a: 2 MAC, 4 numbers out, 5 weights.  Layer b: 3 MAC, 1 number out, 7 weights.
PROFILE = Profile(
    ["a", "b"],
    [2, 3],
    matmul_macs=[2, 5],
    activation_elements=[4, 1],
    parameters=[5, 7],
    backward_macs=[4, 10],
)
X = np.array([[1.0, 0.0, 2.0], [9.0, 0.0, 4.0]])  # two iterations
SPLITS, SHARES = np.array([1, 2, 1]), np.array([0.5, 0.25, 0.25])
ALL = np.array([2, 2, 2])


def fleet(**more: Any) -> Fleet:
    return Fleet(
        seconds_per_mac=[1.0, 2.0, 1.0],
        fluctuation=[1.0, 2.0, 4.0],
        full_band_rate_bps=[64.0, 64.0, 256.0],
        full_band_downlink_bps=[128.0, 64.0, 512.0],
        transmit_power_dbm=30.0,  # 1 W
        **more,
    )


def charges(
    algorithm: str, clock: Clock, devices: Fleet | None = None, fronts: bool = False
) -> Charges:
    terms = Terms(
        PROFILE,
        devices or fleet(),
        clock.replace(iterations_per_round=2),
        SPLITS,
        SHARES,
        2,
        8,
        fronts_averaged=fronts,
    )
    return ALGORITHMS[algorithm].charges(terms)


def costs(
    algorithm: str,
    iterations: Any = ALL,
    fronts: bool = False,
    devices: Fleet | None = None,
    **clock: Any,
) -> RoundCosts:
    """Two samples a batch, eight bits a number."""
    made = Clock(**clock)
    return time_round(
        charges(algorithm, made, devices, fronts), devices or fleet(), made, X, np.array(iterations)
    )


# In each iteration, for splits a, b, a: work 2·2, 2·5, 2·2 MAC; a·c + (c/ε)·X = 4 + 4 X, 20 + 5 X, 4 + X seconds.
COMPUTE = [8.0 + 40.0, 20.0 + 20.0, 6.0 + 8.0]
# Numbers 2·4, 2·1, 2·4 of 8 bits at 32, 16 and 64 bit/s: 2, 1 and 1 s up; at 64, 16, 128 bit/s: 1, 1 and 1/2 s down.
# So an iteration takes 10, 21, 7 s, then 42, 21, 9 s; with the way down 11, 22, 7.5 s, then 43, 22, 9.5 s.


def test_sfl_waits_after_every_iteration() -> None:
    found = costs("sfl")
    assert found.latency_s == 21 + 42
    assert found.compute_s.tolist() == COMPUTE
    assert found.transmit_s.tolist() == [4.0, 2.0, 2.0]
    assert found.idle_s.tolist() == [11.0, 21.0, 14.0 + 33.0]
    assert found.server_s.tolist() == [0.0, 0.0, 0.0]
    assert found.sent_bytes.tolist() == [2 * 8, 2 * 2, 2 * 8]
    assert found.received_bytes.tolist() == [2 * 8, 2 * 2, 2 * 8]
    assert found.macs.tolist() == [8.0, 20.0, 8.0]
    assert found.energy_j.tolist() == [4.0, 2.0, 2.0]  # one watt for as long as it sends


def test_sfl_waits_after_the_round() -> None:
    found = costs("sfl", barrier="round")
    assert found.latency_s == 10 + 42
    assert found.idle_s.tolist() == [0.0, 10.0, 36.0]


def test_sfl_with_the_way_down() -> None:
    assert costs("sfl", downlink=True).latency_s == 22 + 43
    found = costs("sfl", downlink=True, barrier="round")
    assert found.latency_s == 11 + 43
    assert found.transmit_s.tolist() == [6.0, 4.0, 3.0]
    assert found.energy_j.tolist() == [4.0, 2.0, 2.0]  # listening is not sending


def test_sfl_with_the_servers_time() -> None:
    """What the device does not compute, 6, 0 and 6 MAC, at half a second each; with room for one, three share it."""
    found = costs("sfl", server_seconds_per_mac=0.5)
    assert found.server_s.tolist() == [6.0, 0.0, 6.0]
    assert found.latency_s == 21 + 45  # 13, 21, 10 then 45, 21, 12
    found = costs("sfl", server_seconds_per_mac=0.5, server_parallel=1)
    assert found.server_s.tolist() == [18.0, 0.0, 18.0]
    assert found.latency_s == 21 + 51


def test_sfl_with_the_backward_pass_is_one_draw_of_more_work() -> None:
    for ratio, factor in ((2.0, 3.0), ("counted", 3.0), (0.5, 1.5)):
        found = costs("sfl", backward_macs_ratio=ratio)
        assert found.compute_s.tolist() == [factor * each for each in COMPUTE]
        assert found.macs.tolist() == [8 * factor, 20 * factor, 8 * factor]


def test_sfl_sends_fronts_only_in_a_round_that_averages_them() -> None:
    """5, 12 and 5 weights of 8 bits: 40/32, 96/16, 40/64 s up."""
    found = costs("sfl", fronts=True)
    assert found.latency_s == 63 + 6
    assert found.transmit_s.tolist() == [4 + 1.25, 2 + 6.0, 2 + 0.625]
    assert found.idle_s.tolist() == [11 + 4.75, 21.0, 47 + 5.375]
    assert found.sent_bytes.tolist() == [16 + 5, 4 + 12, 16 + 5]
    assert found.received_bytes.tolist() == [16 + 5, 4 + 12, 16 + 5]
    assert found.energy_j.tolist() == [5.25, 8.0, 2.625]


@pytest.mark.parametrize("algorithm", ["splitfed-v1", "splitfed-v2"])
def test_splitfed_is_sfl_and_the_fronts_weights_once_a_round(algorithm: str) -> None:
    assert costs(algorithm).latency_s == 63 + 6
    assert costs(algorithm, barrier="round").latency_s == 52 + 1.25
    down = costs(algorithm, downlink=True)  # and 40/64, 96/16, 40/128 s down
    assert down.latency_s == 65 + 12
    assert down.transmit_s.tolist() == [6 + 1.875, 4 + 12.0, 3 + 0.9375]
    assert costs(algorithm).sent_bytes.tolist() == [21, 16, 21]


def test_split_learning_takes_turns_with_the_whole_band() -> None:
    """Up 64/64, 16/64, 64/256 s an iteration; then 40/64, 96/64, 40/256 s for the front."""
    found = costs(
        "split-learning", server_seconds_per_mac=0.5, server_parallel=1
    )  # alone with the server, too
    busy = [48 + 2 + 6 + 0.625, 40 + 0.5 + 1.5, 14 + 0.5 + 6 + 0.15625]
    assert found.latency_s == sum(busy)
    assert found.transmit_s.tolist() == [2.625, 2.0, 0.65625]
    assert found.idle_s.tolist() == [sum(busy) - each for each in busy]
    assert found.sent_bytes.tolist() == [21, 16, 21]
    down = costs(
        "split-learning", downlink=True
    )  # down 64/128, 16/64, 64/512 s, and 40/128, 96/64, 40/512 s
    assert down.transmit_s.tolist() == [
        2.625 + 1 + 0.3125,
        2.0 + 0.5 + 1.5,
        0.65625 + 0.25 + 0.078125,
    ]


def test_fedavg_computes_everything_and_sends_all_weights_once() -> None:
    """2·5 MAC an iteration: 10 + 10 X, 20 + 5 X, 10 + 2.5 X; its own shares let the means 40, 50, 25 s + air time be one."""
    found = costs("fedavg")
    finish = brentq(
        lambda t: 1.5 / (t - 40) + 1.5 / (t - 50) + 0.375 / (t - 25) - 1, 50.1, 100, xtol=1e-13
    )
    air = [finish - 40, finish - 50, finish - 25]
    assert found.compute_s.tolist() == [20.0 + 100, 20.0 + 20, 15.0 + 20]
    assert found.transmit_s.tolist() == pytest.approx(air, rel=1e-9)
    assert found.latency_s == pytest.approx(max(120 + air[0], 40 + air[1], 35 + air[2]), rel=1e-9)
    assert found.sent_bytes.tolist() == [12, 12, 12]
    assert found.received_bytes.tolist() == [12, 12, 12]
    assert found.macs.tolist() == [20.0, 20.0, 20.0]
    assert found.server_s.tolist() == [0.0, 0.0, 0.0]
    assert (
        found.latency_s == costs("fedavg", barrier="round").latency_s
    )  # nobody waits within a round either way


@pytest.mark.parametrize("downlink", [False, True])
@pytest.mark.parametrize("noise", [{"noise_dbm": -114.0}, {"noise_dbm_per_hz": -174.0}])
def test_fedavgs_own_shares_let_everybody_finish_together_on_average(
    noise: dict[str, float], downlink: bool
) -> None:
    devices = Fleet.sample(12, seed=3, distance_spread=0.6, cell=Cell(**noise))
    clock = Clock(iterations_per_round=4, downlink=downlink, backward_macs_ratio=1.0)
    profile = Profile(
        ["a", "b"],
        [10**6, 10**6],
        matmul_macs=[1, 2],
        activation_elements=[9, 9],
        parameters=[10**6, 10**5],
    )
    terms = Terms(profile, devices, clock, np.ones(12, dtype=int), np.full(12, 1 / 12), 8, 32)
    made = ALGORITHMS["fedavg"].charges(terms)
    assert made.shares.sum() <= 1
    assert made.shares.sum() == pytest.approx(1, rel=1e-9)
    mean_compute = 4 * 8 * 2 * 2e6 * (devices.seconds_per_mac + 1 / devices.fluctuation)
    bits = np.full(12, 1.1e6 * 32)
    rate = devices.rate_bps(made.shares)
    ends = mean_compute + bits / rate
    if downlink:
        down = devices.link(downlink=True).down
        assert down is not None
        ends = ends + bits / down.rate_bps(made.shares)
    assert ends == pytest.approx(np.full(12, ends[0]), rel=1e-9)


def test_fedavgs_shares_are_whole_blocks_where_the_band_comes_in_blocks() -> None:
    shares = charges("fedavg", Clock(), fleet(cell=Cell(resource_blocks=10))).shares
    assert (shares * 10).round(9).tolist() == (shares * 10).round().tolist()
    assert shares.sum() <= 1


def test_a_block_that_is_left_goes_to_whoever_would_be_last() -> None:
    # three devices alike need three blocks of ten each; of three with 64, 64 and 256 bit/s and two seconds more, the first
    same = Fleet(
        seconds_per_mac=1.0,
        fluctuation=1.0,
        full_band_rate_bps=[64.0] * 3,
        cell=Cell(resource_blocks=10),
    )
    assert charges("fedavg", Clock(), same).shares * 10 == pytest.approx([4, 3, 3], rel=1e-9)
    slow = Fleet(
        seconds_per_mac=[1.0, 1.1, 1.0],
        fluctuation=1.0,
        full_band_rate_bps=[64.0] * 3,
        cell=Cell(resource_blocks=10),
    )
    assert charges("fedavg", Clock(), slow).shares * 10 == pytest.approx([3, 4, 3], rel=1e-9)


# ---- who is not there ------------------------------------------------------------------------------------------------------
def test_a_device_that_drops_out_has_spent_what_it_has_and_is_waited_for_until_then() -> None:
    """Device 1 runs one of two iterations, device 2 takes no part."""
    found = costs("splitfed-v1", [2, 1, 0])
    assert found.latency_s == 21 + 42 + 1.25
    assert found.compute_s.tolist() == [48.0, 20.0, 0.0]
    assert found.transmit_s.tolist() == [5.25, 1.0, 0.0]
    assert found.sent_bytes.tolist() == [21, 2, 0]
    assert found.received_bytes.tolist() == [21, 2, 0]
    assert found.macs.tolist() == [8.0, 10.0, 0.0]
    assert found.energy_j.tolist() == [5.25, 1.0, 0.0]
    assert found.idle_s.tolist() == [11.0, 0.0, 0.0]


def test_a_device_that_drops_out_counts_in_every_kind_of_round() -> None:
    assert costs("sfl", [0, 1, 2], barrier="round").latency_s == 21
    assert costs("sfl", [0, 1, 2], barrier="round").idle_s.tolist() == [0.0, 0.0, 5.0]
    assert costs("split-learning", [0, 1, 2]).latency_s == 20.25 + (14 + 0.5 + 0.15625)
    assert costs("fedavg", [0, 1, 0]).latency_s == 20
    assert costs("fedavg", [0, 1, 0]).sent_bytes.tolist() == [0, 0, 0]


@pytest.mark.parametrize("algorithm", NAMES)
def test_nobody_there_takes_no_time(algorithm: str) -> None:
    found = costs(algorithm, [0, 0, 0], downlink=True, server_seconds_per_mac=1.0)
    assert found.latency_s == 0
    for column in (
        "compute_s",
        "transmit_s",
        "server_s",
        "idle_s",
        "sent_bytes",
        "received_bytes",
        "macs",
        "energy_j",
    ):
        assert getattr(found, column).tolist() == [0, 0, 0], column


def test_energy_counts_computing_where_the_fleet_says_what_it_takes() -> None:
    found = costs("sfl", devices=fleet(joules_per_mac=[0.5, 0.0, 2.0]))
    assert found.energy_j.tolist() == [4 + 0.5 * 8, 2.0, 2 + 2.0 * 8]


@pytest.mark.parametrize("algorithm", NAMES)
def test_every_device_is_busy_or_waiting_all_the_time(algorithm: str) -> None:
    for barrier in ("iteration", "round"):
        found = costs(algorithm, barrier=barrier, downlink=True, server_seconds_per_mac=0.5)
        total = found.compute_s + found.transmit_s + found.server_s + found.idle_s
        assert total == pytest.approx(np.full(3, found.latency_s), rel=1e-12)


# ---- long runs -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("barrier", ["iteration", "round"])
@pytest.mark.parametrize(
    "more",
    [
        {},
        {
            "downlink": True,
            "backward_macs_ratio": 1.0,
            "server_seconds_per_mac": 1e-11,
            "server_parallel": 2,
        },
    ],
)
def test_in_the_long_run_an_iteration_takes_what_the_plan_says(
    barrier: str, more: dict[str, Any]
) -> None:
    E, rounds = 3, 1500
    profile = Profile(
        ["a", "b", "c"],
        [10**6, 3 * 10**6, 10**6],
        matmul_macs=[1, 2, 3],
        activation_elements=[3000, 900, 10],
        parameters=[9, 9, 9],
    )
    devices = Fleet.sample(5, seed=2, distance_spread=0.5)
    clock = Clock(barrier=barrier, iterations_per_round=E, **more)
    made = plan(profile, devices, batch_size=4, clock=clock, method="equal")
    terms = Terms(profile, devices, clock, made.splits, made.shares, 4, 32)
    asked, all_of_them = ALGORITHMS["sfl"].charges(terms), np.full(5, E)
    drawn = [
        time_round(asked, devices, clock, draw_fluctuations(0, n, E, 5), all_of_them)
        for n in range(1, rounds + 1)
    ]
    latency = np.array([each.latency_s for each in drawn]) / E
    assert abs(latency.mean() - made.expected_latency_s) < 4 * latency.std() / np.sqrt(rounds)
    compute = np.array([each.compute_s for each in drawn]) / E
    assert (
        np.abs(compute.mean(axis=0) - made.compute_s) < 4 * compute.std(axis=0) / np.sqrt(rounds)
    ).all()
    assert drawn[0].transmit_s / E == pytest.approx(made.transmit_s, rel=1e-12)


def test_fluctuations_are_exponential_and_addressed() -> None:
    few, many = draw_fluctuations(1, 4, 3, 5), draw_fluctuations(1, 4, 7, 50)
    assert (few == many[:3, :5]).all()
    assert not (few == draw_fluctuations(1, 5, 3, 5)).any()
    assert not (few == draw_fluctuations(2, 4, 3, 5)).any()
    assert not (few[0] == few[1]).any()
    large = draw_fluctuations(0, 1, 2, 20_000)
    assert large.mean() == pytest.approx(1, abs=4 / np.sqrt(40_000))
    assert large.std() == pytest.approx(1, abs=0.04)
    assert (large > 0).all()
