"""What the server expects, what must fit, and what it learns from rounds that are over."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from airsplit.core.errors import Infeasible, InvalidValue
from airsplit.network.server import forecast as forecast_module
from airsplit.network.server.back_ends import BackEnds, bytes_of
from airsplit.network.server.device_registry import Member, Work
from airsplit.network.server.forecast import (
    Forecast,
    expected,
    forecast,
    measured_fleet,
    message_limit,
    possible_splits,
    real_clock,
    require_memory,
    require_plannable,
    server_memory_bytes,
)
from airsplit.network.server.replanning import Watch, moving
from airsplit.network.wire import airsplit_pb2 as pb
from airsplit.scenario.scenario import Scenario
from airsplit.system.clock import Clock
from airsplit.system.fleet import Fleet
from airsplit.system.latency import Fluctuation
from airsplit.training.setup import replica_of
from training import tiny

K = 3


def scenario(**changes: object) -> Scenario:
    return tiny.scenario(data="flat", **{"splits": [1, 2, 3]} | changes)


def fleet(a: float = 1e-3, rate: float = 1e5) -> Fleet:
    return Fleet(
        seconds_per_mac=np.full(K, a),
        fluctuation=np.full(K, 2 / a),
        full_band_rate_bps=np.full(K, rate),
    )


# ---- times -----------------------------------------------------------------------------------------------------------------
def test_a_round_is_e_iterations_of_the_plan() -> None:
    chosen, (_, profile) = scenario(iterations_per_round=4), replica_of(scenario())
    clock = real_clock(chosen, 0.0)
    made = forecast(chosen, profile, fleet(), clock)
    assert made.plan is not None
    assert made.round_s == pytest.approx(4 * made.plan.latency_s)
    assert made.latency_s == pytest.approx(4 * made.plan.expected_latency_s)
    assert made.up_bps == pytest.approx(1e5 * made.shares)
    assert (made.late_s > made.round_s).all()


def test_what_is_expected_of_a_plan_is_what_the_plan_says() -> None:
    chosen, (_, profile) = scenario(), replica_of(scenario())
    clock = real_clock(chosen, 1e-9)
    made = forecast(chosen, profile, fleet(), clock)
    again = expected(chosen, profile, fleet(), clock, made.splits, made.shares)
    assert again.latency_s == pytest.approx(made.latency_s)
    assert again.round_s == pytest.approx(made.round_s)


def test_the_real_clock_counts_what_takes_time() -> None:
    clock = real_clock(scenario(iterations_per_round=7), 1e-12)
    assert clock == Clock(
        barrier="round",
        iterations_per_round=7,
        downlink=True,
        backward_macs_ratio="counted",
        server_seconds_per_mac=1e-12,
        server_parallel=1,
    )


def test_federated_averaging_is_charged_for_the_whole_model_once_a_round() -> None:
    chosen, (replica, profile) = (
        scenario(algorithm="fedavg", iterations_per_round=2),
        replica_of(scenario()),
    )
    clock = real_clock(chosen, 0.0)
    made = forecast(chosen, profile, fleet(), clock)
    work = chosen.training.batch_size * clock.work(profile)[-1]
    bits = 32 * sum(parameter.numel() for parameter in replica.model.parameters())
    mean = 2 * work * 1.5e-3 + 2 * bits / (1e5 / K)
    assert made.round_s == pytest.approx(np.full(K, mean))


def test_a_device_is_late_after_its_factor_and_its_grace() -> None:
    made = forecast(scenario(), replica_of(scenario())[1], fleet(), real_clock(scenario(), 0.0))
    network = scenario(network__deadline_factor=3.0, network__grace_s=2.0).network
    assert made.allowed_s(1, network) == pytest.approx(3 * made.late_s[1] + 2)
    assert made.late_s[1] <= made.round_s[1] * Fluctuation().quantile(0.999)


def test_a_measured_fleet_is_what_devices_said_of_themselves() -> None:
    said = [
        {
            "seconds_per_mac": 1e-9 * k,
            "fluctuation": 1e9,
            "up_bps": 1e6 * k,
            "down_bps": 2e6,
            "memory_bytes": 0.0,
        }
        for k in (1, 2)
    ]
    found = measured_fleet(scenario(), ["one", "two"], said)
    assert found.name == ("one", "two")
    assert found.rate_bps([0.5, 0.5]).tolist() == [0.5e6, 1e6]
    assert found.memory_bytes is None


def test_a_device_that_says_how_much_memory_it_has_is_held_to_it_also_if_others_say_nothing() -> (
    None
):
    said = {"seconds_per_mac": 1e-9, "fluctuation": 1e9, "up_bps": 1e6, "down_bps": 2e6}
    found = measured_fleet(
        scenario(), ["one", "two"], [said | {"memory_bytes": memory} for memory in (1e6, 0.0)]
    )
    assert found.memory_bytes is not None
    assert found.memory_bytes[0] == 1e6
    assert found.memory_bytes[1] > 1e15


# ---- what must fit -----------------------------------------------------------------------------------------------------------
def test_the_splits_that_a_plan_may_choose() -> None:
    _, profile = replica_of(scenario())
    assert possible_splits(scenario(), profile).tolist() == [1, 2, 3]
    free = scenario().replace(**{"plan.method": "exact", "plan.max_split": 4, "plan.min_split": 2})
    assert possible_splits(free, profile).tolist() == [2, 3, 4]
    deepest = possible_splits(free.replace(**{"plan.max_split": None}), profile)[-1]
    assert deepest == profile.default_max_split()


def test_messages_may_be_as_large_as_the_widest_cut_and_no_larger(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chosen = scenario(batch_size=10**5)
    replica, profile = replica_of(chosen)
    widest = int(profile.activation_elements[:3].max())
    limit = message_limit(chosen, replica, profile)
    assert 10**5 * widest * 4 < limit < 2**31
    with pytest.raises(InvalidValue, match=r"more than gRPC can carry; lower training\.batch_size"):
        message_limit(scenario(batch_size=10**9), replica, profile)
    monkeypatch.setattr(forecast_module, "LARGEST_MESSAGE", 1 << 20)
    with pytest.raises(
        InvalidValue, match="more than gRPC can carry; take a smaller model"
    ):  # no batch crosses
        message_limit(scenario(algorithm="fedavg"), replica, profile)
    monkeypatch.undo()
    small = message_limit(scenario(), replica, profile)
    assert small == message_limit(
        scenario(algorithm="fedavg"), replica, profile
    )  # room for a probe of the link


def test_memory_grows_with_the_devices_but_not_where_one_copy_is_enough() -> None:
    replica, profile = replica_of(scenario())
    model = bytes_of(replica.tensors)
    several = [
        server_memory_bytes(scenario(iterations_per_round=2), replica, profile, k) for k in (1, 11)
    ]
    assert several[1] - several[0] >= 10 * bytes_of(BackEnds.begun(replica, [1]).common)
    one = [
        server_memory_bytes(scenario(iterations_per_round=1), replica, profile, k) for k in (1, 11)
    ]
    plain = [
        server_memory_bytes(scenario(iterations_per_round=1, fast_paths=False), replica, profile, k)
        for k in (1, 11)
    ]
    assert one[1] - one[0] < plain[1] - plain[0]
    assert server_memory_bytes(scenario(algorithm="fedavg"), replica, profile, 5) >= 5 * model


def test_a_server_that_does_not_fit_is_refused() -> None:
    replica, profile = replica_of(scenario())
    with pytest.raises(Infeasible, match=r"network\.memory_bytes"):
        require_memory(scenario(network__memory_bytes=1000), replica, profile, K)
    assert require_memory(scenario(), replica, profile, K) < 10**8


def test_a_plan_that_can_never_be_made_is_refused_before_devices_come() -> None:
    _, profile = replica_of(scenario())
    require_plannable(scenario(), profile, fleet(), Clock())
    with pytest.raises(InvalidValue):
        require_plannable(scenario(splits=[1, 2]), profile, fleet(), Clock())


# ---- what rounds have shown ----------------------------------------------------------------------------------------------------
def finished(
    member: Member, compute_s: list[float], transmit_s: float, sent: int = 1000, received: int = 500
) -> Member:
    done = pb.Finished(compute_s=sum(compute_s), transmit_s=transmit_s, step_compute_s=compute_s)
    member.work = Work(1, 1, 0.0, finished=done, sent_bytes=sent, received_bytes=received)
    return member


def made() -> Forecast:
    nothing = np.zeros(K)
    rates = np.full(K, 8000.0)
    return Forecast(
        fleet(),
        Clock(),
        None,
        np.array([1, 2, 3]),
        np.full(K, 1 / K),
        rates,
        rates,
        nothing,
        nothing,
        1.0,
    )


def test_a_fleet_is_fitted_anew_to_what_its_steps_took() -> None:
    watch, rng, macs = Watch(K), np.random.default_rng(0), 100.0
    for _ in range(10):
        steps = macs * (5e-3 + 1e-3 * rng.exponential(size=10))
        watch.look(finished(Member(1), steps.tolist(), 1.5), macs, made())
    found = watch.refitted(fleet())
    assert found.seconds_per_mac[1] == pytest.approx(5e-3, rel=0.05)
    assert found.fluctuation[1] == pytest.approx(1e3, rel=0.3)
    assert found.seconds_per_mac[0] == fleet().seconds_per_mac[0]


def test_a_link_that_is_slower_than_planned_counts_as_slower_and_one_that_is_not_stays() -> None:
    watch = Watch(K)
    watch.look(finished(Member(0), [1.0], transmit_s=3.0), 1.0, made())  # planned: 1.5 s
    watch.look(finished(Member(2), [1.0], transmit_s=1.5), 1.0, made())
    found = watch.refitted(fleet())
    assert found.full_band_rate_bps is not None
    assert found.full_band_rate_bps == pytest.approx([0.5e5, 1e5, 1e5])


def test_a_link_that_has_carried_nothing_says_nothing() -> None:
    watch = Watch(K)
    watch.look(finished(Member(0), [1.0], transmit_s=3.0, sent=0, received=0), 1.0, made())
    assert watch.refitted(fleet()).full_band_rate_bps == pytest.approx([1e5, 1e5, 1e5])


def test_few_steps_and_unfinished_rounds_say_nothing() -> None:
    watch, gone = Watch(K), Member(0)
    watch.look(gone, 1.0, made())
    watch.look(finished(Member(1), [9.0] * 4, 1.5), 1.0, made())
    assert watch.refitted(fleet()).seconds_per_mac.tolist() == fleet().seconds_per_mac.tolist()


@pytest.mark.parametrize("step_s", [5e-324, 1e-300, 1e6])
def test_steps_that_took_what_no_device_takes_say_nothing(step_s: float) -> None:
    watch = Watch(K)
    watch.look(finished(Member(1), [step_s] * 8, 1.5), 100.0, made())
    assert watch.refitted(fleet()).seconds_per_mac.tolist() == fleet().seconds_per_mac.tolist()


def test_steps_of_one_length_make_a_steady_device() -> None:
    watch = Watch(K)
    watch.look(finished(Member(1), [0.25] * 8, 1.5), 100.0, made())
    found = watch.refitted(fleet())
    assert found.seconds_per_mac[1] == pytest.approx(0.0025)
    assert found.fluctuation[1] > 1e5 / 0.0025


def test_layers_move_between_the_old_split_and_the_new() -> None:
    replica, _ = replica_of(scenario(momentum=0.9))
    found = moving(replica, [1, 3, 2], [3, 1, 2])
    assert set(found) == {0, 1}
    assert (
        set(found[0].given)
        == set(found[1].wanted)
        == {f"{kind}:2.{part}" for kind in ("model", "momentum") for part in ("weight", "bias")}
    )
    assert not found[0].wanted
    assert not found[1].given


def test_back_ends_that_move_there_and_back_have_the_mean_where_they_were_common() -> None:
    replica, _ = replica_of(scenario())
    ends = BackEnds.begun(replica, [3, 3])
    weight = replica.tensors["model:2.weight"]
    bias = replica.tensors["model:2.bias"]
    arrived = [
        {
            "model:2.weight": torch.full_like(weight, float(k)),
            "model:2.bias": torch.full_like(bias, float(k)),
        }
        for k in (1, 4)
    ]
    ends.move([1, 1], arrived, [0.75, 0.25])
    assert torch.equal(ends.common["model:2.weight"], torch.full_like(weight, 1.75))
    assert list(ends.common) == ends.common_names()
    ends.move([1, 3], [{}, {}], [0.75, 0.25])
    assert torch.equal(ends.own[0]["model:2.weight"], torch.full_like(weight, 1.75))
    assert "model:2.weight" not in ends.own[1]
    assert "model:2.weight" not in ends.common
