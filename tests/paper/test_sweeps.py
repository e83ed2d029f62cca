"""Random fleets, their statistics, and numbers as they are written."""

from __future__ import annotations

import numpy as np

import airsplit as air
from airsplit.paper.sweeps import band, over_fleets, tidy


def test_a_band_is_taken_over_the_fleets():
    values = band(np.arange(22.0).reshape(2, 11))
    assert values == {"median": [5.0, 16.0], "p10": [1.0, 12.0], "p90": [9.0, 20.0]}


def test_fleets_have_the_seeds_from_zero():
    paces = over_fleets(3, 100, (0.2e-9, 1e-9), lambda fleet: fleet.seconds_per_mac)
    expected = [
        air.Fleet.sample(20, seed=seed, mean_distance_m=100).seconds_per_mac for seed in range(3)
    ]
    assert np.array_equal(paces, expected)


def test_tidy_numbers_are_plain_and_short():
    assert tidy({1: (np.float64(1 / 3), np.int64(2), True, None)}) == {
        "1": [0.333333333, 2, True, None]
    }
