"""Addressed randomness: equal addresses draw equal numbers, different ones independent numbers."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from airsplit.core.randomness import generator

seeds = st.integers(0, 2**64 - 1)


@given(seeds, st.text(min_size=1, max_size=12), st.lists(st.integers(0, 2**31), max_size=3))
def test_the_same_address_draws_the_same_numbers(
    seed: int, purpose: str, address: list[int]
) -> None:
    first = generator(seed, purpose, *address)
    second = generator(seed, purpose, *address)
    assert first.random(4).tolist() == second.random(4).tolist()


@given(seeds, st.integers(1, 50), st.integers(0, 50))
def test_a_longer_column_begins_with_the_shorter_one(seed: int, devices: int, more: int) -> None:
    for draw in ("uniform", "exponential", "standard_normal"):
        short = getattr(generator(seed, "column"), draw)(size=devices)
        long = getattr(generator(seed, "column"), draw)(size=devices + more)
        assert (long[:devices] == short).all()


@given(seeds)
def test_seed_purpose_and_address_each_matter(seed: int) -> None:
    draws = [
        generator(seed, "fading").random(),
        generator(seed + 1, "fading").random(),
        generator(seed, "distance").random(),
        generator(seed, "fading", 0).random(),
        generator(seed, "fading", 1).random(),
        generator(seed, "fading", 0, 1).random(),
        generator(seed, "fading", 1, 0).random(),
    ]
    assert len(set(draws)) == len(draws)


def test_draws_elsewhere_do_not_change_an_address() -> None:
    expected = generator(3, "batch", 7).random(5).tolist()
    generator(3, "batch", 6).random(1000)
    np.random.default_rng(3).random(1000)
    assert generator(3, "batch", 7).random(5).tolist() == expected


def test_neighboring_addresses_are_uncorrelated() -> None:
    n = 20_000
    columns = np.array([generator(0, "noise", k).standard_normal(n) for k in range(6)])
    correlation = np.corrcoef(columns) - np.eye(6)
    assert np.abs(correlation).max() < 5 / np.sqrt(n)
