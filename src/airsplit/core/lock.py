"""Folder locks, so that only one process at a time works in a folder."""

from __future__ import annotations

import os
import time
from contextlib import closing
from pathlib import Path

from airsplit.core.errors import FileProblem

# Pause between attempts while another process holds the lock, in seconds.
RETRY_S = 0.05


def folder_lock(
    folder: Path,
    what: str,
    *,
    timeout_s: float = 0.0,
    way_out: str = "wait for it, or choose another folder",
) -> closing[Lock]:
    """Lock a folder against other processes; create it if it does not exist.

    The lock is held from this call on, until the returned context ends or the process does.

    Args:
        what: Kind of folder, for errors: "run folder".
        timeout_s: Time to wait for another process that holds the lock.
        way_out: Advice if it still holds the lock then.
    """
    deadline_s = time.monotonic() + timeout_s
    try:
        folder.mkdir(parents=True, exist_ok=True)
        while True:
            try:
                return closing(Lock(folder / ".lock"))
            except BlockingIOError:
                if time.monotonic() >= deadline_s:
                    raise
            time.sleep(RETRY_S)
    except BlockingIOError:
        raise FileProblem(
            f"{what} {str(folder)!r} is in use by another process; {way_out}"
        ) from None
    except OSError as error:
        raise FileProblem(f"{what} {str(folder)!r} cannot be written: {error.strerror}") from None


class Lock:
    """An exclusive lock on a file, held until it is closed, collected, or the process ends.

    Raises:
        BlockingIOError: Another process holds the lock.
    """

    # Class attribute, so that __del__ works on an object whose constructor failed.
    _handle = -1

    def __init__(self, path: Path) -> None:
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            import fcntl
        except ImportError:
            # Not a Unix: go without a lock.
            return
        # The kernel drops this lock with the handle, so a crash leaves no lock behind.
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Release the lock; closing it again has no effect."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def __del__(self) -> None:
        self.close()
