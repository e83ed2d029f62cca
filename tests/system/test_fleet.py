"""Fleets: columns and their checks, channels worked by hand, and sampling."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airsplit.core.errors import InvalidValue
from airsplit.system.cell import Cell
from airsplit.system.fleet import Fleet
from airsplit.system.traces import Trace

NUMBERS: dict[str, Any] = {
    "seconds_per_mac": [1e-9, 2e-9],
    "fluctuation": [2e9, 1e9],
    "distance_m": [100.0, 200.0],
}
MEASURED: dict[str, Any] = {
    "seconds_per_mac": 1e-9,
    "fluctuation": 2e9,
    "full_band_rate_bps": [1e6, 2e6],
}


def fleet(**changes: Any) -> Fleet:
    return Fleet(**(NUMBERS | changes))


def test_one_number_counts_for_all_devices() -> None:
    two = fleet(seconds_per_mac=1e-9)
    assert len(two) == 2
    assert two.seconds_per_mac.tolist() == [1e-9, 1e-9]
    assert two.fading.tolist() == [1.0, 1.0]


def test_only_numbers_are_one_device() -> None:
    assert len(Fleet(seconds_per_mac=1e-9, fluctuation=2e9, distance_m=100.0)) == 1  # type: ignore[arg-type]


def test_names_alone_set_the_number_of_devices() -> None:
    pair = Fleet(seconds_per_mac=1e-9, fluctuation=2e9, distance_m=100.0, name=["a", "b"])  # type: ignore[arg-type]
    assert [device.name for device in pair] == ["a", "b"]


def test_a_device_is_a_row_of_the_columns() -> None:
    device = Fleet(**MEASURED, memory_bytes=[1e6, 2e6], joules_per_mac=0.0, name=["a", "b"])[1]
    assert (device.name, device.full_band_rate_bps, device.memory_bytes) == ("b", 2e6, 2e6)
    assert (device.distance_m, device.joules_per_mac) == (None, 0.0)
    assert fleet()[-1] == fleet()[1]
    assert fleet()[1].name == "1"


@pytest.mark.parametrize("k", [2, -3])
def test_there_is_no_device_beyond_the_last(k: int) -> None:
    with pytest.raises(IndexError, match=f"device {k} of a fleet of 2"):
        fleet()[k]


def test_a_fleet_iterates_over_its_devices() -> None:
    assert list(fleet()) == [fleet()[0], fleet()[1]]


@pytest.mark.parametrize(
    "column", ["seconds_per_mac", "fluctuation", "distance_m", "fading", "transmit_power_dbm"]
)
def test_no_column_can_be_changed(column: str) -> None:
    with pytest.raises(ValueError, match="read-only"):
        getattr(fleet(), column)[0] = 1.0


def test_a_variant_is_checked() -> None:
    assert fleet().replace(fading=0.5).fading.tolist() == [0.5, 0.5]
    with pytest.raises(InvalidValue, match=r"fleet\.fading"):
        fleet().replace(fading=-1.0)


POSITIVE = ["seconds_per_mac", "fluctuation", "distance_m", "fading", "memory_bytes"]
BAD_NUMBERS = [math.nan, math.inf, -math.inf, -1.0]


@pytest.mark.parametrize("column", [*POSITIVE, "joules_per_mac"])
@pytest.mark.parametrize("bad", BAD_NUMBERS)
def test_every_bad_number_is_named_with_its_place(column: str, bad: float) -> None:
    with pytest.raises(
        InvalidValue, match=rf"^fleet\.{column}\[1\] must be a finite number.*, got {bad}"
    ):
        fleet(**{column: [1.0, bad]})
    with pytest.raises(
        InvalidValue, match=rf"^fleet\.{column} must be a finite number.*, got {bad}"
    ):
        fleet(**{column: bad})


@pytest.mark.parametrize("column", POSITIVE)
def test_zero_is_rejected_in_columns_of_positive_numbers(column: str) -> None:
    with pytest.raises(
        InvalidValue, match=rf"^fleet\.{column}\[0\] must be a finite number > 0, got 0.0"
    ):
        fleet(**{column: [0.0, 1.0]})


@pytest.mark.parametrize("column", ["full_band_rate_bps", "full_band_downlink_bps"])
@pytest.mark.parametrize("bad", [*BAD_NUMBERS, 0.0])
def test_every_bad_measured_rate_is_named(column: str, bad: float) -> None:
    with pytest.raises(InvalidValue, match=rf"^fleet\.{column}\[1\] must be a finite number > 0"):
        Fleet(**(MEASURED | {column: [1e6, bad]}))


@pytest.mark.parametrize("bad", [math.nan, math.inf, 401.0, -401.0])
def test_transmit_power_may_be_negative_but_not_absurd(bad: float) -> None:
    assert fleet(transmit_power_dbm=-10.0).transmit_power_dbm.tolist() == [-10, -10]
    with pytest.raises(InvalidValue, match=r"^fleet\.transmit_power_dbm must be a finite number"):
        fleet(transmit_power_dbm=bad)


@pytest.mark.parametrize(
    "column", ["seconds_per_mac", "fluctuation", "distance_m", "fading", "transmit_power_dbm"]
)
@pytest.mark.parametrize("bad", ["fast", [None, 1.0], [[1.0, 2.0]], [[1.0], [1.0, 2.0]], True, {}])
def test_values_other_than_lists_of_numbers_are_rejected(column: str, bad: Any) -> None:
    with pytest.raises(InvalidValue, match=rf"^fleet\.{column} "):
        fleet(**{column: bad})


@pytest.mark.parametrize(
    "column", ["seconds_per_mac", "fluctuation", "fading", "transmit_power_dbm", "cell"]
)
def test_required_columns_cannot_be_none(column: str) -> None:
    with pytest.raises(InvalidValue, match=rf"^fleet\.{column} must be"):
        fleet(**{column: None})


@pytest.mark.parametrize(
    "column", ["fluctuation", "distance_m", "fading", "memory_bytes", "joules_per_mac", "name"]
)
def test_columns_of_different_lengths_are_named(column: str) -> None:
    entries = ["a", "b", "c"] if column == "name" else [1.0, 2.0, 3.0]
    with pytest.raises(
        InvalidValue, match=rf"fleet\.{column} has 3 entries, but fleet\.seconds_per_mac has 2"
    ):
        fleet(**{column: entries})


def test_an_empty_fleet_is_rejected() -> None:
    with pytest.raises(InvalidValue, match="at least one device"):
        Fleet(seconds_per_mac=[], fluctuation=[], distance_m=[])  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="at least one device"):
        Fleet(seconds_per_mac=1e-9, fluctuation=2e9, distance_m=[])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "bad", ["ab", ["a", ""], ["a", 3], ["a", "a"], 5, ["a", " b"], ["a", None]]
)
def test_names_must_be_distinct_non_empty_strings(bad: Any) -> None:
    with pytest.raises(InvalidValue, match=r"fleet\.name"):
        fleet(name=bad)


def test_the_error_for_a_repeated_name_gives_both_devices() -> None:
    with pytest.raises(
        InvalidValue, match=r"^fleet\.name must not repeat a name, got 'b' for devices 1 and 3$"
    ):
        Fleet(seconds_per_mac=1e-9, fluctuation=2e9, distance_m=100.0, name=["a", "b", "c", "b"])  # type: ignore[arg-type]


def test_channels_need_exactly_one_source() -> None:
    trace = Trace(np.array([0.0]), np.array([[1e6, 2e6]]))
    with pytest.raises(InvalidValue, match="needs distance_m, full_band_rate_bps or a trace"):
        fleet(distance_m=None)
    for other in ({"full_band_rate_bps": 1e6}, {"trace": trace}):
        with pytest.raises(
            InvalidValue,
            match=rf"fleet\.distance_m and fleet\.{next(iter(other))} exclude each other",
        ):
            fleet(**other)
    with pytest.raises(
        InvalidValue, match=r"fleet\.full_band_rate_bps and fleet\.trace exclude each other"
    ):
        Fleet(**MEASURED, trace=trace)


def test_measured_rates_take_no_fading() -> None:
    with pytest.raises(InvalidValue, match=r"fleet\.fading belongs to fleet\.distance_m"):
        Fleet(**MEASURED, fading=0.5)  # type: ignore[arg-type]


def test_a_downlink_rate_needs_an_uplink_rate() -> None:
    with pytest.raises(InvalidValue, match=r"needs fleet\.full_band_rate_bps"):
        fleet(full_band_downlink_bps=1e6)


@pytest.mark.parametrize(
    "cell", [Cell(), Cell(noise_dbm_per_hz=-174.0), Cell(path_loss="free-space")]
)
def test_a_dead_channel_is_named_with_its_distance(cell: Cell) -> None:
    dead = fleet(distance_m=[100.0, 1e12], cell=cell)
    with pytest.raises(
        InvalidValue,
        match=r"fleet device 1 at 1e\+12 m has .* bit/s.*leave it out or bring it nearer",
    ):
        dead.rate_bps(0.5)


def test_a_dead_downlink_is_rejected_only_if_it_counts() -> None:
    quiet = fleet(cell=Cell(downlink_power_dbm=-300.0))
    assert quiet.link().down is None
    with pytest.raises(InvalidValue, match="fleet device 0"):
        quiet.link(downlink=True)


def test_the_papers_rate_can_be_worked_by_hand() -> None:
    # 100 m: loss 90.5 dB; 10 dBm - 90.5 dB + 114 dBm = 33.5 dB; ½ · 20 MHz · log2(1 + 10^3.35)
    assert fleet().rate_bps(0.5)[0] == pytest.approx(10e6 * math.log2(1 + 10**3.35), rel=1e-12)


def test_the_two_kinds_of_noise_agree_at_one_megahertz() -> None:
    density = fleet(cell=Cell(noise_dbm_per_hz=-174.0))
    assert density.rate_bps(1 / 20) == pytest.approx(fleet().rate_bps(1 / 20), rel=1e-12)
    assert (density.rate_bps(1.0) < fleet().rate_bps(1.0)).all()


def test_the_downlink_has_its_own_band_and_power() -> None:
    # 30 dBm - 90.5 dB + 114 dBm = 53.5 dB over 5 MHz
    down = fleet(cell=Cell(downlink_bandwidth_hz=5e6)).link(downlink=True).down
    assert down is not None
    assert down.rate_bps(np.ones(2))[0] == pytest.approx(5e6 * math.log2(1 + 10**5.35), rel=1e-12)


def test_measured_rates_are_proportional_to_the_share_both_ways() -> None:
    assert Fleet(**MEASURED).rate_bps([0.5, 0.25]).tolist() == [0.5e6, 0.5e6]
    same = Fleet(**MEASURED).link(downlink=True).down
    own = Fleet(**MEASURED, full_band_downlink_bps=8e6).link(downlink=True).down  # type: ignore[arg-type]
    assert same is not None
    assert own is not None
    assert same.rate_bps(np.ones(2)).tolist() == [1e6, 2e6]
    assert own.rate_bps(np.ones(2)).tolist() == [8e6, 8e6]


@pytest.mark.parametrize(
    "shares", [[0.5], [0.5] * 3, [0.5, -0.1], [0.5, 1.1], [0.5, math.nan], "half", [[0.5, 0.5]]]
)
def test_shares_must_be_one_number_per_device_from_zero_to_one(shares: Any) -> None:
    with pytest.raises(InvalidValue, match=r"^shares"):
        fleet().rate_bps(shares)


def test_a_fleet_with_a_trace_has_the_rates_of_the_moment() -> None:
    trace = Trace(np.array([0.0, 10.0]), np.array([[1e6, 2e6], [3e6, 4e6]]))
    traced = Fleet(seconds_per_mac=1e-9, fluctuation=2e9, trace=trace)  # type: ignore[arg-type]
    assert traced.rate_bps(1.0).tolist() == [1e6, 2e6]
    assert traced.at(12.0).rate_bps(1.0).tolist() == [3e6, 4e6]
    with pytest.raises(InvalidValue, match=r"needs a trace"):
        fleet().at(0.0)


SAMPLED = ("seconds_per_mac", "fluctuation", "distance_m", "fading")


@given(st.integers(0, 2**32), st.integers(1, 30), st.integers(0, 70))
def test_a_device_is_the_same_in_a_small_and_in_a_large_fleet(
    seed: int, devices: int, more: int
) -> None:
    small = Fleet.sample(devices, seed=seed, distance_spread=0.5)
    large = Fleet.sample(devices + more, seed=seed, distance_spread=0.5)
    for column in SAMPLED:
        assert (getattr(small, column) == getattr(large, column)[:devices]).all()


def test_one_setting_does_not_disturb_the_draws_of_another() -> None:
    plain, spread = (
        Fleet.sample(20, seed=3),
        Fleet.sample(20, seed=3, distance_spread=0.5, fading=False),
    )
    assert (plain.seconds_per_mac == spread.seconds_per_mac).all()
    assert (spread.fading == 1).all()


def test_another_seed_is_another_fleet() -> None:
    assert (
        Fleet.sample(20, seed=0).seconds_per_mac != Fleet.sample(20, seed=1).seconds_per_mac
    ).all()


def test_draws_follow_the_papers_laws() -> None:
    K = 40_000
    f = Fleet.sample(K, seed=1, mean_distance_m=100.0, distance_spread=0.5)
    a, d, g = f.seconds_per_mac, f.distance_m, f.fading
    assert d is not None
    assert 0.2e-9 <= a.min() < a.max() <= 1e-9
    assert abs(a.mean() - 0.6e-9) < 5 * 0.8e-9 / math.sqrt(12 * K)
    assert f.fluctuation == pytest.approx(2 / a)
    assert 50 <= d.min() < d.max() <= 150
    assert abs(d.mean() - 100) < 5 * 100 / math.sqrt(12 * K)
    assert abs(g.mean() - 1) < 5 / math.sqrt(K)
    assert abs((g > 1).mean() - math.exp(-1)) < 5 * 0.5 / math.sqrt(K)
    assert abs(np.corrcoef([a, d, g]) - np.eye(3)).max() < 5 / math.sqrt(K)


def test_without_spread_all_devices_share_distance_and_pace() -> None:
    f = Fleet.sample(5, seed=0, mean_distance_m=321.0, seconds_per_mac=1e-9, fluctuation_ratio=4.0)
    assert f.distance_m is not None
    assert f.distance_m.tolist() == [321.0] * 5
    assert f.seconds_per_mac.tolist() == [1e-9] * 5
    assert f.fluctuation.tolist() == [4 / 1e-9] * 5


@pytest.mark.parametrize(
    ("field", "bad"),
    [
        ("devices", 0),
        ("devices", 2.0),
        ("devices", True),
        ("seed", -1),
        ("seed", 1.5),
        ("seed", None),
        ("mean_distance_m", 0.0),
        ("mean_distance_m", math.nan),
        ("distance_spread", -0.1),
        ("distance_spread", 1.0),
        ("fluctuation_ratio", 0.0),
        ("fluctuation_ratio", math.inf),
        ("seconds_per_mac", 0.0),
        ("seconds_per_mac", (1e-9, 0.5e-9)),
        ("seconds_per_mac", (1e-9,)),
        ("seconds_per_mac", (1e-9, math.nan)),
        ("seconds_per_mac", "fast"),
    ],
)
def test_every_bad_setting_of_a_sample_is_named(field: str, bad: Any) -> None:
    with pytest.raises(InvalidValue, match=rf"^fleet\.{field}"):
        Fleet.sample(**({"devices": 2, "seed": 0} | {field: bad}))


def test_a_million_devices_are_cheap_columns() -> None:
    million = Fleet.sample(1_000_000, seed=0)
    held = sum(getattr(million, column).nbytes for column in SAMPLED)
    assert held == 4 * 8 * 1_000_000
    assert million.rate_bps(1e-6).shape == (1_000_000,)
    everyone = iter(million)
    assert [next(everyone).name for _ in range(1000)] == [str(k) for k in range(1000)]
    scalar = Fleet(seconds_per_mac=1e-9, fluctuation=2e9, distance_m=np.ones(1_000_000))  # type: ignore[arg-type]
    assert scalar.seconds_per_mac.strides == (0,)
