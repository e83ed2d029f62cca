"""Two network namespaces joined by one link, shaped both ways: a bottleneck for all devices.

Needs root and Debian's iproute2. The kernel's token bucket filter (tbf) holds each way to its rate.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import TracebackType

SERVER = "airsplit-server"
DEVICES = "airsplit-devices"
SERVER_ADDRESS = "10.77.0.1"
DEVICES_ADDRESS = "10.77.0.2"
PORT = 7070

_INTERFACES = {SERVER: "veth-s", DEVICES: "veth-d"}
_ADDRESSES = {SERVER: SERVER_ADDRESS, DEVICES: DEVICES_ADDRESS}


class Bottleneck:
    """A link with a rate up, from the devices to the server, and one down."""

    def __init__(self, up_bps: float, down_bps: float) -> None:
        self._rates_bps = {DEVICES: up_bps, SERVER: down_bps}

    def __enter__(self) -> Bottleneck:
        self._remove()
        for namespace in (SERVER, DEVICES):
            _run(f"ip netns add {namespace}")
        _run(
            f"ip link add {_INTERFACES[SERVER]} netns {SERVER} type veth "
            f"peer name {_INTERFACES[DEVICES]} netns {DEVICES}"
        )
        for namespace, interface in _INTERFACES.items():
            _run(f"ip -n {namespace} address add {_ADDRESSES[namespace]}/24 dev {interface}")
            _run(f"ip -n {namespace} link set {interface} up")
            _run(f"ip -n {namespace} link set lo up")
            _run(
                f"tc -n {namespace} qdisc add dev {interface} root tbf "
                f"rate {self._rates_bps[namespace]:.0f}bit burst 64kb latency 200ms"
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._remove()

    def _remove(self) -> None:
        for namespace in (SERVER, DEVICES):
            subprocess.run(["ip", "netns", "del", namespace], check=False, capture_output=True)

    def start_python(self, namespace: str, module: str, *arguments: str) -> subprocess.Popen[str]:
        """Start one of the benchmarks' modules in a namespace, with its output in a pipe."""
        return subprocess.Popen(
            ["ip", "netns", "exec", namespace, sys.executable, "-m", module, *arguments],
            cwd=Path(__file__).resolve().parent.parent,
            stdout=subprocess.PIPE,
            text=True,
        )

    def sent_bytes(self, namespace: str) -> int:
        """Return the bytes that a namespace has sent on the link, headers included."""
        counter = f"/sys/class/net/{_INTERFACES[namespace]}/statistics/tx_bytes"
        return int(_run(f"ip netns exec {namespace} cat {counter}"))


def _run(command: str) -> str:
    process = subprocess.run(command.split(), check=False, capture_output=True, text=True)
    if process.returncode:
        raise RuntimeError(
            f"{command}: {process.stderr.strip()}; namespaces need root and iproute2"
        )
    return process.stdout
