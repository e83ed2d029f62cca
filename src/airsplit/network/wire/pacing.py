"""Pacing: a sender is held to its planned rate, piece by piece."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator

from airsplit.core.errors import require_integer, require_number
from airsplit.core.units import BITS_PER_BYTE

PIECE_S = 0.005
SMALLEST_PIECE_BYTES, LARGEST_PIECE_BYTES = 4 << 10, 256 << 10
PIECES_A_BURST = 4
LONGEST_NAP_S = 0.05  # a sender that waits hears of another rate within this time


class TokenBucket:
    r"""A line of a given rate, and a burst that may go ahead of it.

    rate_bps     r, in bit/s; None or infinity: no line at all, nothing ever waits
    burst_bytes  b: how much may be saved up, while nothing is sent or while a sender wakes up too late
    now, sleep   the clock, in seconds, and how to wait on it

    In any window of w seconds at most r w / 8 + b bytes go; a piece larger than the burst is a burst of its own.  A sender
    that always has something to send loses nothing to waking up late, by up to what the burst less one piece takes on the line.
    So a burst is several pieces: see `burst_bytes`.

    Nothing is counted in naps.  The line has carried D(t) bytes at time t, D growing at r / 8 whatever anybody does; what was
    let through has an end on the line, and the next piece goes when D is within a burst of where that would put the end.  So
    errors do not add up, and a new rate counts at once, also for one who already waits.

    >>> naps = []
    >>> bucket = TokenBucket(8000, 500, now=lambda: sum(naps), sleep=naps.append)  # 1,000 bytes a second
    >>> bucket.take(500), sum(naps), bucket.take(250), round(sum(naps), 6)
    (None, 0, None, 0.25)
    """

    def __init__(
        self,
        rate_bps: float | None,
        burst_bytes: int,
        *,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._rate_bps = _checked(rate_bps)
        self._burst_bytes = require_integer("burst_bytes", burst_bytes, low=1)
        self._now, self._sleep = now, sleep
        self._turn, self._lock = (
            threading.Lock(),
            threading.Lock(),
        )  # one waits at a time; nobody sleeps with the second
        self._since_s, self._carried_bytes = now(), 0.0  # D(t) = carried + r/8 (t - since)
        self._end_bytes = 0.0  # of what was let through; the bucket is full when D gets there

    @property
    def rate_bps(self) -> float:
        """The rate in force; infinity where there is none."""
        return self._rate_bps

    def change_rate(self, rate_bps: float | None) -> None:
        """Another rate from now on, also for what already waits."""
        changed = _checked(rate_bps)
        with self._lock:
            now_s = self._now()
            self._carried_bytes, self._since_s, self._rate_bps = (
                self._carried(now_s),
                now_s,
                changed,
            )

    def empty(self) -> None:
        """Give up what was saved up, so that a message of n bytes takes 8 n / r seconds from now, not a burst less.

        A sender that begins a message after a pause has a full bucket.  Called before its first piece, this makes the message
        take as long as the plan says.
        """
        with self._lock:
            self._end_bytes = max(self._end_bytes, self._carried(self._now()) + self._burst_bytes)

    def take(self, count_bytes: int) -> None:
        """Wait until this many bytes may go.  Threads go one after the other."""
        count = require_integer("count_bytes", count_bytes, low=0)
        with self._turn:
            while (nap_s := self._missing_s(count)) > 0:
                self._sleep(min(nap_s, LONGEST_NAP_S))
            with self._lock:
                self._end_bytes = max(self._end_bytes, self._carried(self._now())) + count

    def _missing_s(self, count: int) -> float:
        """Seconds until so many bytes may go.

        The difference of two times, not of two counts of bytes: it is zero once that time has come, however floats are rounded.
        """
        with self._lock:
            if math.isinf(self._rate_bps):
                return 0.0
            due_bytes = self._end_bytes - max(self._burst_bytes - count, 0) - self._carried_bytes
            return self._since_s + due_bytes * BITS_PER_BYTE / self._rate_bps - self._now()

    def _carried(self, now_s: float) -> float:
        """D(t).  Without a rate, all that was let through has gone."""
        if math.isinf(self._rate_bps):
            return max(self._end_bytes, self._carried_bytes)
        return self._carried_bytes + self._rate_bps / BITS_PER_BYTE * (now_s - self._since_s)


def piece_bytes(rate_bps: float | None) -> int:
    """How large the pieces of a message are: five milliseconds of the rate, from 4 KiB to 256 KiB.

    Smaller ones would cost more than they smooth; larger ones would come in bursts.

    >>> piece_bytes(20e6), piece_bytes(1e3), piece_bytes(None)
    (12500, 4096, 262144)
    """
    ideal = _checked(rate_bps) * PIECE_S / BITS_PER_BYTE
    return round(min(max(ideal, SMALLEST_PIECE_BYTES), LARGEST_PIECE_BYTES))


def burst_bytes(rate_bps: float | None) -> int:
    """A burst that makes good for waking up late: four pieces.

    One piece would not do: each late wake-up would be lost, which costs a few percent of the rate.

    >>> burst_bytes(20e6)
    50000
    """
    return PIECES_A_BURST * piece_bytes(rate_bps)


def pieces(data: bytes, rate_bps: float | None) -> Iterator[bytes]:
    """A message in pieces; an empty one is one empty piece, so that it arrives.

    >>> [len(piece) for piece in pieces(bytes(10_000), 1e6)], list(pieces(b"", 1e6))
    ([4096, 4096, 1808], [b''])
    """
    size = piece_bytes(rate_bps)
    return (data[at : at + size] for at in range(0, max(len(data), 1), size))


def _checked(rate_bps: float | None) -> float:
    """The rate as a number: infinity for none."""
    if rate_bps is None or rate_bps == math.inf:
        return math.inf
    return require_number("rate_bps", rate_bps, above=0, hint=" or None for no limit")
