"""Decibels, bits and bytes.  Every conversion of the package is here; everything else computes in SI units."""

from __future__ import annotations

from typing import TypeVar

from airsplit.core.arrays import Floats

Number = TypeVar(
    "Number", float, Floats
)  # one number or an array of them, and the same kind comes back

BITS_PER_BYTE = 8
BYTES_PER_FLOAT32 = 4


def db_to_linear(db: Number) -> Number:
    """A ratio of powers from its decibels.

    >>> db_to_linear(20.0)
    100.0
    """
    return 10.0 ** (db / 10.0)  # type: ignore[no-any-return]


def dbm_to_watts(dbm: Number) -> Number:
    """A power in watts from its level above one milliwatt.

    >>> dbm_to_watts(30.0)
    1.0
    """
    return 1e-3 * db_to_linear(dbm)


def bytes_to_bits(size_bytes: Number) -> Number:
    """
    >>> bytes_to_bits(2)
    16
    """
    return size_bytes * BITS_PER_BYTE


def bits_to_bytes(size_bits: Number) -> Number:
    """
    >>> bits_to_bytes(32.0)
    4.0
    """
    return size_bits / BITS_PER_BYTE
