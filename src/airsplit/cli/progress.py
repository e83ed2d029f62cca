"""Progress of a run on stderr: a few live lines on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext

from rich.console import Console
from rich.live import Live

from airsplit.cli.output import note
from airsplit.cli.progress_view import ProgressView, format_time_left
from airsplit.core.formatting import format_seconds
from airsplit.runs.metric import Metric
from airsplit.runs.record import RoundRecord

# Least time between plain lines, in seconds: people read logs, too.
LOG_INTERVAL_S = 5.0

# Silence after which a long round reports its progress, in seconds.
LONG_ROUND_S = 20.0
LONG_ROUND_ON_TERMINAL_S = 0.5


class ProgressReporter:
    """Reports on stderr how far a training is.

    A terminal shows a ProgressView. Elsewhere the first and the last round get a line, and those
    between at most one per LOG_INTERVAL_S.
    """

    def __init__(self, rounds: int, metric: Metric) -> None:
        self._rounds = rounds
        self._metric = metric
        self._view = ProgressView(rounds, metric)
        self._live: Live | None = None
        console = Console(file=sys.stderr, highlight=False, markup=False, emoji=False)
        if console.is_terminal:
            self._live = Live(
                self._view.render(), console=console, transient=True, refresh_per_second=8
            )
        self._left_s: float | None = None
        self._score: float | None = None
        self._reported_s = time.monotonic()

    def follow(self, records: Iterable[RoundRecord]) -> Iterator[RoundRecord]:
        """Yield the records, and report every one of them."""
        start_s = time.monotonic()
        with self._live or nullcontext():
            for trained, record in enumerate(records, start=1):
                # The mean over all rounds of this process: single rounds vary with stragglers,
                # and a resumed run has no times of earlier ones.
                round_s = (time.monotonic() - start_s) / trained
                self._left_s = round_s * (self._rounds - record.round)
                self._add(record, is_end=trained == 1 or record.round == self._rounds)
                yield record

    def _add(self, record: RoundRecord, *, is_end: bool) -> None:
        # A round that reported its progress also reports its end.
        is_due = is_end or self._live is not None or bool(self._view.current)
        self._view.add(record)
        score = self._metric.of(record)
        if score is not None:
            self._score = score
        if is_due or self._silence_s >= LOG_INTERVAL_S:
            self._report(
                format_round(record, self._rounds, self._metric, self._score, self._left_s)
            )

    def on_step(self, progress: str) -> None:
        """Report progress within a round, if it is a long one."""
        long_s = LONG_ROUND_S if self._live is None else LONG_ROUND_ON_TERMINAL_S
        if self._silence_s >= long_s:
            self._view.current = progress
            self._report(progress)

    @property
    def _silence_s(self) -> float:
        return time.monotonic() - self._reported_s

    def _report(self, line: str) -> None:
        self._reported_s = time.monotonic()
        if self._live is None:
            note(line)
        else:
            self._live.update(self._view.render(self._left_s))


def format_round(
    record: RoundRecord,
    rounds: int,
    metric: Metric,
    score: float | None,
    left_s: float | None,
    clock: str = "virtual time",
) -> str:
    """Return a line about a round; `score` is the metric when it was last evaluated.

    >>> record = RoundRecord(round=2, virtual_time_s=9.0, latency_s=4.0, train_loss=0.5)
    >>> format_round(record, 8, Metric(), 0.75, 65.0)
    'round 2 of 8 · accuracy 75.0 % · loss 0.500 · virtual time 9.00 s · 1:05 left'
    """
    parts = [f"round {record.round} of {rounds}"]
    if score is not None:
        parts.append(f"{metric.name} {metric.show(score)}")
    if record.train_loss is None:
        parts.append("no device finished")
    else:
        parts.append(f"loss {record.train_loss:.3f}")
    parts.append(f"{clock} {format_seconds(record.virtual_time_s)}")
    if left_s is not None:
        parts.append(format_time_left(left_s))
    return " · ".join(parts)


def limit_rate(
    report: Callable[[str], None], pause_s: float = LOG_INTERVAL_S
) -> Callable[[str], None]:
    """Limit `report` to one new line per `pause_s`."""
    last_s = -pause_s
    last_line = ""

    def report_if_due(line: str) -> None:
        nonlocal last_s, last_line
        # A line that repeats the last one is no progress.
        if line != last_line and time.monotonic() - last_s >= pause_s:
            last_s = time.monotonic()
            last_line = line
            report(line)

    return report_if_due


def skip_at_first(report: Callable[[str], None], quiet_s: float) -> Callable[[str], None]:
    """Drop reports of the first `quiet_s` seconds: quick work needs no progress."""
    start_s = time.monotonic()

    def report_later(line: str) -> None:
        if time.monotonic() - start_s >= quiet_s:
            report(line)

    return report_later
