"""What a measurement must say of the machine and the code behind it."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from pathlib import Path

import numpy as np


def description() -> str:
    """Processor, cores, versions, commit and day.

    Where the code is a copy without its history, the environment variable COMMIT says what it is a copy of.
    """
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    processor = names[0].split(":")[1].strip() if names else platform.processor()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    return (
        f"Machine: {processor}, {len(os.sched_getaffinity(0))} cores, Python {platform.python_version()}, numpy {np.__version__}; "
        f"commit {commit or os.environ.get('COMMIT', 'unknown')}, {time.strftime('%Y-%m-%d')}"
    )
