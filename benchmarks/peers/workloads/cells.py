"""A megabyte to a server and back through NVIDIA FLARE's cells, in two processes on loopback."""

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

from peers.workloads import get_arguments, report

ADDRESS = {"channel": "bench", "topic": "echo"}
KINDS = {"Cell": Cell, "CoreCell": CoreCell}
TIMEOUT_S = 30.0
WARM_UP_STEPS = 20


def start_cell(name: str, kind: str, url: str) -> Any:
    """Start a cell; the server's returns what it receives."""
    fobs.register(NumpyArrayDecomposer)
    logging.disable(logging.CRITICAL)
    cell = KINDS[kind](name, url, False, {})
    if name == "server":
        cell.register_request_cb(cb=lambda request: Message(payload=request.payload), **ADDRESS)
    cell.start()
    return cell


def ask(cell: Any, payload: Any) -> Any:
    """Send a payload to the server, and return the answer's."""
    return cell.send_request(
        target="server", request=Message(payload=payload), timeout=TIMEOUT_S, **ADDRESS
    ).payload


def connect(cell: Any) -> None:
    """Wait until the server answers."""
    end = time.monotonic() + TIMEOUT_S
    while ask(cell, b"here?") is None:
        if time.monotonic() > end:
            raise TimeoutError("the server does not answer")
        time.sleep(0.2)


def measure_step_s(cell: Any, payload: Any, steps: int) -> float:
    """Return the median time of a round trip."""
    times = []
    for _ in range(WARM_UP_STEPS + steps):
        start = time.perf_counter()
        answer = ask(cell, payload)
        times.append(time.perf_counter() - start)
        assert answer is not None
        assert len(answer) == len(payload)
    return statistics.median(times[WARM_UP_STEPS:])


def serve(kind: str, url: str) -> None:
    """Answer until the parent closes the pipe."""
    # Without a name, the cell might be collected.
    cell = start_cell("server", kind, url)
    sys.stdin.read()
    del cell
    os._exit(0)


def main() -> None:
    """Measure arrays and bytes."""
    if len(sys.argv) > 1:
        serve(*sys.argv[1:])
    arguments = get_arguments()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"{arguments['driver']}://localhost:{port}"
    kind = arguments["kind"]
    server = subprocess.Popen(
        [sys.executable, "-m", "peers.workloads.cells", kind, url], stdin=subprocess.PIPE
    )
    try:
        cell = start_cell("client", kind, url)
        connect(cell)
        size = arguments["bytes"]
        array = np.random.default_rng(0).standard_normal(size // 4, dtype=np.float32)
        report(
            array_s=measure_step_s(cell, array, arguments["steps"]),
            bytes_s=measure_step_s(cell, bytes(size), arguments["steps"]),
        )
    finally:
        server.kill()
    # FLARE's threads would keep the process alive.
    os._exit(0)


if __name__ == "__main__":
    main()
