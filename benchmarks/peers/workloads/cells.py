"""A megabyte to a server and back through the cells of NVIDIA FLARE, in two processes on loopback."""

from __future__ import annotations

import logging
import os
import socket
import statistics
import subprocess
import sys
import time
from typing import Any

import numpy as np
from nvflare.app_common.decomposers.numpy_decomposers import NumpyArrayDecomposer
from nvflare.fuel.f3.cellnet.cell import Cell
from nvflare.fuel.f3.cellnet.core_cell import CoreCell
from nvflare.fuel.f3.message import Message
from nvflare.fuel.utils import fobs

from peers.workloads import given, tell

ADDRESS = {"channel": "bench", "topic": "echo"}
KINDS = {"Cell": Cell, "CoreCell": CoreCell}
PATIENCE_S = 30.0


def started(name: str, kind: str, url: str) -> Any:
    fobs.register(NumpyArrayDecomposer)
    logging.disable(logging.CRITICAL)
    cell = KINDS[kind](name, url, False, {})
    if name == "server":
        cell.register_request_cb(cb=lambda request: Message(payload=request.payload), **ADDRESS)
    cell.start()
    return cell


def asked(cell: Any, payload: Any) -> Any:
    return cell.send_request(
        target="server", request=Message(payload=payload), timeout=PATIENCE_S, **ADDRESS
    ).payload


def connect(cell: Any) -> None:
    """Wait until the server answers."""
    end = time.monotonic() + PATIENCE_S
    while asked(cell, b"here?") is None:
        if time.monotonic() > end:
            raise TimeoutError("the server does not answer")
        time.sleep(0.2)


def seconds_of(cell: Any, payload: Any, steps: int) -> float:
    """The median of some steps, after some that are not counted."""
    times = []
    for _ in range(steps + 20):
        start = time.perf_counter()
        answer = asked(cell, payload)
        times.append(time.perf_counter() - start)
        assert answer is not None
        assert len(answer) == len(payload)
    return statistics.median(times[20:])


def main() -> None:
    if len(sys.argv) > 1:
        kept = started("server", *sys.argv[1:])
        sys.stdin.read()
        del kept
        os._exit(0)
    job = given()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"{job['driver']}://localhost:{port}"
    server = subprocess.Popen(
        [sys.executable, "-m", "peers.workloads.cells", job["kind"], url], stdin=subprocess.PIPE
    )
    try:
        cell = started("client", job["kind"], url)
        connect(cell)
        numbers = np.random.default_rng(0).standard_normal(job["bytes"] // 4, dtype=np.float32)
        tell(
            array_s=seconds_of(cell, numbers, job["steps"]),
            bytes_s=seconds_of(cell, bytes(job["bytes"]), job["steps"]),
        )
    finally:
        server.kill()
    os._exit(0)  # its threads would go on


if __name__ == "__main__":
    main()
