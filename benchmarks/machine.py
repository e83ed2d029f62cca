"""The machine and the code behind a measurement, in one line."""

from __future__ import annotations

import os
import platform
import subprocess
import time

import numpy as np

from airsplit.runs.provenance import count_cores, name_processor


def describe_machine() -> str:
    """Return processor, cores, versions, commit and date.

    In a copy without git's history, the environment variable COMMIT names the commit.
    """
    git = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    commit = git.stdout.strip() or os.environ.get("COMMIT", "unknown")
    return (
        f"Machine: {name_processor()}, {count_cores()} cores, "
        f"Python {platform.python_version()}, numpy {np.__version__}; "
        f"commit {commit}, {time.strftime('%Y-%m-%d')}"
    )
