"""Memory: how much of it is free, and what is done when it runs out.

What a step needs can only be estimated, and other processes take their share meanwhile.  So work that goes through memory in parts
is repeated in smaller parts when memory runs out, instead of ending the run.
"""

from __future__ import annotations

import gc
import os
import warnings
from collections.abc import Callable, Iterator, Sequence, Sized
from contextlib import contextmanager
from typing import TypeVar

from airsplit.core.errors import Infeasible, UserCodeError
from airsplit.core.plugins import error_line

Part = TypeVar("Part", bound=Sized)
Result = TypeVar("Result")

PROCESSES = "AIRSPLIT_PROCESSES"
"""Environment variable with the number of processes that `in_parallel` lets run beside each other, this one included."""

# How torch's allocators and NVIDIA's libraries say it where they raise no error of its own kind.
MARKS = ("DefaultCPUAllocator", "CUDNN_STATUS_ALLOC_FAILED", "CUBLAS_STATUS_ALLOC_FAILED")


class OutOfMemory(Infeasible):
    """Memory ran out."""


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error says that memory ran out.

    >>> is_out_of_memory(MemoryError()), is_out_of_memory(RuntimeError("shapes do not match"))
    (True, False)
    """
    import torch  # here, because processes that train nothing import this module, too

    if isinstance(error, UserCodeError):
        return error.__cause__ is not None and is_out_of_memory(error.__cause__)
    if isinstance(error, OutOfMemory | MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(mark in str(error) for mark in MARKS)


@contextmanager
def out_of_memory(at: str) -> Iterator[None]:
    """Turn what torch raises when memory runs out into an OutOfMemory of one line.

    at  what was going on: "training stopped at device 3, round 1, iteration 2"
    """
    try:
        yield
    except OutOfMemory:
        raise
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        way_out = "lower training.batch_size, or let fewer processes run at the same time"
        raise OutOfMemory(
            f"{at}: memory ran out: {error_line(error.__cause__ or error)}; {way_out}"
        ) from error


def available_bytes() -> int | None:
    """Memory that is free or can be freed; None where the system does not say."""
    try:
        with open("/proc/meminfo", encoding="ascii") as stream:
            for line in stream:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):
        return None


class Halving:
    """The size of the parts in which work goes through memory, halved each time that memory runs out.

    limit  the largest part that is allowed since then; None as long as it has not run out
    """

    def __init__(self, what: str) -> None:
        self.limit: int | None = None
        self._what = what

    def run(
        self,
        divide: Callable[[int | None], Sequence[Part]],
        work: Callable[[Sequence[Part]], Result],
        when: str,
        release: Callable[[], None],
    ) -> Result:
        """Return the result of `work` on the parts of `divide(limit)`; repeat it with smaller parts while memory runs out.

        `work` must begin anew each time, and keep what it changes to itself until nothing more can fail.

        when     the round or evaluation, for the note
        release  give back what is cached, so that the smaller parts find it free
        """
        first = 0
        while True:
            parts = divide(self.limit)
            largest = max(map(len, parts), default=0)
            try:
                with out_of_memory(f"{when} stopped"):
                    result = work(parts)
            except OutOfMemory:
                if largest <= 1:
                    raise
            else:
                break
            # Outside the handler: until it is left, the error holds on to the tensors of every frame that it went through.
            gc.collect()
            release()
            first = first or largest
            self.limit = largest // 2
        if first:
            warnings.warn(
                f"memory ran out in {when} with {first} {self._what} at once; it was repeated with at most {self.limit}, "
                "which is the limit from now on",
                stacklevel=2,
            )
        return result
