"""How much of a shaped uplink one device uses while it sends: planned for what it has measured, and paced.

python -m network.usage
"""

from __future__ import annotations

import json

from network.links import DEVICES, PORT, SERVER, SERVER_ADDRESS, Bottleneck

RATES_BPS = (5e6, 20e6, 100e6)
DOWN_BPS = 1e9
CHANGES = {
    "plan.method": "fixed",
    "plan.split": "relu1",
    "network.grace_s": 300.0,
    "training.rounds": 2,
}


def used(rate_bps: float) -> tuple[float, float]:
    """The part of the uplink that is used while a message is on its way: with headers of TCP, IP and Ethernet, and without."""
    address = f"{SERVER_ADDRESS}:{PORT}"
    with Bottleneck(rate_bps, DOWN_BPS) as link:
        server = link.python(
            SERVER,
            "network.emulated",
            "server",
            address,
            "--devices",
            "1",
            "--changes",
            json.dumps(CHANGES),
        )
        devices = link.python(
            DEVICES, "network.emulated", "devices", address, "--devices", "1", "--fastest", "1e-16"
        )
        assert server.stdout is not None
        rounds = []
        try:
            rounds.extend(
                json.loads(line) | {"wire_bytes": link.sent_bytes(DEVICES)}
                for line in server.stdout
            )
            devices.wait(60)
        finally:
            server.kill()
            devices.kill()
    first, last = rounds[0], rounds[-1]
    headers = (last["wire_bytes"] - first["wire_bytes"]) / sum(
        sum(each["sent_bytes"]) for each in rounds[1:]
    )
    message = 8 * last["sending_bytes"] / last["sending_s"] / rate_bps
    return message * headers, message


def table() -> str:
    lines = [
        "| uplink | used while a message is sent | of which the message itself |",
        "|---|---|---|",
    ]
    for rate in RATES_BPS:
        wire, message = used(rate)
        lines.append(f"| {rate / 1e6:.0f} Mbit/s | {wire:.1%} | {message:.1%} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
