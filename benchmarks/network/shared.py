"""Eight unequal devices on one shaped link: predicted times against measured ones.

Compared with equal shares, unpaced TCP and FedAvg.

python -m network.shared
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from network.links import DEVICES, PORT, SERVER, SERVER_ADDRESS, Bottleneck

RATE_BPS = 40e6
# Seconds per MAC of the fastest device.
FASTEST = 1e-10
DEVICE_COUNT = 8

PLANNED: dict[str, Any] = {
    "plan.max_split": "pool5",
    "plan.method": "expected-max",
    "network.grace_s": 300.0,
}
# A test reads these names in results/network.md.
CASES: dict[str, dict[str, Any]] = {
    "planned splits and shares, paced": PLANNED,
    "equal shares, each device's best split": PLANNED | {"plan.method": "equal"},
    "planned splits, unpaced TCP": PLANNED | {"network.pacing": False},
    "FedAvg, its own best shares, paced": PLANNED
    | {"training.algorithm": "fedavg", "training.rounds": 3},
}


def train(changes: dict[str, Any]) -> list[dict[str, Any]]:
    """Train on the shaped link, and return the server's rounds."""
    address = f"{SERVER_ADDRESS}:{PORT}"
    common = ("network.emulated", "--devices", str(DEVICE_COUNT))
    with Bottleneck(RATE_BPS, RATE_BPS) as link:
        server = link.start_python(
            SERVER, *common, "server", address, "--changes", json.dumps(changes)
        )
        devices = link.start_python(DEVICES, *common, "devices", address, "--fastest", str(FASTEST))
        try:
            out, _ = server.communicate(timeout=550)
            devices.communicate(timeout=60)
        finally:
            server.kill()
            devices.kill()
    return [json.loads(line) for line in out.splitlines()]


def tabulate(cases: dict[str, dict[str, Any]]) -> str:
    """Return a table of all cases, and how good the prediction for the first is."""
    rounds = {name: train(changes) for name, changes in cases.items()}
    first = next(iter(rounds.values()))
    best_s = _mean_latency_s(first)
    lines = [
        "| way | splits | planned s a round | measured s a round | off by | against the first |",
        "|---|---|---|---|---|---|",
    ]
    for name, records in rounds.items():
        took_s = _mean_latency_s(records)
        planned_s = records[0]["planned_s"]
        splits = ", ".join(map(str, records[0]["splits"]))
        if name.startswith("FedAvg"):
            splits = "whole model"
        lines.append(
            f"| {name} | {splits} | {planned_s:.3f} | {took_s:.3f} "
            f"| {took_s / planned_s - 1:+.1%} | {took_s / best_s:.2f}× |"
        )
    return "\n".join(lines) + "\n\n" + describe_devices(first)


def _mean_latency_s(records: list[dict[str, Any]]) -> float:
    return float(np.mean([record["latency_s"] for record in records]))


def describe_devices(records: list[dict[str, Any]]) -> str:
    """Return how far each device's own time in a round is from the plan."""
    planned_s = np.array(records[0]["device_s"])
    took_s = np.array([np.add(record["compute_s"], record["transmit_s"]) for record in records])
    errors = np.abs(took_s.mean(axis=0) / planned_s - 1)
    return (
        "Of a device's own time in a round, computing and on the air, the mean was off by "
        f"{np.median(errors):.1%} (median of the devices), {errors.max():.1%} at worst."
    )


if __name__ == "__main__":
    print(tabulate(CASES))
