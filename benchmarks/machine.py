"""What a measurement must say of the machine and the code behind it."""

from __future__ import annotations

import os
import platform
import subprocess
import time

import numpy as np

from airsplit.runs.provenance import count_cores, name_processor


def description() -> str:
    """Processor, cores, versions, commit and day.

    Where the code is a copy without its history, the environment variable COMMIT says what it is a copy of.
    """
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    return (
        f"Machine: {name_processor()}, {count_cores()} cores, Python {platform.python_version()}, numpy {np.__version__}; "
        f"commit {commit or os.environ.get('COMMIT', 'unknown')}, {time.strftime('%Y-%m-%d')}"
    )
