"""Two network namespaces joined by one link, shaped both ways: a bottleneck that everything on the device side shares.

Needs root and Debian's iproute2.  The kernel's tbf holds each way to its rate.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import TracebackType

SERVER, DEVICES = "airsplit-server", "airsplit-devices"
SERVER_ADDRESS, DEVICES_ADDRESS = "10.77.0.1", "10.77.0.2"
PORT = 7070


class Bottleneck:
    """A link of so many bit/s up, from the devices to the server, and down."""

    def __init__(self, up_bps: float, down_bps: float) -> None:
        self._rates = {DEVICES: up_bps, SERVER: down_bps}

    def __enter__(self) -> Bottleneck:
        self._remove()
        for name in (SERVER, DEVICES):
            _ip("netns", "add", name)
        _ip(
            "link",
            "add",
            "veth-s",
            "netns",
            SERVER,
            "type",
            "veth",
            "peer",
            "name",
            "veth-d",
            "netns",
            DEVICES,
        )
        for name, device, address in (
            (SERVER, "veth-s", SERVER_ADDRESS),
            (DEVICES, "veth-d", DEVICES_ADDRESS),
        ):
            _ip("-n", name, "address", "add", f"{address}/24", "dev", device)
            _ip("-n", name, "link", "set", device, "up")
            _ip("-n", name, "link", "set", "lo", "up")
            shaping = ("rate", f"{self._rates[name]:.0f}bit", "burst", "64kb", "latency", "200ms")
            _run("tc", "-n", name, "qdisc", "add", "dev", device, "root", "tbf", *shaping)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._remove()

    def _remove(self) -> None:
        for name in (SERVER, DEVICES):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)

    def python(self, where: str, module: str, *words: str) -> subprocess.Popen[str]:
        """A module of ours, run in one of the namespaces; what it prints can be read."""
        command = ["ip", "netns", "exec", where, sys.executable, "-m", module, *words]
        folder = Path(__file__).resolve().parent.parent
        return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)

    def sent_bytes(self, where: str) -> int:
        """What has left a namespace on the link, headers included."""
        device = "veth-d" if where == DEVICES else "veth-s"
        text = _run(
            "ip", "netns", "exec", where, "cat", f"/sys/class/net/{device}/statistics/tx_bytes"
        )
        return int(text)


def _ip(*words: str) -> str:
    return _run("ip", *words)


def _run(*words: str) -> str:
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(
            f"{' '.join(words)}: {done.stderr.strip()}; namespaces need root and iproute2"
        )
    return done.stdout
