"""What a clock charges, and what it refuses."""

import math
from typing import Any

import pytest

from airsplit.core.errors import InvalidValue
from airsplit.system.clock import Clock
from airsplit.system.profile import Profile


def test_the_default_clock_is_the_papers() -> None:
    clock = Clock()
    assert (clock.barrier, clock.iterations_per_round, clock.downlink) == ("iteration", 1, False)
    assert (clock.backward_macs_ratio, clock.server_seconds_per_mac, clock.server_parallel) == (
        0,
        0,
        None,
    )


def test_devices_wait_after_every_iteration_or_once_a_round() -> None:
    assert Clock(iterations_per_round=47).draws == 1
    assert Clock(barrier="round", iterations_per_round=47).draws == 47


def test_the_backward_pass_is_a_multiple_of_the_forward_pass_or_what_the_profile_counts() -> None:
    columns = {
        "matmul_macs": [8, 8],
        "activation_elements": [4, 2],
        "parameters": [1, 1],
        "backward_macs": [0, 12],
    }
    profile = Profile(["frozen", "trained"], [8, 4], **columns)
    assert Clock().work(profile).tolist() == [8, 12]
    assert Clock(backward_macs_ratio=2.0).work(profile).tolist() == [24, 36]
    assert Clock(backward_macs_ratio="counted").work(profile).tolist() == [8, 24]


def test_a_server_slows_down_only_beyond_what_it_runs_at_once() -> None:
    assert Clock(server_seconds_per_mac=1e-12).server_pace(1000) == 1e-12
    few = Clock(server_seconds_per_mac=1e-12, server_parallel=8)
    assert few.server_pace(4) == few.server_pace(8) == 1e-12
    assert few.server_pace(20) == pytest.approx(2.5e-12)


def test_a_variant_changes_one_thing_and_is_checked() -> None:
    clock = Clock(downlink=True).replace(barrier="round")
    assert clock == Clock(downlink=True, barrier="round")
    with pytest.raises(InvalidValue, match=r"clock\.barrier"):
        clock.replace(barrier="weekly")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("barrier", "rounds"),
        ("barrier", None),
        ("iterations_per_round", 0),
        ("iterations_per_round", 1.5),
        ("iterations_per_round", True),
        ("downlink", "no"),
        ("downlink", None),
        ("backward_macs_ratio", -1.0),
        ("backward_macs_ratio", math.nan),
        ("backward_macs_ratio", math.inf),
        ("server_seconds_per_mac", -1e-12),
        ("server_seconds_per_mac", [1e-12]),
        ("server_parallel", 0),
        ("server_parallel", 2.5),
    ],
)
def test_every_bad_setting_names_its_field(field: str, value: Any) -> None:
    with pytest.raises(InvalidValue, match=rf"^clock\.{field}"):
        Clock(**{field: value})


def test_an_unknown_barrier_offers_the_nearest() -> None:
    with pytest.raises(InvalidValue, match="did you mean 'round'"):
        Clock(barrier="rounds")
