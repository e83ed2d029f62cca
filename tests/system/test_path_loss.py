"""Path losses worked by hand, and losses that the user's code computes."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airsplit.core.errors import AirsplitError, InvalidValue, UserCodeError
from airsplit.system.cell import Cell
from airsplit.system.fleet import Fleet
from airsplit.system.path_loss import (
    PATH_LOSSES,
    free_space_path_loss_db,
    paper_path_loss_db,
    uma_nlos_path_loss_db,
)


@pytest.mark.parametrize(
    ("distance_m", "loss_db"), [(1000, 128.1), (100, 90.5), (10, 52.9), (200, 101.818728)]
)
def test_the_papers_loss_is_128_db_at_a_kilometer_and_37_db_a_decade(
    distance_m: float, loss_db: float
) -> None:
    assert paper_path_loss_db(np.array(distance_m), 2e9) == pytest.approx(loss_db, abs=1e-6)


def test_free_space_loss_is_92_db_at_one_kilometer_and_one_gigahertz() -> None:
    # 20 lg(4 π 10³ 10⁹ / 299792458) = 20 lg(41916.9) = 92.4478
    assert free_space_path_loss_db(np.array(1000.0), 1e9) == pytest.approx(92.4478, abs=5e-5)
    assert free_space_path_loss_db(np.array(1000.0), 10e9) == pytest.approx(112.4478, abs=5e-5)


def test_3gpp_loss_without_sight_follows_the_nlos_line() -> None:
    # TR 38.901 table 7.4.1-1: 500 m, 3.5 GHz; d3D = √(500² + 23.5²) = 500.5519 m, lg = 2.699449
    # PL' = 13.54 + 39.08 · 2.699449 + 20 lg 3.5 (10.881361) - 0.6 · (1.5 - 1.5) = 129.9158
    assert uma_nlos_path_loss_db(np.array(500.0), 3.5e9) == pytest.approx(129.9158, abs=5e-4)


def test_3gpp_loss_holds_near_the_mast_too() -> None:
    # 10 m, 2 GHz: d3D = √(10² + 23.5²) = 25.5392 m, lg = 1.407208
    # in sight 28 + 22 · 1.407208 + 6.0206 = 64.9792
    # without 13.54 + 39.08 · 1.407208 + 6.0206 = 74.5543, the larger
    assert uma_nlos_path_loss_db(np.array(10.0), 2e9) == pytest.approx(74.5543, abs=5e-4)


@given(st.floats(10, 5000), st.floats(10, 5000), st.sampled_from([0.7e9, 2e9, 28e9]))
def test_every_loss_grows_with_distance(a: float, b: float, carrier_hz: float) -> None:
    near, far = np.array(min(a, b)), np.array(max(a, b))
    for loss in PATH_LOSSES.values():
        assert loss(near, carrier_hz) <= loss(far, carrier_hz)


@pytest.mark.parametrize("name", PATH_LOSSES)
def test_every_built_in_loss_gives_one_number_for_each_device(name: str) -> None:
    gain = Cell(path_loss=name).channel_gain(np.array([50.0, 100.0, 500.0]), np.ones(3))
    assert gain.shape == (3,)
    assert (np.diff(gain) < 0).all()


# A module of the user.
LOSSES = """
import numpy as np

def log_distance(distance_m, carrier_hz, exponent=3.76, at_1_km=128.1):
    return at_1_km + 10 * exponent * np.log10(distance_m / 1e3)

def as_a_list(distance_m, carrier_hz):
    return [90] * len(distance_m)

def shadowed(distance_m, carrier_hz, seed):
    return 90.0 + 8 * np.random.default_rng(seed).standard_normal(len(distance_m))

def drawn_anew(distance_m, carrier_hz):
    return 90.0 + 8 * np.random.default_rng().standard_normal(len(distance_m))

def without_a_value(distance_m, carrier_hz):
    return np.where(distance_m > 150, np.nan, 90.0)

def infinite(distance_m, carrier_hz):
    return np.full(len(distance_m), np.inf)

def negative(distance_m, carrier_hz):
    return np.full(len(distance_m), -1e3)

def one_for_all(distance_m, carrier_hz):
    return 90.0

def too_few(distance_m, carrier_hz):
    return distance_m[1:]

def nothing(distance_m, carrier_hz):
    return None

def words(distance_m, carrier_hz):
    return ["far"] * len(distance_m)

def overwriting(distance_m, carrier_hz):
    distance_m *= 2
    return distance_m

def failing(distance_m, carrier_hz):
    return 90 / 0

