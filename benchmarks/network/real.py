"""Two devices that really compute, in processes of their own, on a shaped link.

Predicted times against measured ones.

python -m network.real
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from network.links import DEVICES, PORT, SERVER, SERVER_ADDRESS, Bottleneck

RATE_BPS = 40e6
ROUNDS = 12
SETTINGS = (
    f"training.rounds={ROUNDS}",
    "training.evaluate_every=1000",
    "plan.method=expected-max",
    "plan.max_split=pool5",
)


def train() -> list[dict[str, Any]]:
    """Train on the shaped link, and return the server's events."""
    address = f"{SERVER_ADDRESS}:{PORT}"
    settings = [word for setting in SETTINGS for word in ("--set", setting)]
    with Bottleneck(RATE_BPS, RATE_BPS), tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        server = start_airsplit(
            SERVER,
            *("serve", "demo", "--devices", "2", "--listen", address),
            *("--insecure", "--json", "--out", str(folder / "run"), *settings),
        )
        devices = [
            start_airsplit(
                DEVICES,
                *("join", address, "--insecure", "--name", name, "--out", str(folder / name)),
            )
            for name in ("one", "two")
        ]
        try:
            out, _ = server.communicate(timeout=300)
        finally:
            for process in (server, *devices):
                process.kill()
    return [json.loads(line) for line in out.splitlines()]


def start_airsplit(namespace: str, *arguments: str) -> subprocess.Popen[str]:
    """Start the command line in a namespace, with one thread."""
    return subprocess.Popen(
        ["ip", "netns", "exec", namespace, sys.executable, "-m", "airsplit", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


def describe() -> str:
    """Train, and return the sentence about it."""
    events = train()
    plan = next(event for event in events if event["event"] == "planned")
    rounds = [event for event in events if event["event"] == "round"]
    # The first round warms up.
    took_s = np.array([event["latency_s"] for event in rounds[1:]])
    return (
        f"Two processes with one thread each beside the server on two cores, "
        f"{RATE_BPS / 1e6:.0f} Mbit/s shared, the demo's model, splits {plan['splits']}: "
        f"{plan['latency_s']:.3f} s a round planned, {took_s.mean():.3f} s measured over "
        f"{len(took_s)} rounds ({took_s.mean() / plan['latency_s'] - 1:+.1%}; single rounds "
        f"{took_s.min():.3f} to {took_s.max():.3f} s)."
    )


if __name__ == "__main__":
    print(describe())
