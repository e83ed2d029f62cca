"""A step's overhead on loopback, beside a bare gRPC stream that echoes as many bytes.

A megabyte each way; computing is left out.

python -m network.overhead
"""

from __future__ import annotations

import queue
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import torch

from airsplit.network.client.stream import Stream
from airsplit.network.identity.admission import (
    Admission,
    channel_credentials,
    init,
    issue,
    server_credentials,
)
from airsplit.network.server.back_ends import BackEnd
from airsplit.network.server.serve import Serving
from airsplit.network.wire import airsplit_pb2 as pb
from airsplit.network.wire.codec import Outgoing
from airsplit.network.wire.transport import LARGEST_MESSAGE, PROTOCOL, connect
from airsplit.scenario.scenario import Scenario
from network.emulated import skip_computing

STEPS = 200
ROUNDS = 6
# Together 1 MiB in float32.
BATCH = 64
WIDTH = 4096
ECHO = "/bench.Echo/Echo"
OPTIONS = [
    ("grpc.max_send_message_length", LARGEST_MESSAGE),
    ("grpc.max_receive_message_length", LARGEST_MESSAGE),
]
# Steps of one server before it is the other's turn.
TURN = 100


def make_scenario() -> Scenario:
    """Return a scenario of one device that sends 1 MiB a step."""
    changes = {
        "model.name": "nets:wide_cut",
        "model.input_shape": [8],
        "training.dataset": "nets:short_vectors",
        "fleet.devices": 1,
        "plan.method": "fixed",
        "plan.split": 1,
        "training.iterations_per_round": STEPS,
        "training.rounds": ROUNDS,
        "training.batch_size": BATCH,
        "training.evaluate_every": 10**6,
        "network.measure": False,
        "network.pacing": False,
    }
    return Scenario.from_toml('[model]\nname = "alexnet"\n').replace(**changes)


def serve_airsplit(identity: Path | None) -> None:
    """Run a real server whose back end does not compute."""
    BackEnd.step = skip_computing  # type: ignore[method-assign, assignment]
    security: dict[str, Any] = {}
    if identity is not None:
        security = {
            "credentials": server_credentials(identity, certificate=None, key=None, authority=None),
            "admission": Admission(identity / "revoked.txt"),
        }
    with tempfile.TemporaryDirectory() as folder:
        serving = Serving(
            make_scenario(), out=Path(folder) / "run", listen_on="127.0.0.1:0", **security
        )
        print(serving.port, flush=True)
        for _ in serving:
            pass


