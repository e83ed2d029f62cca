"""Axes and thinning, by their properties."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from airsplit.report.scales import (
    AxisScale,
    log_scale,
    loss_scale,
    span_scale,
    spread_rows,
    thin,
    value_scale,
)

positive = st.floats(1e-9, 1e12)


def require_sound(scale: AxisScale) -> None:
    places = scale.places(scale.ticks)
    assert scale.low < scale.high
    assert 1 <= len(scale.ticks) <= 8
    assert (np.diff(places) > 0).all()
    assert (places >= -1e-9).all()
    assert (places <= 1 + 1e-9).all()


@given(positive, st.booleans())
def test_an_axis_of_rounds_or_times_ends_where_they_end(end: float, whole: bool) -> None:
    scale = span_scale(end, whole=whole)
    require_sound(scale)
    assert scale.high == end
    assert not whole or all(tick == round(tick) for tick in scale.ticks)


@given(st.floats(0, 1))
def test_an_axis_of_accuracies_has_room_for_them_and_ends_at_one(greatest: float) -> None:
    scale = value_scale(greatest, ceiling=1.0)
    require_sound(scale)
    assert greatest <= scale.high * (1 + 1e-9)
    assert scale.high <= 1


@given(
    arrays(
        np.float64,
        st.integers(1, 20),
        elements=st.floats(-1e6, 1e6).filter(lambda v: v == 0 or abs(v) > 1e-6),
    )
)
def test_an_axis_of_losses_has_room_for_all_of_them(values: np.ndarray) -> None:
    scale = loss_scale(values)
    require_sound(scale)
    places = scale.places(values)
    assert (places >= -1e-9).all()
    assert (places <= 1 + 1e-9).all()


@given(st.floats(1e-6, 1e9), st.floats(8, 1e9))
def test_an_axis_of_times_that_are_far_apart_has_ticks(low: float, times: float) -> None:
    scale = log_scale(low, low * times)
    require_sound(scale)
    assert len(scale.ticks) >= 2


@given(arrays(np.float64, st.integers(1, 500), elements=st.floats(-1, 1)), st.integers(4, 100))
def test_thinning_keeps_the_ends_and_the_extremes_and_no_more_than_asked(
    values: np.ndarray, most: int
) -> None:
    kept = thin(values, most)
    assert len(kept) <= max(most, 4)
    assert (np.diff(kept) > 0).all()
    assert (kept[0], kept[-1]) == (0, len(values) - 1)
    assert (values[kept].min(), values[kept].max()) == (values.min(), values.max())


@given(st.integers(0, 5000), st.integers(2, 300))
def test_rows_of_a_table_have_the_first_and_the_last_and_no_more_than_asked(
    count: int, most: int
) -> None:
    rows = spread_rows(count, most)
    assert len(rows) == len(set(rows)) <= most
    assert not count or (rows[0], rows[-1]) == (0, count - 1)
