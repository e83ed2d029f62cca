"""Time a function."""

from __future__ import annotations

import time
from collections.abc import Callable


def measure_s(work: Callable[[], object], repeats: int = 3) -> float:
    """Return the shortest of several times in seconds: the one that was disturbed least."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)