A_TABLE = {"near": 60.0}
"""


@pytest.fixture
def losses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the name of a module in the current folder, not imported yet."""
    (tmp_path / "my_losses.py").write_text(LOSSES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "my_losses", raising=False)
    return "my_losses"


def fleet_with(path_loss: str, **arguments: Any) -> Fleet:
    return Fleet(
        seconds_per_mac=1e-9,  # type: ignore[arg-type]
        fluctuation=2e9,  # type: ignore[arg-type]
        distance_m=[100.0, 200.0],  # type: ignore[arg-type]
        cell=Cell(path_loss=path_loss, path_loss_arguments=arguments),
    )


def test_code_by_path_gives_the_rates_of_the_same_built_in_loss(losses: str) -> None:
    built_in = fleet_with("paper").rate_bps(0.5)
    assert fleet_with(f"{losses}:log_distance").rate_bps(0.5) == pytest.approx(built_in, rel=1e-12)


def test_arguments_reach_the_code(losses: str) -> None:
    # 2 lg(200 m / 100 m) · 10 dB = 6.02 dB between the two devices, 3.76 lg 2 · 10 dB = 11.32 dB
    flat = fleet_with(f"{losses}:log_distance", exponent=2.0, at_1_km=100.0)
    assert flat.distance_m is not None
    gain = flat.cell.channel_gain(flat.distance_m, np.ones(2))
    assert 10 * np.log10(gain) == pytest.approx([-80.0, -80.0 - 6.0206], abs=1e-4)


def test_a_loss_may_be_a_list_of_whole_numbers(losses: str) -> None:
    assert (fleet_with(f"{losses}:as_a_list").rate_bps(1.0) > 0).all()


def test_code_is_imported_when_rates_are_computed_and_not_before() -> None:
    fleet = fleet_with("no_such_module:loss")
    assert fleet.cell.path_loss == "no_such_module:loss"
    with pytest.raises(
        InvalidValue, match=r"^cell\.path_loss 'no_such_module:loss' cannot be imported"
    ):
        fleet.rate_bps(1.0)


def test_random_shadowing_with_a_seed_is_the_same_in_every_call(losses: str) -> None:
    shadowed = fleet_with(f"{losses}:shadowed", seed=3)
    assert (shadowed.rate_bps(1.0) == shadowed.rate_bps(1.0)).all()
    assert (shadowed.rate_bps(1.0) != fleet_with(f"{losses}:shadowed", seed=4).rate_bps(1.0)).all()


def test_a_loss_drawn_anew_in_every_call_is_rejected(losses: str) -> None:
    with pytest.raises(
        InvalidValue,
        match=r"must return the same losses for the same distances, got .* for device 0; seed",
    ):
        fleet_with(f"{losses}:drawn_anew").rate_bps(1.0)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("without_a_value", r"\[1\] must be a finite number >= -400, got nan"),
        ("infinite", r"\[0\] must be a finite number >= -400, got inf"),
        ("negative", r"\[0\] must be a finite number >= -400, got -1000"),
        ("one_for_all", r" must be one loss in dB for each device, shape \(2,\), got shape \(\)"),
        ("too_few", r" must be one loss in dB for each device, shape \(2,\), got shape \(1,\)"),
        ("nothing", r" must be a number or an array of numbers, got None"),
        ("words", r" must be a number or an array of numbers, got \['far', 'far'\]"),
    ],
)
def test_a_result_that_is_no_finite_loss_for_each_device_is_rejected(
    losses: str, name: str, message: str
) -> None:
    where = rf"^result of cell\.path_loss '{losses}:{name}'{message}"
    with pytest.raises(InvalidValue, match=where):
        fleet_with(f"{losses}:{name}").rate_bps(1.0)


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("failing", {}, r"ZeroDivisionError: division by zero \(my_losses\.py:\d+\)"),
        ("overwriting", {}, r"ValueError: output array is read-only \(my_losses\.py:\d+\)"),
        ("log_distance", {"slope": 3}, r"TypeError: .*unexpected keyword argument 'slope'"),
    ],
)
def test_an_exception_of_the_code_is_named_with_its_line(
    losses: str, name: str, arguments: dict[str, Any], message: str
) -> None:
    where = rf"^cell\.path_loss '{losses}:{name}' failed: {message}"
    with pytest.raises(UserCodeError, match=where):
        fleet_with(f"{losses}:{name}", **arguments).rate_bps(1.0)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("log_distanc", "did you mean 'log_distance'"),
        ("A_TABLE", "must be a function or class that returns path losses in dB"),
    ],
)
def test_a_name_without_a_function_is_rejected(losses: str, name: str, message: str) -> None:
    with pytest.raises(AirsplitError, match=message):
        fleet_with(f"{losses}:{name}").rate_bps(1.0)
