"""The cell: its band, noise levels and path loss are checked when it is made."""

import math
import pickle
from typing import Any

import numpy as np
import pytest

from airsplit.core.errors import InvalidValue, UnknownName
from airsplit.system.cell import Cell
from airsplit.system.path_loss import PATH_LOSSES

BAD_NUMBERS = [math.nan, math.inf, -math.inf, -1.0]


@pytest.mark.parametrize("field", ["bandwidth_hz", "carrier_hz", "downlink_bandwidth_hz"])
@pytest.mark.parametrize("bad", [*BAD_NUMBERS, 0.0, "wide", [1e6]])
def test_every_bad_band_of_a_cell_is_named(field: str, bad: Any) -> None:
    with pytest.raises(InvalidValue, match=rf"^cell\.{field} must be"):
        Cell(**{field: bad})


@pytest.mark.parametrize("field", ["noise_dbm", "noise_dbm_per_hz", "downlink_power_dbm"])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e3, "loud"])
def test_every_bad_level_of_a_cell_is_named(field: str, bad: Any) -> None:
    with pytest.raises(InvalidValue, match=rf"^cell\.{field} must be"):
        Cell(**{field: bad})


@pytest.mark.parametrize("bad", [0, -1, 1.5, True, 10**18])
def test_resource_blocks_are_a_whole_number(bad: Any) -> None:
    with pytest.raises(
        InvalidValue, match=r"^cell\.resource_blocks must be a whole number from 1 to 1000000000"
    ):
        Cell(resource_blocks=bad)


def test_two_kinds_of_noise_exclude_each_other() -> None:
    with pytest.raises(
        InvalidValue, match=r"noise_dbm \(-114\.0\) .*noise_dbm_per_hz \(-174\.0\) exclude"
    ):
        Cell(noise_dbm=-114.0, noise_dbm_per_hz=-174.0)


def test_a_variant_of_a_cell_may_change_the_kind_of_noise() -> None:
    assert Cell().noise_dbm == -114
    density = Cell().replace(noise_dbm_per_hz=-174.0)
    assert (density.noise_dbm, density.noise_dbm_per_hz) == (None, -174)
    assert density.replace(noise_dbm=-100.0) == Cell(noise_dbm=-100.0)


def test_an_unknown_path_loss_offers_the_nearest() -> None:
    with pytest.raises(UnknownName, match="did you mean 'free-space'"):
        Cell(path_loss="freespace")


def test_the_error_for_an_unknown_path_loss_lists_all_that_are_built_in() -> None:
    with pytest.raises(UnknownName) as error:
        Cell(path_loss="rural")
    assert all(name in str(error.value) for name in PATH_LOSSES)


@pytest.mark.parametrize("bad", ["", "my.losses:", ":loss", "my losses:loss", "my.losses", 5, None])
def test_a_path_loss_is_a_known_name_or_a_path_to_code(bad: Any) -> None:
    with pytest.raises(InvalidValue, match=r"^cell\.path_loss "):
        Cell(path_loss=bad)


@pytest.mark.parametrize("bad", [None, 5, "exponent=3", ["exponent"], {3: 4}])
def test_arguments_of_a_path_loss_are_a_table_of_named_values(bad: Any) -> None:
    with pytest.raises(InvalidValue, match=r"^cell\.path_loss_arguments must be a table"):
        Cell(path_loss="my.losses:loss", path_loss_arguments=bad)


def test_a_built_in_path_loss_takes_no_arguments() -> None:
    with pytest.raises(
        InvalidValue, match=r"path_loss_arguments is for a path loss of your own.*for 'free-space'"
    ):
        Cell(path_loss="free-space", path_loss_arguments={"exponent": 2.0})


def test_a_cell_with_code_by_path_is_a_value_like_any_other() -> None:
    arguments = {"exponent": 3.0, "walls": [1, 2]}
    cell = Cell(path_loss="my.losses:loss", path_loss_arguments=arguments)
    twin = Cell(path_loss="my.losses:loss", path_loss_arguments={"walls": [1, 2], "exponent": 3.0})
    assert cell == twin
    assert hash(cell) == hash(twin)
    assert cell != cell.replace(path_loss_arguments={"exponent": 4.0})
    assert pickle.loads(pickle.dumps(cell)) == cell  # noqa: S301 - written on this line


def test_a_change_of_the_callers_table_does_not_change_a_cell() -> None:
    arguments = {"walls": [1, 2]}
    cell = Cell(path_loss="my.losses:loss", path_loss_arguments=arguments)
    arguments["walls"].append(3)
    assert cell.path_loss_arguments == {"walls": [1, 2]}


def test_the_gain_is_the_inverse_of_the_loss_times_the_fading() -> None:
    gain = Cell().channel_gain(np.array([1000.0, 1000.0]), np.array([1.0, 0.5]))
    assert gain == pytest.approx([10**-12.81, 0.5 * 10**-12.81], rel=1e-12)
