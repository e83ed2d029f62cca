"""Conversions against well-known values, and their algebra."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airsplit.core.units import bits_to_bytes, db_to_linear, dbm_to_watts

decibels = st.floats(-150, 150)


@pytest.mark.parametrize(
    ("db", "ratio"), [(0.0, 1.0), (10.0, 10.0), (3.0102999566398120, 2.0), (-30.0, 1e-3)]
)
def test_ten_decibels_are_a_factor_of_ten(db: float, ratio: float) -> None:
    assert db_to_linear(db) == pytest.approx(ratio, rel=1e-14)


@pytest.mark.parametrize(
    ("dbm", "watts"), [(0.0, 1e-3), (10.0, 1e-2), (30.0, 1.0), (-114.0, 10**-14.4)]
)
def test_zero_dbm_is_one_milliwatt(dbm: float, watts: float) -> None:
    assert dbm_to_watts(dbm) == pytest.approx(watts, rel=1e-14)


@given(decibels, decibels)
def test_adding_decibels_multiplies_ratios(a: float, b: float) -> None:
    assert db_to_linear(a + b) == pytest.approx(db_to_linear(a) * db_to_linear(b), rel=1e-12)


def test_minus_174_dbm_per_hertz_is_minus_114_dbm_per_megahertz() -> None:
    assert dbm_to_watts(-174.0) * 1e6 == pytest.approx(dbm_to_watts(-114.0), rel=1e-12)


def test_arrays_convert_entry_by_entry() -> None:
    assert dbm_to_watts(np.array([30.0, 40.0])).tolist() == [1.0, 10.0]


def test_a_byte_has_eight_bits() -> None:
    assert bits_to_bytes(8.0 * 279_936) == 279_936
