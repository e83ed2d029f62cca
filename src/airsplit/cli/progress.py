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

from airsplit.cli.facts import Facts, time_left
from airsplit.cli.output import note
from airsplit.quantities import percent, seconds
from airsplit.results import RoundRecord

if TYPE_CHECKING:
    from airsplit.learn.ranks import Ranks

PLAIN_LINES_S = 5.0
"""Where the screen is none, at most one line in so many seconds: logs are read, too."""

LINGER_S = 0.3


@contextmanager
def in_one_voice(failed: int) -> Iterator[Ranks]:
    """The processes that torchrun has started, or this one alone; a context in which only the first prints.

    What goes wrong in one process is said by that one; the others end with the exit code `failed` and are silent.
    """
    from airsplit.learn.ranks import FailedElsewhere, OutOfTouch, joined, ranks_of

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
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        yield


def followed(records: Iterable[RoundRecord], rounds: int) -> Iterator[RoundRecord]:
    """The same records, while stderr says how far the training is: facts that change on a terminal, plain lines elsewhere."""
    console = Console(file=sys.stderr, highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        yield from _told(records, rounds)
        return
    facts, timed = Facts(rounds), _Timed(rounds)
    with Live(facts.drawn(), console=console, transient=True, refresh_per_second=8) as live:
        for record in records:
            facts.add(record)
            live.update(facts.drawn(timed.left_s(record)))
            yield record


class _Timed:
    """How long a training will take, by how long it has taken."""

    def __init__(self, rounds: int) -> None:
        self._rounds, self._start, self._trained = rounds, time.monotonic(), 0

    def left_s(self, record: RoundRecord) -> float:
        """After one round more."""
        self._trained += 1
        return (time.monotonic() - self._start) / self._trained * (self._rounds - record.round)


def _told(records: Iterable[RoundRecord], rounds: int) -> Iterator[RoundRecord]:
    """The first line, one now and then, and the last."""
    timed, last, accuracy = _Timed(rounds), 0.0, None
    for record in records:
        accuracy = record.test_accuracy if record.test_accuracy is not None else accuracy
        left_s = timed.left_s(record)
        if time.monotonic() - last >= PLAIN_LINES_S or record.round == rounds:
            note(line(record, rounds, accuracy, left_s))
            last = time.monotonic()
        yield record


def line(record: RoundRecord, rounds: int, accuracy: float | None, left_s: float | None, clock: str = "virtual time") -> str:
    """One round in words.

    >>> line(RoundRecord(round=2, virtual_time_s=9.0, latency_s=4.0, train_loss=0.5), 8, 0.75, 65.0)
    'round 2 of 8 · accuracy 75.0 % · loss 0.500 · virtual time 9.00 s · 1:05 left'
    """
    parts = [f"round {record.round} of {rounds}"]
    if accuracy is not None:
        parts.append(f"accuracy {percent(accuracy)}")
    parts.append("no device finished" if record.train_loss is None else f"loss {record.train_loss:.3f}")
    parts.append(f"{clock} {seconds(record.virtual_time_s)}")
    if left_s is not None:
        parts.append(time_left(left_s))
    return " · ".join(parts)


def now_and_then(tell: Callable[[str], None], pause_s: float = PLAIN_LINES_S) -> Callable[[str], None]:
    """The same, but silent for a while after each line, and about what was said already."""
    last_s, last = -pause_s, ""

    def told(text: str) -> None:
        nonlocal last_s, last
        if text != last and time.monotonic() - last_s >= pause_s:
            last_s, last = time.monotonic(), text
            tell(text)

    return told
