"""Independent pieces of work in several processes, each with one thread: the numbers do not depend on how many cores there are."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import dataclass
from typing import TypeVar

from airsplit.core.errors import AirsplitError, Infeasible
from airsplit.training.memory import PROCESSES

Given = TypeVar("Given")
Made = TypeVar("Made")


@dataclass(frozen=True)
class Failure:
    """What a piece of work ended with instead of a result."""

    error: BaseException

    def __str__(self) -> str:
        """Return the error on one line; its type is named unless its message says all there is to say.

        >>> str(Failure(ValueError("no such\\nthing"))), str(Failure(Infeasible("no room")))
        ('ValueError: no such thing', 'no room')
        """
        text = " ".join(str(self.error).split())
        if isinstance(self.error, AirsplitError):
            return text
        return f"{type(self.error).__name__}: {text}"


def in_parallel(
    work: Callable[[Given], Made],
    pieces: Sequence[Given],
    *,
    jobs: int | None = None,
    pause_s: float = 1.0,
) -> Iterator[dict[int, Made]]:
    """What is done so far, by the number of its piece: again and again until all is done, at the latest after `pause_s`.

    jobs   processes; None: as many as there are cores; 1: this one, and a pause is as long as a piece takes
    """
    with closing(attempt_all(work, pieces, jobs=jobs, pause_s=pause_s)) as outcomes:
        for done in outcomes:
            made = dict[int, Made]()
            for number, outcome in done.items():
                if isinstance(outcome, Failure):
                    raise outcome.error
                made[number] = outcome
            yield made


Outcomes = dict[int, Made | Failure]


def attempt_all(
    work: Callable[[Given], Made],
    pieces: Sequence[Given],
    *,
    jobs: int | None = None,
    pause_s: float = 1.0,
    apart: bool = False,
) -> Generator[Outcomes[Made]]:
    """Do the same as `in_parallel`, but a piece that fails ends no other: its outcome is a Failure.

    apart  in processes of their own, even where there is one at a time
    """
    count = max(1, min(jobs or os.cpu_count() or 1, len(pieces)))
    return (
        _one_by_one(work, pieces)
        if count == 1 and not apart
        else _in_processes(work, pieces, count, pause_s)
    )


def _one_by_one(
    work: Callable[[Given], Made], pieces: Sequence[Given]
) -> Generator[Outcomes[Made]]:
    import torch

    threads, done = torch.get_num_threads(), dict[int, Made | Failure]()
    for number, piece in enumerate(pieces):
        torch.set_num_threads(1)
        try:
            done[number] = work(piece)
        except Exception as error:
            done[number] = Failure(error)
        finally:
            torch.set_num_threads(threads)
        yield dict(done)
        _forget_frames(done[number])


def _forget_frames(outcome: object) -> None:
    """Let go of what the frames of a failed piece hold: it may be most of the memory."""
    error = outcome.error if isinstance(outcome, Failure) else None
    while error is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__


def _in_processes(
    work: Callable[[Given], Made], pieces: Sequence[Given], count: int, pause_s: float
) -> Generator[Outcomes[Made]]:
    # Each process is a pool of its own: one that is killed breaks its pool, and with it only its own piece.
    done = dict[int, Made | Failure]()
    waiting = deque(enumerate(pieces))
    idle: list[ProcessPoolExecutor] = []
    running: dict[Future[Made], tuple[int, ProcessPoolExecutor]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < count:
                number, piece = waiting.popleft()
                pool = idle.pop() if idle else _new_process(count)
                running[pool.submit(work, piece)] = number, pool
            finished, _ = wait(running, timeout=pause_s, return_when=FIRST_COMPLETED)
            for future in finished:
                number, pool = running.pop(future)
                outcome = _outcome(future)
                done[number] = outcome
                if waiting and not isinstance(outcome, Failure):
                    idle.append(pool)
                else:
                    _end(pool)  # so that whatever memory it still holds is free for others
            yield dict(done)
    finally:
        for pool in (*idle, *(pool for _, pool in running.values())):
            _end(pool)


def _outcome(future: Future[Made]) -> Made | Failure:
    error = future.exception()
    if error is None:
        return future.result()
    if isinstance(error, BrokenProcessPool):
        why = "a training process was killed, probably for memory; let fewer run at the same time (--jobs 1)"
        return Failure(Infeasible(why))
    return Failure(error)


def _new_process(count: int) -> ProcessPoolExecutor:
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(1, mp_context=context, initializer=_begin, initargs=(count,))


def _begin(count: int) -> None:
    """A worker knows how many there are, has one thread, leaves Ctrl-C to its parent, and prints no results: stdout is the parent's."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.dup2(2, 1)
    warnings.showwarning = lambda message, *_, **__: print(
        f"airsplit: note: {message}", file=sys.stderr, flush=True
    )
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ[PROCESSES] = str(count)
    import torch

    torch.set_num_threads(1)


def _end(pool: ProcessPoolExecutor) -> None:
    """Where it ends early, nobody waits for work that is no longer wanted."""
    for worker in list((pool._processes or {}).values()):
        if worker.is_alive():
            worker.terminate()
    pool.shutdown(wait=True, cancel_futures=True)