def serve_echo(identity: Path | None) -> None:
    """Return the bytes that arrive: the time that gRPC itself takes."""

    def echo(messages: Iterator[bytes], _: grpc.ServicerContext) -> Iterator[bytes]:
        yield from messages

    server = grpc.server(ThreadPoolExecutor(4), options=OPTIONS)
    handlers = {"Echo": grpc.stream_stream_rpc_method_handler(echo)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench.Echo", handlers),))
    if identity is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        credentials = server_credentials(identity, certificate=None, key=None, authority=None)
        port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    print(port, flush=True)
    # Until the parent closes the pipe.
    sys.stdin.read()


SERVERS = {"airsplit": serve_airsplit, "echo": serve_echo}


def time_airsplit_steps(port: int, credentials: grpc.ChannelCredentials | None) -> Iterator[float]:
    """Yield the seconds of each step: encode, send, wait, decode."""
    stream = Stream(connect(f"localhost:{port}", credentials))
    # With TLS, the name is in the certificate.
    hello = pb.Hello(protocol=PROTOCOL, name="" if credentials else "0")
    welcome = stream.ask(pb.DeviceMessage(hello=hello)).message.welcome
    arrived = pb.Arrived(fingerprint=welcome.fingerprint, samples=BATCH, test_samples=1)
    answer = stream.ask(pb.DeviceMessage(arrived=arrived))

    activations = torch.randn(BATCH, WIDTH)
    labels = torch.zeros(BATCH, dtype=torch.int64)
    while answer.message.WhichOneof("body") == "round":
        order = answer.message.round
        for step in range(STEPS):
            start = time.perf_counter()
            place = pb.Place(run=welcome.run, round=order.number, order=order.order, step=step)
            message = Outgoing(pb.DeviceMessage(step=pb.Step(place=place)))
            message.put(message.message.step.activations.add(), activations, wants_gradient=True)
            message.put(message.message.step.labels, labels)
            answer = stream.ask(message)
            gradients = [answer.gradient(header) for header in answer.message.gradient.gradients]
            assert gradients[0] is not None
            assert gradients[0].shape == activations.shape
            yield time.perf_counter() - start
        place = pb.Place(run=welcome.run, round=order.number, order=order.order, step=STEPS)
        answer = stream.ask(pb.DeviceMessage(finished=pb.Finished(place=place)))
        if answer.message.WhichOneof("body") == "assess":
            answer = stream.ask(pb.DeviceMessage(assessed=pb.Assessed(place=place)))
    stream.close()


def time_echoes(port: int, credentials: grpc.ChannelCredentials | None) -> Iterator[float]:
    """Yield the seconds of as many bytes there and back."""
    address = f"localhost:{port}"
    if credentials:
        channel = grpc.secure_channel(address, credentials, OPTIONS)
    else:
        channel = grpc.insecure_channel(address, OPTIONS)
    outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    answers: Iterator[Any] = channel.stream_stream(ECHO)(iter(outbox.get, None))  # type: ignore[arg-type]
    data = bytes(4 * BATCH * WIDTH)
    for _ in range(STEPS * ROUNDS):
        start = time.perf_counter()
        outbox.put(data)
        assert len(next(answers)) == len(data)
        yield time.perf_counter() - start
    outbox.put(None)
    channel.close()


def tabulate() -> str:
    """Return a table of both, without and with TLS."""
    lines = ["| | bare gRPC echo | a step of ours | ratio |", "|---|---|---|---|"]
    with tempfile.TemporaryDirectory() as folder:
        identity = Path(folder) / "identity"
        init(identity, [])
        _, device = issue(identity, "0")
        tls = channel_credentials(device, certificate=None, key=None, authority=None)
        for name, times in (
            ("plain text", measure_in_turns()),
            ("TLS, both sides", measure_in_turns(identity, tls)),
        ):
            echo_s, step_s = times
            lines.append(
                f"| {name} | {echo_s * 1e3:.2f} ms | {step_s * 1e3:.2f} ms "
                f"| {step_s / echo_s:.2f} |"
            )
    return "\n".join(lines)


def measure_in_turns(
    identity: Path | None = None, credentials: grpc.ChannelCredentials | None = None
) -> tuple[float, float]:
    """Return the median seconds of an echo and of a step, taken in turns on the same machine."""
    echo_server = start_server("echo", identity)
    step_server = start_server("airsplit", identity)
    echo_s: list[float] = []
    step_s: list[float] = []
    try:
        echoes = time_echoes(read_port(echo_server), credentials)
        steps = time_airsplit_steps(read_port(step_server), credentials)
        for _ in range(STEPS * ROUNDS // TURN):
            echo_s += [next(echoes) for _ in range(TURN)]
            step_s += [next(steps) for _ in range(TURN)]
        return float(np.median(echo_s)), float(np.median(step_s))
    finally:
        echo_server.kill()
        step_server.kill()


def start_server(kind: str, identity: Path | None) -> subprocess.Popen[str]:
    """Start one of the servers in another process."""
    arguments = [kind] if identity is None else [kind, str(identity)]
    return subprocess.Popen(
        [sys.executable, "-m", "network.overhead", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).resolve().parent.parent,
    )


def read_port(server: subprocess.Popen[str]) -> int:
    """Wait until a server listens, and return its port."""
    assert server.stdout is not None
    return int(server.stdout.readline())


if __name__ == "__main__":
    torch.set_num_threads(1)
    if len(sys.argv) == 1:
        print(tabulate())
    else:
        SERVERS[sys.argv[1]](Path(sys.argv[2]) if len(sys.argv) > 2 else None)
