"""Independent pieces of work in several processes, each with one thread: the numbers do not depend on how many cores there are."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from airsplit.errors import Infeasible

Given = TypeVar("Given")
Made = TypeVar("Made")


def in_parallel(
    work: Callable[[Given], Made], pieces: Sequence[Given], *, jobs: int | None = None, pause_s: float = 1.0
) -> Iterator[dict[int, Made]]:
    """What is done so far, by the number of its piece: again and again until all is done, at the latest after `pause_s`.

    jobs   processes; None: as many as there are cores; 1: this one, and a pause is as long as a piece takes
    """
    count = max(1, min(jobs or os.cpu_count() or 1, len(pieces)))
    return _one_by_one(work, pieces) if count == 1 else _in_processes(work, pieces, count, pause_s)


def _one_by_one(work: Callable[[Given], Made], pieces: Sequence[Given]) -> Iterator[dict[int, Made]]:
    import torch

    threads, done = torch.get_num_threads(), dict[int, Made]()
    for number, piece in enumerate(pieces):
        torch.set_num_threads(1)
        try:
            done[number] = work(piece)
        finally:
            torch.set_num_threads(threads)
        yield dict(done)


def _in_processes(work: Callable[[Given], Made], pieces: Sequence[Given], count: int, pause_s: float) -> Iterator[dict[int, Made]]:
    done: dict[int, Made] = {}
    pool = ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn"), initializer=_begin)
    try:
        left = {pool.submit(work, piece): number for number, piece in enumerate(pieces)}
        while left:
            finished, _ = wait(left, timeout=pause_s, return_when=FIRST_COMPLETED)
            for future in finished:
                done[left.pop(future)] = future.result()
            yield dict(done)
    except BrokenProcessPool:
        raise Infeasible("a training process was killed, probably for memory; let fewer run at the same time (--jobs 1)") from None
    finally:
        _end(pool)


def _begin() -> None:
    """A worker has one thread, leaves Ctrl-C to its parent, and prints no results: stdout is the parent's."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.dup2(2, 1)
    warnings.showwarning = lambda message, *_, **__: print(f"airsplit: note: {message}", file=sys.stderr, flush=True)
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch

    torch.set_num_threads(1)


def _end(pool: ProcessPoolExecutor) -> None:
    """Where it ends early, nobody waits for work that is no longer wanted."""
    for worker in list((pool._processes or {}).values()):
        if worker.is_alive():
            worker.terminate()
    pool.shutdown(wait=True, cancel_futures=True)
