"""By what a run was made: versions and the machine, for whoever reads its folder later.  No names of hosts or people."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path

VERSION = "0.1.0"


def describe_provenance() -> dict[str, str]:
    """Under the names of a run folder's plan.json.

    >>> sorted(describe_provenance())
    ['airsplit_version', 'machine']
    """
    return {
        "airsplit_version": VERSION,
        "machine": f"{name_processor()}, {count_cores()} cores, Python {platform.python_version()}, {_torch()}",
    }


def name_processor() -> str:
    """What the machine computes with, as it calls itself."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines() if file.exists() else []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()


def count_cores() -> int:
    """How many of them this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _torch() -> str:
    return f"torch {metadata.version('torch')}"
