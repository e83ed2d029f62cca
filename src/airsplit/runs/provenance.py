"""Provenance: the versions and the machine that produced a result, without names of hosts."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path

VERSION = "0.1.0"


def describe_provenance() -> dict[str, str]:
    """Return the entries of plan.json that say what produced a run.

    >>> sorted(describe_provenance())
    ['airsplit_version', 'machine']
    """
    # The version comes from torch's metadata, since importing torch takes a second.
    software = f"Python {platform.python_version()}, torch {metadata.version('torch')}"
    return {
        "airsplit_version": VERSION,
        "machine": f"{name_processor()}, {count_cores()} cores, {software}",
    }


def name_processor() -> str:
    """Return the processor's model name, or its architecture if the system does not name it."""
    # Linux only; platform.processor() says no more than "x86_64" there.
    file = Path("/proc/cpuinfo")
    if file.exists():
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def count_cores() -> int:
    """Return the number of cores that this process may use."""
    # In a container this is less than the machine has. macOS and Windows have no affinity masks.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
