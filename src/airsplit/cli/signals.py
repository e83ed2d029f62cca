"""Ending a command by a signal, whatever signal dispositions it has inherited.

A shell without job control starts background jobs with SIGINT ignored, and a parent may ignore
SIGTERM. A new process inherits both, so a command sets the handlers that it relies on.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

Handler = Callable[[int, FrameType | None], object] | int

# As shells report a process that a signal has ended: 128 and the number of the signal.
INTERRUPTED = 128 + signal.SIGINT
TERMINATED = 128 + signal.SIGTERM


@dataclass
class Interruption:
    """The exit code of the signal that interrupted a command."""

    exit_code: int = INTERRUPTED


@contextmanager
def interruptible() -> Iterator[Interruption]:
    """Raise KeyboardInterrupt on SIGINT and on SIGTERM, which also changes the exit code."""
    interruption = Interruption()

    def terminate(*_: object) -> None:
        interruption.exit_code = TERMINATED
        raise KeyboardInterrupt

    # A process of torchrun that waits in a collective call runs no Python handler until the call
    # returns, so there SIGTERM ends the process itself.
    on_terminate: Handler = signal.SIG_DFL if "RANK" in os.environ else terminate
    with handle(signal.SIGINT, signal.default_int_handler), handle(signal.SIGTERM, on_terminate):
        yield interruption


@contextmanager
def handle(number: signal.Signals, handler: Handler) -> Iterator[None]:
    """Handle a signal in this context, then restore the disposition before it.

    Python lets only the main thread set handlers; in any other thread nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        # None stands for a handler that was not set from Python and cannot be restored from it.
        signal.signal(number, signal.SIG_DFL if before is None else before)
