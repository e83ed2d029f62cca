"""The cell: its band, noise levels and path loss are checked when it is made."""

import math
from typing import Any

import pytest

from airsplit.core.errors import InvalidValue, UnknownName
from airsplit.system.cell import Cell

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
def test_resource_blocks_are_counted(bad: Any) -> None:
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
