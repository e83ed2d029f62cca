"""A step's overhead on loopback: a megabyte each way, computing left out, beside a bare gRPC stream that echoes as many bytes.

python -m network.overhead          prints the table
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
from network.emulated import at_once

STEPS, ROUNDS = 200, 6
BATCH, WIDTH = 64, 4096  # 1 MiB in float32
ECHO = "/bench.Echo/Echo"
OPTIONS = [
    ("grpc.max_send_message_length", LARGEST_MESSAGE),
    ("grpc.max_receive_message_length", LARGEST_MESSAGE),
]


def scenario() -> Scenario:
    changes = {
        "model.name": "nets:wide_cut",
        "model.input_shape": [8],
        "training.dataset": "nets:short_vectors",
        "fleet.devices": 1,
    }
    changes |= {
        "plan.method": "fixed",
        "plan.split": 1,
        "training.iterations_per_round": STEPS,
        "training.rounds": ROUNDS,
    }
    changes |= {
        "training.batch_size": BATCH,
        "training.evaluate_every": 10**6,
        "network.measure": False,
        "network.pacing": False,
    }
    return Scenario.from_toml('[model]\nname = "alexnet"\n').replace(**changes)


def serve_ours(identity: str) -> None:
    """A real server whose back end answers at once."""
    BackEnd.step = at_once  # type: ignore[method-assign, assignment]
    folder = Path(identity) if identity else None
    secured: dict[str, Any] = {}
    if folder is not None:
        secured = {
            "credentials": server_credentials(folder, certificate=None, key=None, authority=None)
        }
        secured |= {"admission": Admission(folder / "revoked.txt")}
    with tempfile.TemporaryDirectory() as out:
        serving = Serving(scenario(), out=Path(out) / "run", listen_on="127.0.0.1:0", **secured)
        print(serving.port, flush=True)
        for _ in serving:
            pass


def serve_echo(identity: str) -> None:
    """Bytes in, the same bytes out: what gRPC itself takes."""

    def echo(messages: Iterator[bytes], _: grpc.ServicerContext) -> Iterator[bytes]:
        yield from messages

    server = grpc.server(ThreadPoolExecutor(4), options=OPTIONS)
    handler = grpc.stream_stream_rpc_method_handler(echo)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("bench.Echo", {"Echo": handler}),)
    )
    if identity:
        credentials = server_credentials(Path(identity), certificate=None, key=None, authority=None)
        port = server.add_secure_port("127.0.0.1:0", credentials)
    else:
        port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    sys.stdin.read()


def steps_of_ours(port: int, credentials: grpc.ChannelCredentials | None) -> Iterator[float]:
    """Seconds of steps: encode, send, wait, decode."""
    stream = Stream(connect(f"localhost:{port}", credentials))
    welcome = stream.ask(
        pb.DeviceMessage(hello=pb.Hello(protocol=PROTOCOL, name="" if credentials else "0"))
    ).message.welcome
    answer = stream.ask(
        pb.DeviceMessage(
            arrived=pb.Arrived(fingerprint=welcome.fingerprint, samples=BATCH, test_samples=1)
        )
    )
    activations, labels = torch.randn(BATCH, WIDTH), torch.zeros(BATCH, dtype=torch.int64)
    while answer.message.WhichOneof("body") == "round":
        order = answer.message.round
        for step in range(STEPS):
            start = time.perf_counter()
            place = pb.Place(run=welcome.run, round=order.number, order=order.order, step=step)
            sent = Outgoing(pb.DeviceMessage(step=pb.Step(place=place)))
            sent.put(sent.message.step.activations.add(), activations, wants_gradient=True)
            sent.put(sent.message.step.labels, labels)
            answer = stream.ask(sent)
            found = [answer.gradient(header) for header in answer.message.gradient.gradients]
            assert found[0] is not None
            assert found[0].shape == activations.shape
            yield time.perf_counter() - start
        place = pb.Place(run=welcome.run, round=order.number, order=order.order, step=STEPS)
        answer = stream.ask(pb.DeviceMessage(finished=pb.Finished(place=place)))
        if answer.message.WhichOneof("body") == "assess":
            answer = stream.ask(pb.DeviceMessage(assessed=pb.Assessed(place=place)))
    stream.close()


def steps_of_echo(port: int, credentials: grpc.ChannelCredentials | None) -> Iterator[float]:
    """Seconds of as many bytes there and back."""
    outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    address = f"localhost:{port}"
    channel = (
        grpc.secure_channel(address, credentials, OPTIONS)
        if credentials
        else grpc.insecure_channel(address, OPTIONS)
    )
    answers = channel.stream_stream(ECHO)(iter(outbox.get, None))
    data = bytes(4 * BATCH * WIDTH)
    for _ in range(STEPS * ROUNDS):
        start = time.perf_counter()
        outbox.put(data)
        assert len(next(answers)) == len(data)
        yield time.perf_counter() - start
    outbox.put(None)
    channel.close()


def compared() -> str:
    """The table, measured in turns, so that both see the same machine."""
    lines = ["| | bare gRPC echo | a step of ours | ratio |", "|---|---|---|---|"]
    with tempfile.TemporaryDirectory() as folder:
        identity = Path(folder) / "identity"
        init(identity, [])
        _, device = issue(identity, "0")
        tls = channel_credentials(device, certificate=None, key=None, authority=None)
        for name, where, credentials in (
            ("plain text", "", None),
            ("TLS, both sides", str(identity), tls),
        ):
            bare, ours = in_turns(where, credentials)
            lines.append(
                f"| {name} | {bare * 1e3:.2f} ms | {ours * 1e3:.2f} ms | {ours / bare:.2f} |"
            )
    return "\n".join(lines)


def in_turns(identity: str, credentials: grpc.ChannelCredentials | None) -> tuple[float, float]:
    """Medians of both, a hundred steps of one after a hundred of the other."""
    servers = [_started("echo", identity), _started("ours", identity)]
    try:
        ports = [int(server.stdout.readline()) for server in servers if server.stdout]
        runs = [steps_of_echo(ports[0], credentials), steps_of_ours(ports[1], credentials)]
        times: list[list[float]] = [[], []]
        for _ in range(STEPS * ROUNDS // 100):
            for run, kept in zip(runs, times, strict=True):
                kept.extend(next(run) for _ in range(100))
        return float(np.median(times[0])), float(np.median(times[1]))
    finally:
        for server in servers:
            server.kill()


def _started(kind: str, identity: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "network.overhead", kind, identity]
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).resolve().parent.parent,
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    if len(sys.argv) == 1:
        print(compared())
    else:
        {"ours": serve_ours, "echo": serve_echo}[sys.argv[1]](sys.argv[2])
