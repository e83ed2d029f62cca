"""The part of a shaped uplink that one device uses while it sends.

The device is planned for what it has measured of the link, and paced.

python -m network.usage
"""

from __future__ import annotations

import json
from typing import Any

from network.links import DEVICES, PORT, SERVER, SERVER_ADDRESS, Bottleneck

RATES_BPS = (5e6, 20e6, 100e6)
DOWN_BPS = 1e9
CHANGES = {
    "plan.method": "fixed",
    "plan.split": "relu1",
    "network.grace_s": 300.0,
    "training.rounds": 2,
}
# Computing takes no time.
FASTEST = "1e-16"


def measure_usage(rate_bps: float) -> tuple[float, float]:
    """Return the part of the uplink that is used while a message is on its way.

    Returns:
        With headers of TCP, IP and Ethernet, and without.
    """
    address = f"{SERVER_ADDRESS}:{PORT}"
    rounds: list[dict[str, Any]] = []
    with Bottleneck(rate_bps, DOWN_BPS) as link:
        common = ("network.emulated", "--devices", "1")
        changes = ("--changes", json.dumps(CHANGES))
        server = link.start_python(SERVER, *common, "server", address, *changes)
        devices = link.start_python(DEVICES, *common, "devices", address, "--fastest", FASTEST)
        assert server.stdout is not None
        try:
            # The kernel's counter is read when the server prints a round.
            rounds.extend(
                json.loads(line) | {"wire_bytes": link.sent_bytes(DEVICES)}
                for line in server.stdout
            )
            devices.wait(60)
        finally:
            server.kill()
            devices.kill()
    first, last = rounds[0], rounds[-1]
    wire_bytes = last["wire_bytes"] - first["wire_bytes"]
    headers = wire_bytes / sum(sum(record["sent_bytes"]) for record in rounds[1:])
    message = 8 * last["sending_bytes"] / last["sending_s"] / rate_bps
    return message * headers, message


def tabulate() -> str:
    """Return a row for each rate."""
    lines = [
        "| uplink | used while a message is sent | of which the message itself |",
        "|---|---|---|",
    ]
    for rate_bps in RATES_BPS:
        wire, message = measure_usage(rate_bps)
        lines.append(f"| {rate_bps / 1e6:.0f} Mbit/s | {wire:.1%} | {message:.1%} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(tabulate())
