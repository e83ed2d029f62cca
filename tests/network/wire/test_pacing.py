"""The token bucket against its definition, on a clock that is moved by hand; only one test waits for a real one."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airsplit.core.errors import InvalidValue
from airsplit.network.wire.pacing import TokenBucket, piece_bytes, pieces


@dataclass
class ByHand:
    """A clock that moves only while somebody sleeps, and then a little longer than was asked."""

    time_s: float = 0.0
    late_s: Callable[[], float] = lambda: 0.0
    naps: list[float] = field(default_factory=list)

    def now(self) -> float:
        return self.time_s

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.naps.append(seconds)
        self.time_s += seconds
        self.time_s += self.late_s()

    def bucket(self, rate_bps: float | None, burst_bytes: int) -> TokenBucket:
        return TokenBucket(rate_bps, burst_bytes, now=self.now, sleep=self.sleep)


def test_a_burst_goes_at_once_and_the_rest_at_the_rate() -> None:
    clock = ByHand()
    bucket = clock.bucket(8000, 500)  # 1,000 bytes a second
    seen = []
    for count in (200, 300, 100, 50):
        bucket.take(count)
        seen.append(clock.time_s)
    assert seen == pytest.approx([0, 0, 0.1, 0.15])


def test_a_pause_saves_up_a_burst_and_no_more() -> None:
    clock = ByHand()
    bucket = clock.bucket(8000, 500)
    bucket.take(500)
    clock.time_s += 3600
    for _ in range(2):
        bucket.take(500)
    assert clock.time_s == pytest.approx(3600 + 0.5)


@pytest.mark.parametrize("pause_s", [0.0, 0.1, 1000.0])
def test_an_emptied_bucket_lets_a_message_take_as_long_as_the_line_does(pause_s: float) -> None:
    clock = ByHand()
    bucket = clock.bucket(8e6, 20_000)
    clock.time_s += pause_s
    bucket.empty()
    for piece in pieces(bytes(123_456), 8e6):
        bucket.take(len(piece))
    assert clock.time_s == pytest.approx(pause_s + 0.123456)


def test_emptying_twice_costs_nothing_more() -> None:
    clock = ByHand()
    bucket = clock.bucket(8000, 500)
    for _ in range(3):
        bucket.empty()
    bucket.take(100)
    assert clock.time_s == pytest.approx(0.1)


def test_a_piece_larger_than_the_burst_goes_when_the_bucket_is_full() -> None:
    clock = ByHand()
    bucket = clock.bucket(8000, 100)
    seen = []
    for count in (1000, 1000, 100):
        bucket.take(count)
        seen.append(clock.time_s)
    assert seen == pytest.approx([0, 1, 2])


def test_no_error_adds_up_over_many_pieces() -> None:
    clock, takes = ByHand(time_s=1e6), 50_000
    bucket = clock.bucket(7e6, 3000)
    for _ in range(takes):
        bucket.take(1001)
    assert clock.time_s - 1e6 == pytest.approx((takes * 1001 - 3000) * 8 / 7e6, abs=1e-8)


def test_what_is_lost_is_what_was_overslept_beyond_the_burst() -> None:
    clock = ByHand(late_s=lambda: 0.5)
    bucket = clock.bucket(80_000, 300)  # 20 ms of catching up with pieces of 100 bytes
    bucket.take(300)
    seen = []
    for _ in range(4):
        bucket.take(100)
        seen.append(clock.time_s)
    # due at 0.01, gone at 0.51 from a full bucket, and two more at once; the next is due at 0.52
    assert seen == pytest.approx([0.51, 0.51, 0.51, 1.02])


# ---- whatever the sender does ------------------------------------------------------------------------------------------------
rates = st.floats(1e3, 1e10)
bursts = st.integers(100, 1_000_000)


@given(
    rates,
    bursts,
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 2)), min_size=1, max_size=30),
    st.integers(0, 2**32),
)
def test_no_window_holds_more_than_the_rate_and_a_burst(
    rate: float, burst: int, steps: list[tuple[float, float]], seed: int
) -> None:
    """Takes of any size up to the burst, after pauses of any length, by a sender that oversleeps."""
    burst_s = burst * 8 / rate
    rng = np.random.default_rng(seed)
    clock = ByHand(late_s=lambda: rng.uniform(0, 2 * burst_s))
    bucket, went = clock.bucket(rate, burst), list[tuple[float, int]]()
    for size, pause in steps:
        clock.time_s += pause * burst_s
        bucket.take(round(size * burst))
        went.append((clock.time_s, round(size * burst)))
    for first in range(len(went)):
        total = 0
        for at_s, count in went[first:]:
            total += count
            assert total <= rate / 8 * (at_s - went[first][0]) + burst + 1e-6 * total


@given(rates, st.integers(1, 20_000), st.integers(2, 8), st.integers(1, 100), st.integers(0, 2**32))
def test_a_sender_that_always_has_more_is_within_a_piece_of_the_rate(
    rate: float, piece: int, fold: int, takes: int, seed: int
) -> None:
    """Even one that wakes up late each time, by up to a piece."""
    piece_s, burst = piece * 8 / rate, fold * piece
    rng = np.random.default_rng(seed)
    clock = ByHand(late_s=lambda: rng.uniform(0, piece_s))
    bucket = clock.bucket(rate, burst)
    for _ in range(takes):
        bucket.take(piece)
    ideal_s = max(takes * piece - burst, 0) * 8 / rate
    assert ideal_s * (1 - 1e-9) <= clock.time_s <= (ideal_s + piece_s) * (1 + 1e-9)


# ---- other rates -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("rate", [None, math.inf])
def test_without_a_rate_nothing_waits(rate: float | None) -> None:
    clock = ByHand()
    bucket = clock.bucket(rate, 1)
    bucket.empty()
    for _ in range(10):
        bucket.take(1 << 40)
    assert (clock.naps, bucket.rate_bps) == ([], math.inf)


def test_a_new_rate_counts_at_once_also_for_those_who_wait() -> None:
    clock = ByHand()
    bucket = clock.bucket(8000, 100)
    clock.late_s = lambda: bucket.change_rate(80_000) or 0.0
    bucket.take(100)
    bucket.take(
        100
    )  # 50 ms at 1,000 bytes a second, which is one nap, then 50 bytes at ten times that
    assert (bucket.rate_bps, clock.time_s) == (80_000, pytest.approx(0.055))


def test_one_who_waits_goes_when_the_limit_is_taken_away() -> None:
    clock = ByHand()
    bucket = clock.bucket(8, 1)
    clock.late_s = lambda: bucket.change_rate(None) or 0.0
    bucket.take(1_000_000)
    bucket.take(1_000_000)
    assert len(clock.naps) == 1


def test_a_limit_after_none_begins_with_a_full_bucket() -> None:
    clock = ByHand()
    bucket = clock.bucket(None, 500)
    bucket.take(1_000_000)
    bucket.change_rate(8000)
    bucket.take(500)
    assert clock.naps == []
    bucket.take(100)
    assert clock.time_s == pytest.approx(0.1)


def test_a_debt_is_kept_in_bytes_when_the_rate_changes() -> None:
    clock = ByHand()
    bucket = clock.bucket(8000, 100)
    bucket.take(1100)  # 1,000 bytes too many
    bucket.change_rate(4000)
    bucket.take(100)
    assert clock.time_s == pytest.approx(2.2)


# ---- pieces ------------------------------------------------------------------------------------------------------------------
@given(st.one_of(st.none(), st.floats(1e-3, math.inf)))
def test_pieces_are_five_milliseconds_of_the_rate_within_limits(rate: float | None) -> None:
    size = piece_bytes(rate)
    assert 4096 <= size <= 262_144
    if rate is not None and 4096 < rate * 0.005 / 8 < 262_144:
        assert size == pytest.approx(rate * 0.005 / 8, abs=1)


@given(st.integers(0, 40_000), st.floats(1e6, 2e7))
def test_pieces_make_the_message(length: int, rate: float) -> None:
    data = np.random.default_rng(length).bytes(length)
    parts = list(pieces(data, rate))
    assert b"".join(parts) == data
    assert all(len(part) == piece_bytes(rate) for part in parts[:-1])
    assert len(parts[-1]) > 0 or parts == [b""]


# ---- real time, threads, errors ----------------------------------------------------------------------------------------------
def test_four_threads_together_are_no_faster_than_the_line() -> None:
    bucket, began = TokenBucket(1e6, 1000), time.monotonic()
    threads = [
        threading.Thread(target=lambda: [bucket.take(500) for _ in range(10)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert time.monotonic() - began >= (20_000 - 1000) * 8 / 1e6 - 1e-4


@pytest.mark.parametrize("rate", [0, -1.0, math.nan, -math.inf, "fast", True])
def test_a_rate_that_is_none_is_refused(rate: object) -> None:
    bucket = TokenBucket(1e6, 1000)
    for call in (
        lambda: TokenBucket(rate, 10),
        lambda: bucket.change_rate(rate),
        lambda: piece_bytes(rate),
    ):  # type: ignore[arg-type]
        with pytest.raises(InvalidValue, match="rate_bps must be"):
            call()
    assert bucket.rate_bps == 1e6


@pytest.mark.parametrize("count", [-1, 2.5, True, None])
def test_bytes_are_whole_numbers(count: object) -> None:
    with pytest.raises(InvalidValue, match="count_bytes must be a whole number >= 0"):
        TokenBucket(1e6, 1000).take(count)  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="burst_bytes must be a whole number >= 1"):
        TokenBucket(1e6, count)  # type: ignore[arg-type]
