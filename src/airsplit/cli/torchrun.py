"""Commands that torchrun starts in several processes: one of them speaks for all."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from airsplit.training.ranks import Ranks

# torchrun stops all processes when the first one ends, so a process that ends because another
# failed gives that one time to say why.
LINGER_S = 0.3


def find_local_rank() -> int | None:
    """Return which of torchrun's processes on this machine this is; None if it is alone."""
    # Loading torch takes seconds, so look into the environment first.
    if "RANK" not in os.environ:
        return None

    from airsplit.training.ranks import ranks_of

    ranks = ranks_of()
    return ranks.local if ranks.size > 1 else None


@contextmanager
def join_ranks(failed: int) -> Iterator[Ranks]:
    """Join torchrun's processes, and silence all but the first.

    An error is reported by the process that it happens in; the others exit with code `failed`.
    """
    from airsplit.training.ranks import FailedElsewhere, OutOfTouch, joined, ranks_of

    with joined(ranks_of()) as ranks:
        try:
            with nullcontext() if ranks.is_first else _silence():
                yield ranks
        except FailedElsewhere:
            linger()
            raise typer.Exit(failed) from None
        # Nobody knows which process died, so all that are left have this error.
        except OutOfTouch:
            if ranks.is_first:
                raise
            raise typer.Exit(failed) from None


def linger() -> None:
    """Wait until the process that failed has reported its error."""
    time.sleep(LINGER_S)


@contextmanager
def _silence() -> Iterator[None]:
    with (
        Path(os.devnull).open("w", encoding="utf-8") as devnull,
        redirect_stdout(devnull),
        redirect_stderr(devnull),
    ):
        yield
