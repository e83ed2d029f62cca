"""Folder locks: one process at a time works in a folder."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

from airsplit.core.errors import FileProblem


def folder_lock(folder: Path, what: str) -> closing[Lock]:
    """Keeps other processes from working in a folder; `what` says in an error what it is."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return closing(Lock(folder / ".lock"))
    except BlockingIOError:
        raise FileProblem(
            f"{what} {str(folder)!r} is in use by another process; wait for it, or name another folder"
        ) from None
    except OSError as error:
        raise FileProblem(f"{what} {str(folder)!r} cannot be written: {error.strerror}") from None


class Lock:
    """A file that one process at a time can have.  It is given back when it is closed, or forgotten, or the process ends."""

    _handle = -1

    def __init__(self, path: Path) -> None:
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            import fcntl
        except ImportError:  # not a Unix: do without
            return
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)

    def __del__(self) -> None:
        self.close()
