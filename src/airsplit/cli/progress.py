"""Live progress of a run: facts that change on a terminal, plain lines elsewhere."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.live import Live

from airsplit.cli.output import note
from airsplit.cli.progress_view import Facts, time_left
from airsplit.core.formatting import format_seconds
from airsplit.runs.metric import Metric
from airsplit.runs.record import RoundRecord

if TYPE_CHECKING:
    from airsplit.training.ranks import Ranks

PLAIN_LINES_S = 5.0
"""Where the screen is none, at most one line in so many seconds: logs are read, too."""

LONG_S, LONG_ON_TERMINAL_S = 20.0, 0.5
"""After so long without a word, a round says how far it is."""

LINGER_S = 0.3


@contextmanager
def in_one_voice(failed: int) -> Iterator[Ranks]:
    """The processes that torchrun has started, or this one alone; a context in which only the first prints.

    What goes wrong in one process is said by that one; the others end with the exit code `failed` and are silent.
    """
    from airsplit.training.ranks import FailedElsewhere, OutOfTouch, joined, ranks_of

    with joined(ranks_of()) as ranks:
        try:
            with nullcontext() if ranks.is_first else _silence():
                yield ranks
        except FailedElsewhere:
            linger()
            raise typer.Exit(failed) from None
        except OutOfTouch:
            if ranks.is_first:
                raise
            raise typer.Exit(failed) from None


def linger() -> None:
    """Before a process ends because another failed, give that one time to say why: torchrun stops all when the first ends."""
    time.sleep(LINGER_S)


@contextmanager
def _silence() -> Iterator[None]:
    with (
        Path(os.devnull).open("w", encoding="utf-8") as nowhere,
        redirect_stdout(nowhere),
        redirect_stderr(nowhere),
    ):
        yield


class Follower:
    """Says on stderr how far a training is: facts that change on a terminal; elsewhere the first line, one now and then, the last."""

    def __init__(self, rounds: int, metric: Metric) -> None:
        console = Console(file=sys.stderr, highlight=False, markup=False, emoji=False)
        self._rounds, self._metric, self._facts = rounds, metric, Facts(rounds, metric)
        self._live = (
            Live(self._facts.drawn(), console=console, transient=True, refresh_per_second=8)
            if console.is_terminal
            else None
        )
        self._left_s: float | None = None
        self._tested: float | None = None
        self._said_s = time.monotonic()

    def through(self, records: Iterable[RoundRecord]) -> Iterator[RoundRecord]:
        """The same records, each told of when it is there."""
        start_s = time.monotonic()
        with self._live or nullcontext():
            for trained, record in enumerate(records, start=1):
                self._left_s = (
                    (time.monotonic() - start_s) / trained * (self._rounds - record.round)
                )
                self._add(record, trained == 1 or record.round == self._rounds)
                yield record

    def _add(self, record: RoundRecord, in_any_case: bool) -> None:
        in_any_case = (
            in_any_case or self._live is not None or bool(self._facts.now)
        )  # what was begun is told to its end
        self._facts.add(record)
        tested = self._metric.of(record)
        self._tested = self._tested if tested is None else tested
        if in_any_case or self._quiet_s >= PLAIN_LINES_S:
            self._say(line(record, self._rounds, self._metric, self._tested, self._left_s))

    def tell(self, how_far: str) -> None:
        """How far the round is that goes on: said where nothing was for a while."""
        if self._quiet_s >= (LONG_ON_TERMINAL_S if self._live is not None else LONG_S):
            self._facts.now = how_far
            self._say(how_far)

    @property
    def _quiet_s(self) -> float:
        return time.monotonic() - self._said_s

    def _say(self, text: str) -> None:
        self._said_s = time.monotonic()
        if self._live is None:
            note(text)
        else:
            self._live.update(self._facts.drawn(self._left_s))


def line(
    record: RoundRecord,
    rounds: int,
    metric: Metric,
    tested: float | None,
    left_s: float | None,
    clock: str = "virtual time",
) -> str:
    """One round in words, with the metric as it was last tested.

    >>> line(RoundRecord(round=2, virtual_time_s=9.0, latency_s=4.0, train_loss=0.5), 8, Metric(), 0.75, 65.0)
    'round 2 of 8 · accuracy 75.0 % · loss 0.500 · virtual time 9.00 s · 1:05 left'
    """
    parts = [f"round {record.round} of {rounds}"]
    if tested is not None:
        parts.append(f"{metric.name} {metric.show(tested)}")
    parts.append(
        "no device finished" if record.train_loss is None else f"loss {record.train_loss:.3f}"
    )
    parts.append(f"{clock} {format_seconds(record.virtual_time_s)}")
    if left_s is not None:
        parts.append(time_left(left_s))
    return " · ".join(parts)


def now_and_then(
    tell: Callable[[str], None], pause_s: float = PLAIN_LINES_S
) -> Callable[[str], None]:
    """The same, but silent for a while after each line, and about what was said already."""
    last_s, last = -pause_s, ""

    def told(text: str) -> None:
        nonlocal last_s, last
        if text != last and time.monotonic() - last_s >= pause_s:
            last_s, last = time.monotonic(), text
            tell(text)

    return told
