"""Two devices that really compute, in processes of their own, on a shaped link: what was predicted and what was measured.

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


def measured() -> list[dict[str, Any]]:
    """The server's events."""
    address = f"{SERVER_ADDRESS}:{PORT}"
    with Bottleneck(RATE_BPS, RATE_BPS), tempfile.TemporaryDirectory() as folder:
        chosen = [word for setting in SETTINGS for word in ("--set", setting)]
        words = (
            "serve",
            "demo",
            "--devices",
            "2",
            "--listen",
            address,
            "--insecure",
            "--json",
            "--out",
            str(Path(folder) / "run"),
        )
        server = _airsplit(SERVER, *words, *chosen)
        devices = [
            _airsplit(
                DEVICES,
                "join",
                address,
                "--insecure",
                "--name",
                name,
                "--out",
                str(Path(folder) / name),
            )
            for name in ("one", "two")
        ]
        try:
            out, _ = server.communicate(timeout=300)
        finally:
            for process in (server, *devices):
                process.kill()
    return [json.loads(line) for line in out.splitlines()]


def _airsplit(where: str, *words: str) -> subprocess.Popen[str]:
    command = ["ip", "netns", "exec", where, sys.executable, "-m", "airsplit.cli.app", *words]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    )


def sentence() -> str:
    events = measured()
    planned = next(event for event in events if event["event"] == "planned")
    rounds = [event for event in events if event["event"] == "round"]
    took = np.array([event["latency_s"] for event in rounds[1:]])  # the first warms up
    off = took.mean() / planned["latency_s"] - 1
    return (
        f"Two processes with one thread each beside the server on two cores, {RATE_BPS / 1e6:.0f} Mbit/s shared, the demo's model, splits "
        f"{planned['splits']}: {planned['latency_s']:.3f} s a round planned, {took.mean():.3f} s measured over {len(took)} rounds "
        f"({off:+.1%}; single rounds {took.min():.3f} to {took.max():.3f} s)."
    )


if __name__ == "__main__":
    print(sentence())
