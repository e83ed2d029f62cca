"""Rates, times and shares against their definitions, finite differences and theory."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airsplit.core.arrays import Floats
from airsplit.system.radio import Direction, Link

snrs = st.floats(-60, 60).map(lambda db: 10 ** (db / 10))
shares = st.floats(1e-6, 1.0)
bits = st.floats(1e2, 1e10)


def one(value: float) -> Floats:
    return np.array([value])


def direction(density: bool, snr: float, bandwidth_hz: float = 20e6) -> Direction:
    make = Direction.noise_density if density else Direction.fixed_snr
    return make(bandwidth_hz, one(snr))


def link(density: bool, snr: float, down_snr: float | None) -> Link:
    return Link(
        direction(density, snr), None if down_snr is None else direction(density, down_snr, 10e6)
    )


links = st.builds(link, st.booleans(), snrs, st.none() | snrs)


def test_the_papers_rate_is_proportional_to_the_share() -> None:
    # SNR 15: log2(16) = 4 bit/s/Hz
    assert direction(False, 15.0).rate_bps(one(0.25)) == pytest.approx([0.25 * 20e6 * 4])


def test_with_a_noise_density_a_smaller_band_has_less_noise() -> None:
    # SNR 15 on the full band is 60 on a quarter: log2(61)
    assert direction(True, 15.0).rate_bps(one(0.25)) == pytest.approx([0.25 * 20e6 * math.log2(61)])


@given(snrs)
def test_both_noise_models_agree_on_the_full_band(snr: float) -> None:
    assert direction(True, snr).rate_bps(one(1.0)) == pytest.approx(
        direction(False, snr).rate_bps(one(1.0)), rel=1e-12
    )


@given(st.booleans(), snrs, shares, shares, st.floats(0, 1))
def test_rates_rise_and_are_concave_in_the_share(
    density: bool, snr: float, a: float, b: float, weight: float
) -> None:
    R = direction(density, snr).rate_bps
    middle = weight * a + (1 - weight) * b
    assert R(one(min(a, b))) <= R(one(max(a, b))) * (1 + 1e-12)
    assert R(one(middle)) >= (weight * R(one(a)) + (1 - weight) * R(one(b))) * (1 - 1e-9)


@given(snrs, shares)
def test_a_share_gives_at_least_its_part_of_the_full_rate(snr: float, share: float) -> None:
    R = direction(True, snr).rate_bps
    assert R(one(share)) >= share * R(one(1.0)) * (1 - 1e-12)


@pytest.mark.parametrize("density", [False, True])
def test_a_share_of_zero_has_no_rate_and_takes_infinite_time(density: bool) -> None:
    assert direction(density, 3.0).rate_bps(one(0.0)).tolist() == [0.0]
    assert link(density, 3.0, None).seconds(one(1e6), one(0.0), one(0.0)).tolist() == [math.inf]
    assert link(density, 3.0, 5.0).seconds(one(1e6), one(1e6), one(0.0)).tolist() == [math.inf]


def test_seconds_are_bits_over_rate_up_and_down() -> None:
    # up 20 MHz · 2 bit/s/Hz · ½ = 20 Mbit/s, down 10 MHz · 4 · ½ = 20 Mbit/s
    both = link(False, 3.0, 15.0)
    assert both.seconds(one(1e6), one(4e6), one(0.5)) == pytest.approx([0.05 + 0.2])
    assert link(False, 3.0, None).seconds(one(1e6), one(4e6), one(0.5)) == pytest.approx([0.05])


@given(links, bits, bits, shares)
def test_transmit_and_seconds_are_the_same_time(
    way: Link, up: float, down: float, share: float
) -> None:
    seconds = way.seconds(one(up), one(down), one(share))
    assert way.transmit(one(up), one(down), one(share)).seconds == pytest.approx(seconds)


@given(links, bits, bits, st.floats(1e-4, 1.0))
def test_derivatives_are_those_of_finite_differences(
    way: Link, up: float, down: float, share: float
) -> None:
    def t(b: float) -> tuple[float, float, float]:
        return tuple(float(x[0]) for x in way.transmit(one(up), one(down), one(b)))  # type: ignore[return-value]

    h = 1e-5 * share
    seconds, slope, curvature = t(share)
    assert slope == pytest.approx(
        (t(share + h)[0] - t(share - h)[0]) / (2 * h), rel=1e-4, abs=1e-9 * seconds / h
    )
    second = (t(share + h)[1] - t(share - h)[1]) / (2 * h)
    assert curvature == pytest.approx(second, rel=1e-4, abs=1e-9 * abs(slope) / h)


@given(links, bits, bits, shares)
def test_time_falls_and_is_convex_in_the_share(
    way: Link, up: float, down: float, share: float
) -> None:
    t = way.transmit(one(up), one(down), one(share))
    assert t.seconds > 0
    assert t.slope < 0
    assert t.curvature > 0


@given(links, bits, bits, shares)
def test_share_is_the_inverse_of_seconds(way: Link, up: float, down: float, share: float) -> None:
    target = way.seconds(one(up), one(down), one(share))
    found = way.share(one(up), one(down), target)
    assert way.seconds(one(up), one(down), found) == pytest.approx(target, rel=1e-10)


@given(st.booleans(), st.floats(1e-2, 1e4), shares)
def test_share_recovers_the_share_on_good_channels(density: bool, snr: float, share: float) -> None:
    way = link(density, snr, None)
    assert way.share(
        one(1e6), one(0.0), way.seconds(one(1e6), one(0.0), one(share))
    ) == pytest.approx(share, rel=1e-8)


@pytest.mark.parametrize("full_band_snr", [1e-2, 1e-3, 1e-4, 1e-6])
@pytest.mark.parametrize("patience", [1.5, 2.0, 10.0, 1000.0])
def test_share_is_found_on_channels_far_below_the_noise(
    full_band_snr: float, patience: float
) -> None:
    way = link(True, full_band_snr, None)
    target = patience * way.seconds(one(1e6), one(0.0), one(1.0))
    found = way.share(one(1e6), one(0.0), target)
    assert 0 < found < 1 / patience
    assert way.seconds(one(1e6), one(0.0), found) == pytest.approx(target, rel=1e-10)


@given(links, bits, bits, st.floats(1e-3, 0.999))
def test_less_time_than_the_full_band_needs_takes_a_share_above_one(
    way: Link, up: float, down: float, hurry: float
) -> None:
    full = way.seconds(one(up), one(down), one(1.0))
    assert way.share(one(up), one(down), hurry * full) > 1


@given(links, bits)
def test_no_time_at_all_takes_an_infinite_share(way: Link, up: float) -> None:
    assert way.share(one(up), one(up), one(0.0)).tolist() == [math.inf]
    assert way.share(one(up), one(up), one(-1.0)).tolist() == [math.inf]


@given(st.booleans(), st.lists(snrs, min_size=1, max_size=5), st.booleans())
def test_a_device_is_the_same_alone_and_among_others(
    density: bool, snr: list[float], both_ways: bool
) -> None:
    make = Direction.noise_density if density else Direction.fixed_snr
    way = Link(make(20e6, np.array(snr)), make(10e6, np.array(snr)) if both_ways else None)
    D, K = np.full(len(snr), 1e6), len(snr)
    target = 3 * way.seconds(D, D, np.ones(K))
    together = way.share(D, D, target)
    for k in range(K):
        alone = way.take(slice(k, k + 1)).share(D[:1], D[:1], target[k : k + 1])
        assert alone == pytest.approx(together[k : k + 1], rel=1e-9)
    table = way.column().seconds(D[:1], D[:1], together.reshape(-1, 1))
    assert table[:, 0] == pytest.approx(target, rel=1e-9)


def test_a_link_is_proportional_when_no_direction_has_a_noise_density() -> None:
    assert link(False, 1.0, 1.0).is_proportional
    assert not link(True, 1.0, None).is_proportional
    assert not Link(direction(False, 1.0), direction(True, 1.0)).is_proportional
