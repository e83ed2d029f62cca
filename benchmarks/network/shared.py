"""Eight unequal devices on one shaped link: what was predicted and what was measured; and the same without a plan."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from network.links import DEVICES, PORT, SERVER, SERVER_ADDRESS, Bottleneck

RATE_BPS = 40e6
FASTEST = 1e-10
DEVICES_THERE = 8

PLANNED: dict[str, Any] = {
    "plan.max_split": "pool5",
    "plan.method": "expected-max",
    "network.grace_s": 300.0,
}
WAYS: dict[str, dict[str, Any]] = {
    "planned splits and shares, paced": PLANNED,
    "equal shares, each device's best split": PLANNED | {"plan.method": "equal"},
    "planned splits, unpaced TCP": PLANNED | {"network.pacing": False},
    "FedAvg, its own best shares, paced": PLANNED
    | {"training.algorithm": "fedavg", "training.rounds": 3},
}


def measured(changes: dict[str, Any]) -> list[dict[str, Any]]:
    """The rounds of one run on the shaped link."""
    address = f"{SERVER_ADDRESS}:{PORT}"
    with Bottleneck(RATE_BPS, RATE_BPS) as link:
        there = ("--devices", str(DEVICES_THERE))
        server = link.python(
            SERVER, "network.emulated", "server", address, *there, "--changes", json.dumps(changes)
        )
        devices = link.python(
            DEVICES, "network.emulated", "devices", address, *there, "--fastest", str(FASTEST)
        )
        try:
            out, _ = server.communicate(timeout=550)
            devices.communicate(timeout=60)
        finally:
            server.kill()
            devices.kill()
    return [json.loads(line) for line in out.splitlines()]


def compared(ways: dict[str, dict[str, Any]] | None = None) -> str:
    """A table of all ways, and how good the prediction of the plan was."""
    rounds = {name: measured(changes) for name, changes in (ways or WAYS).items()}
    best = np.mean([each["latency_s"] for each in next(iter(rounds.values()))])
    lines = [
        "| way | splits | planned s a round | measured s a round | off by | against the first |",
        "|---|---|---|---|---|---|",
    ]
    for name, records in rounds.items():
        took, planned = np.mean([each["latency_s"] for each in records]), records[0]["planned_s"]
        splits = (
            "whole model"
            if name.startswith("FedAvg")
            else ", ".join(map(str, records[0]["splits"]))
        )
        lines.append(
            f"| {name} | {splits} | {planned:.3f} | {took:.3f} | {took / planned - 1:+.1%} | {took / best:.2f}× |"
        )
    first = next(iter(rounds.values()))
    return "\n".join(lines) + "\n\n" + _by_device(first)


def _by_device(records: list[dict[str, Any]]) -> str:
    """How far each device's own time in a round was from what the plan says."""
    planned = np.array(records[0]["device_s"])
    took = np.array([np.add(each["compute_s"], each["transmit_s"]) for each in records])
    errors = np.abs(took.mean(axis=0) / planned - 1)
    told = f"{np.median(errors):.1%} (median of the devices), {errors.max():.1%} at worst"
    return (
        f"Of a device's own time in a round, computing and on the air, the mean was off by {told}."
    )


if __name__ == "__main__":
    print(compared())
