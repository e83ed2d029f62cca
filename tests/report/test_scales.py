"""Scales of axes, and thinning of lines, by their properties."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from airsplit.report.scales import (
    AxisScale,
    choose_rows,
    log_scale,
    loss_scale,
    span_scale,
    thin,
    value_scale,
)

positive = st.floats(1e-9, 1e12)


def require_valid(scale: AxisScale) -> None:
    places = scale.places(scale.ticks)
    assert scale.low < scale.high
    assert 1 <= len(scale.ticks) <= 8
    assert (np.diff(places) > 0).all()
    assert (places >= -1e-9).all()
    assert (places <= 1 + 1e-9).all()


@given(positive, st.booleans())
def test_an_axis_of_rounds_or_times_ends_at_the_last_one(end: float, whole: bool) -> None:
    scale = span_scale(end, whole=whole)
    require_valid(scale)
    assert scale.high == end
    assert not whole or all(tick == round(tick) for tick in scale.ticks)


@given(st.floats(0, 1))
def test_an_axis_of_accuracies_contains_them_and_ends_at_one(greatest: float) -> None:
    scale = value_scale(greatest, ceiling=1.0)
    require_valid(scale)
    assert greatest <= scale.high * (1 + 1e-9)
    assert scale.high <= 1


@given(
    arrays(
        np.float64,
        st.integers(1, 20),
        elements=st.floats(-1e6, 1e6).filter(lambda v: v == 0 or abs(v) > 1e-6),
    )
)
def test_an_axis_of_losses_contains_them(values: np.ndarray) -> None:
    scale = loss_scale(values)
    require_valid(scale)
    places = scale.places(values)
    assert (places >= -1e-9).all()
    assert (places <= 1 + 1e-9).all()


@given(st.floats(1e-6, 1e9), st.floats(8, 1e9))
def test_a_logarithmic_axis_has_at_least_two_ticks(low: float, times: float) -> None:
    scale = log_scale(low, low * times)
    require_valid(scale)
    assert len(scale.ticks) >= 2


@given(arrays(np.float64, st.integers(1, 500), elements=st.floats(-1, 1)), st.integers(4, 100))
def test_thinning_keeps_ends_and_extremes_within_its_limit(values: np.ndarray, most: int) -> None:
    rows = thin(values, most)
    assert len(rows) <= max(most, 4)
    assert (np.diff(rows) > 0).all()
    assert (rows[0], rows[-1]) == (0, len(values) - 1)
    assert (values[rows].min(), values[rows].max()) == (values.min(), values.max())


@given(st.integers(0, 5000), st.integers(2, 300))
def test_chosen_rows_have_the_first_and_the_last_within_their_limit(count: int, most: int) -> None:
    rows = choose_rows(count, most)
    assert len(rows) == len(set(rows)) <= most
    assert not count or (rows[0], rows[-1]) == (0, count - 1)
