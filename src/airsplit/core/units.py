"""Conversions between decibels, bits and bytes; everything else computes in SI units."""

from __future__ import annotations

from typing import TypeVar

from airsplit.core.arrays import Floats

# A conversion returns the kind that it was given: a number, or an array of them.
Number = TypeVar("Number", float, Floats)

BITS_PER_BYTE = 8
BYTES_PER_FLOAT32 = 4


def db_to_linear(db: Number) -> Number:
    """Convert a power ratio from decibels.

    >>> db_to_linear(20.0)
    100.0
    """
    return 10.0 ** (db / 10.0)  # type: ignore[no-any-return]


def dbm_to_watts(dbm: Number) -> Number:
    """Convert a power from decibels above one milliwatt.

    >>> dbm_to_watts(30.0)
    1.0
    """
    return 1e-3 * db_to_linear(dbm)


def bytes_to_bits(size_bytes: Number) -> Number:
    """Convert a size from bytes.

    >>> bytes_to_bits(2)
    16
    """
    return size_bytes * BITS_PER_BYTE


def bits_to_bytes(size_bits: Number) -> Number:
    """Convert a size from bits.

    >>> bits_to_bytes(32.0)
    4.0
    """
    return size_bits / BITS_PER_BYTE
