"""Devices that break every rule, beside some that keep them: a server of a tiny model, and streams of raw bytes to it."""

from __future__ import annotations

import queue
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import grpc
import torch
from torch import Tensor

from airsplit.network.client.client import Device
from airsplit.network.server.serve import Serving
from airsplit.network.wire import airsplit_pb2 as pb
from airsplit.network.wire.codec import Incoming, Malformed, Outgoing, opened
from airsplit.network.wire.transport import PROTOCOL, SERVICE, connect
from airsplit.runs.record import RoundRecord
from airsplit.scenario.scenario import Scenario
from training import tiny

T = TypeVar("T")
HUGE = 2**32 - 1
FAR = 2**64 - 1
PATIENCE_S = 10.0


def within(work: Callable[[], T], seconds: float) -> T:
    """What some work comes to; an error where it takes for ever, so that tests fail and do not hang."""
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return done.result(seconds)


# ---- an honest run -------------------------------------------------------------------------------------------------------------
def scenario(splits: list[int], rounds: int = 3, **changes: Any) -> Scenario:
    """Devices are called by their numbers; nothing is measured and nothing paced, so that a run is the same every time."""
    network = {"network__measure": False, "network__pacing": False, "network__grace_s": 20.0}
    return tiny.scenario(data="flat", splits=splits, rounds=rounds, **network | changes)


@dataclass
class Run:
    """A server in this process, and the honest devices that it trains with, each in a thread."""

    serving: Serving
    folder: Path
    said: dict[str, str] = field(default_factory=dict)
    threads: list[threading.Thread] = field(default_factory=list)
    devices: list[Device] = field(default_factory=list)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.serving.port}"

    def join(self, *names: str) -> None:
        """Let honest devices join."""
        for name in names:
            self.threads.append(threading.Thread(target=self._take_part, args=(name,), daemon=True))
            self.threads[-1].start()

    def _take_part(self, name: str) -> None:
        device = Device(
            name=name,
            folder=self.folder / name,
            data="training.tiny:flat",
            model="training.tiny:mlp",
            patience_s=PATIENCE_S,
        )
        self.devices.append(device)
        try:
            self.said[name] = device.run(self.address)
        except Exception as error:  # it is looked at by the test
            self.said[name] = repr(error)

    def wait_for(self, *numbers: int) -> None:
        """Until some devices have arrived."""
        end = time.monotonic() + PATIENCE_S
        while not all(self.serving.server.members[number].present for number in numbers):
            if time.monotonic() > end:
                raise TimeoutError(f"devices {numbers} have not arrived")
            time.sleep(0.001)

    def train(self) -> list[RoundRecord]:
        """All rounds that are left."""
        return within(lambda: list(self.serving), 3 * PATIENCE_S)

    def result(self) -> tuple[list[float], dict[str, Tensor]]:
        """What the run has made: losses, and every tensor of the server but those of a device that should have none."""
        ends = self.serving.server.desk.back_ends
        own = {
            f"{k}:{name}": tensor
            for k, named in enumerate(ends.own[:3])
            for name, tensor in named.items()
        }
        losses = [record.train_loss for record in self.serving.folder.read_records()]
        return losses, {name: tensor.clone() for name, tensor in (ends.common | own).items()}


@contextmanager
def running(wanted: Scenario, folder: Path) -> Iterator[Run]:
    """A server that listens, until the end of the context."""
    serving = Serving(wanted, out=folder / "run", listen_on="127.0.0.1:0", wait_s=PATIENCE_S)
    run = Run(serving, folder)
    try:
        yield run
    finally:
        serving.stop("the test is over")
        serving.server.orders.end("the test is over")
        within(serving._open.close, PATIENCE_S)
        for device in run.devices:
            device.stop()
        for thread in run.threads:
            thread.join(PATIENCE_S)


# ---- streams of raw bytes --------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Outcome:
    """How a stream ended, and what was said before."""

    code: grpc.StatusCode
    details: str
    answers: list[str]


class Attacker:
    """Opens streams over one channel, and says on them whatever it likes."""

    def __init__(self, address: str) -> None:
        self.channel = connect(address, None)
        self._open = self.channel.stream_stream(
            f"/{SERVICE}/Join", request_serializer=None, response_deserializer=None
        )

    def close(self) -> None:
        self.channel.close()

    def say(self, messages: Iterable[bytes], timeout_s: float = PATIENCE_S) -> Outcome:
        """Some messages at once; then nothing more."""
        call, answers = self._open(iter(messages), timeout=timeout_s), []
        with suppress(grpc.RpcError):
            for each in call:
                answers.append(kind(each))  # noqa: PERF401 - what came before an error counts
        return Outcome(call.code(), call.details(), answers)

    def converse(
        self, name: str, reply: Callable[[Answer], list[Any] | None], timeout_s: float = PATIENCE_S
    ) -> Outcome:
        """Say hello, then to each answer what `reply` makes of it; None: nothing more."""
        outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        outbox.put(hello(name))
        call, answers = self._open(iter(outbox.get, None), timeout=timeout_s), []
        with suppress(grpc.RpcError):
            for each in call:
                answers.append(kind(each))
                said = reply(opened(pb.ServerMessage, each))
                for message in [None] if said is None else said:
                    outbox.put(message)
        outbox.put(None)
        return Outcome(call.code(), call.details(), answers)

    def converse_later(
        self, name: str, reply: Callable[[Answer], list[Any] | None]
    ) -> Future[Outcome]:
        """The same, in a thread."""
        done: Future[Outcome] = Future()
        threading.Thread(
            target=lambda: done.set_result(self.converse(name, reply)), daemon=True
        ).start()
        return done

    def misbehave(self, name: str, bad: Bad) -> Outcome:
        """Join as a device, wait for a round, then say something else than is expected, and nothing more."""
        return self.converse(name, Member(in_round=lambda told, _: [*bad(told), END]))


Answer = Incoming[pb.ServerMessage]


@dataclass
class Member:
    """Replies of a device that does all as it should, but for what is given: a function of what it was told and of the answer."""

    in_round: Callable[[Told, pb.ServerMessage], list[Any]] | None = None
    at_end: Callable[[Told, pb.ServerMessage], list[Any]] | None = None
    assessing: Callable[[Told, pb.ServerMessage], list[Any]] | None = None
    about: dict[str, Any] = field(default_factory=dict)
    told: Told | None = None
    run: str = ""

    def __call__(self, incoming: Answer) -> list[Any] | None:
        answer = incoming.message
        body = answer.WhichOneof("body")
        if body == "welcome":
            self.run = answer.welcome.run
            return [arrived(answer.welcome, **self.about)]
        if body == "round":
            order = answer.round
            self.told = told = Told(self.run, order.number, order.order, order.split)
            if order.model and not self.in_round:
                return [
                    told.finished({each.name: incoming.tensor(each.tensor) for each in order.model})
                ]
            return self.in_round(told, answer) if self.in_round else [told.step()]
        if body == "gradient" and self.told and not self.in_round:
            told = self.told
            if answer.gradient.place.step == 0:
                return [told.step(step=1)]
            return self.at_end(told, answer) if self.at_end else [told.finished()]
        if body == "assess" and self.told:
            return self.assessing(self.told, answer) if self.assessing else [END]
        return []


END = None  # in place of a message: there are no more


def arrived(welcome: pb.Welcome, **changes: Any) -> bytes:
    """As an honest device has it."""
    return wire(
        arrived=pb.Arrived(
            **{"fingerprint": welcome.fingerprint, "samples": 48, "test_samples": 21} | changes
        )
    )


def kind(answer: bytes) -> str:
    return str(opened(pb.ServerMessage, answer).message.WhichOneof("body"))


def wire(**body: Any) -> bytes:
    return Outgoing(pb.DeviceMessage(**body)).frame()


def hello(name: str, protocol: int = PROTOCOL) -> bytes:
    return wire(hello=pb.Hello(protocol=protocol, name=name))


# ---- what a device says in a round -------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Told:
    """What a device needs to know to say something that is almost right."""

    run: str
    round: int
    order: int
    split: int

    def place(self, **changes: Any) -> pb.Place:
        return pb.Place(
            **{"run": self.run, "round": self.round, "order": self.order, "step": 0} | changes
        )

    def activations(self) -> Tensor:
        """As the front of tiny's mlp gives them."""
        with torch.no_grad():
            return torch.tanh(torch.zeros(4, {1: 7, 2: 7, 3: 5, 4: 5}[self.split]))

    def step(self, activations: Any = None, labels: Any = None, **changes: Any) -> bytes:
        """A step that is right, but for what is given."""
        sent = Outgoing(pb.DeviceMessage(step=pb.Step(place=self.place(**changes))))
        step = sent.message.step
        self._put(
            sent,
            [self.activations()] if activations is None else activations,
            labels,
            step.activations,
            step.labels,
        )
        return sent.frame()

    def evaluate(self, activations: Any = None, labels: Any = None, **changes: Any) -> bytes:
        """Test samples that are right, but for what is given."""
        sent = Outgoing(pb.DeviceMessage(evaluate=pb.Evaluate(place=self.place(**changes))))
        body = sent.message.evaluate
        self._put(
            sent,
            [self.activations()] if activations is None else activations,
            labels,
            body.activations,
            body.labels,
        )
        return sent.frame()

    def _put(
        self,
        sent: Outgoing[pb.DeviceMessage],
        given: list[Any],
        labels: Any,
        headers: Any,
        last: pb.Tensor,
    ) -> None:
        for each in given:
            put(sent, headers.add(), each, wants_gradient=True)
        put(sent, last, torch.zeros(4, dtype=torch.int64) if labels is None else labels)

    def finished(self, model: dict[str, Tensor] | None = None, **changes: Any) -> bytes:
        sent = Outgoing(
            pb.DeviceMessage(
                finished=pb.Finished(**{"place": self.place(step=2), "compute_s": 0.1} | changes)
            )
        )
        sent.put_named(sent.message.finished.model, model or {})
        return sent.frame()


@dataclass(frozen=True)
class Odd:
    """A tensor whose header is changed after it was made."""

    tensor: Tensor
    compression: str = "none"
    changes: dict[str, Any] = field(default_factory=dict)


def put(
    sent: Outgoing[pb.DeviceMessage],
    header: pb.Tensor,
    given: Tensor | Odd | pb.Tensor,
    wants_gradient: bool = False,
) -> None:
    """Add a tensor as it should be, or with a header that is not."""
    if isinstance(given, pb.Tensor):
        header.CopyFrom(given)
        return
    odd = given if isinstance(given, Odd) else Odd(given)
    sent.put(
        header,
        odd.tensor,
        odd.compression,
        wants_gradient=wants_gradient and odd.tensor.is_floating_point(),
    )
    for name, value in odd.changes.items():
        header.ClearField(name)
        header.MergeFrom(pb.Tensor(**{name: value}))


Bad = Callable[[Told], list[bytes]]


def lie(**changes: Any) -> Odd:
    return Odd(torch.zeros(4, 7), changes=changes)


def frame(**fields: Any) -> bytes:
    return bytes(pb.Frame(**fields).SerializeToString())


def _pieces(data: bytes, size: int, last: bool = True) -> list[bytes]:
    cut = [data[at : at + size] for at in range(0, len(data), size)]
    return [frame(piece=each, last=last and at == len(cut) - 1) for at, each in enumerate(cut)]


IN_A_ROUND: dict[str, Bad] = {
    "not a number": lambda t: [t.step([t.activations() * float("nan")])],
    "infinite": lambda t: [t.step([t.activations() + float("inf")])],
    "another shape": lambda t: [t.step([torch.zeros(4, 6)])],
    "one sample too many": lambda t: [t.step([torch.zeros(5, t.activations().shape[1])])],
    "no samples": lambda t: [t.step([torch.zeros(0, t.activations().shape[1])])],
    "one number": lambda t: [t.step([torch.tensor(1.0)])],
    "sixteen axes": lambda t: [t.step([torch.zeros([1] * 16)])],
    "more samples than a batch": lambda t: [
        t.step([torch.zeros(5, 7)], torch.zeros(5, dtype=torch.int64))
    ],
    "a million samples": lambda t: [
        t.step([torch.zeros(1, 1)] * 7, torch.zeros(500_000, dtype=torch.int64))
    ],
    "another type": lambda t: [t.step([t.activations().double()])],
    "complex numbers": lambda t: [t.step([torch.zeros(4, 7, dtype=torch.complex64)])],
    "gradients of whole numbers": lambda t: [
        t.step([Odd(torch.zeros(4, 7, dtype=torch.int64), changes={"wants_gradient": True})])
    ],
    "no activations": lambda t: [t.step([])],
    "too many activations": lambda t: [t.step([t.activations()] * 100)],
    "absent activations": lambda t: [t.step([pb.Tensor(absent=True)])],
    "an empty header": lambda t: [t.step([pb.Tensor()])],
    "a byte too far": lambda t: [t.step([lie(at=35)])],
    "as far as can be said": lambda t: [t.step([lie(at=FAR)])],
    "an end that comes around": lambda t: [t.step([lie(at=2**64 - 112)])],
    "labels that are elsewhere": lambda t: [
        t.step(labels=Odd(torch.zeros(4, dtype=torch.int64), changes={"at": FAR}))
    ],
    "a shape beyond memory": lambda t: [t.step([lie(shape=[2**31, 2**31])])],
    "empty axes beyond strides": lambda t: [t.step([lie(shape=[0, HUGE, HUGE, HUGE])])],
    "an unknown type": lambda t: [t.step([lie(dtype="object")])],
    "an unknown coding": lambda t: [t.step([lie(coding="pickle")])],
    "scales that are missing": lambda t: [t.step([lie(coding="int8", scales_at=FAR)])],
    "scales that are no numbers": lambda t: [t.step([Odd(torch.zeros(4, 7) / 0, "fp16")])],
    "no labels": lambda t: [t.step(labels=torch.zeros(0, dtype=torch.int64))],
    "labels that are one": lambda t: [t.step(labels=torch.tensor(1))],
    "labels without end": lambda t: [t.step(labels=torch.zeros(5, dtype=torch.int64))],
    "labels of no class": lambda t: [t.step(labels=torch.full((4,), 3))],
    "labels below zero": lambda t: [t.step(labels=torch.full((4,), -1))],
    "labels that are floats": lambda t: [t.step(labels=torch.zeros(4))],
    "labels of many axes": lambda t: [t.step(labels=torch.zeros(4, 3, 2, dtype=torch.int64))],
    "absent labels": lambda t: [t.step(labels=pb.Tensor(absent=True))],
    "a step that is not its turn": lambda t: [t.step(step=1)],
    "a step of the far future": lambda t: [t.step(step=HUGE)],
    "finished before the first step": lambda t: [t.finished()],
    "finished after one of two": lambda t: [t.step(), t.finished()],
    "a step more than there are": lambda t: [t.step(), t.step(step=1), t.step(step=2)],
    "finished in no time": lambda t: [t.step(), t.step(step=1), t.finished(compute_s=-1.0)],
    "finished in infinite time": lambda t: [
        t.step(),
        t.step(step=1),
        t.finished(transmit_s=float("inf")),
    ],
    "numbers that overflow": lambda t: [
        t.step([t.activations() + 1e38]),
        t.step([t.activations() + 3e38], step=1),
        t.finished(server_s=-1),
    ],
    "nothing": lambda t: [b""],
    "an empty message": lambda t: [wire()],
    "unknown fields": lambda t: [b"\xc2\x3e\x04abcd"],
    "larger than any": lambda t: [bytes(5 << 20)],
    "a frame that goes on": lambda t: [t.step() + b"\0"],
    "a frame that is cut short": lambda t: [t.step()[:-1]],
    "numbers and no message": lambda t: [frame(payload=bytes(100))],
    "a message that is no frame": lambda t: [
        pb.DeviceMessage(ready=pb.Ready()).SerializeToString()
    ],
    "the message before its numbers": lambda t: [b"\x12\x00\x0a\x01a"],
    "a length that does not end": lambda t: [b"\x0a" + b"\xff" * 100],
    "more numbers than there are": lambda t: [b"\x0a\xff\xff\xff\xff\x07" + bytes(50)],
    "hello again": lambda t: [hello("again")],
    "arrived again": lambda t: [wire(arrived=pb.Arrived(samples=1))],
    "a probe": lambda t: [wire(probe=pb.Probe(answer_bytes=HUGE))],
    "an evaluation that is no number": lambda t: [
        wire(assessed=pb.Assessed(place=t.place(), test_loss=float("nan")))
    ],
    "a message between pieces": lambda t: [*_pieces(t.step(), 50)[:2], t.step()],
    "pieces that are cut short": lambda t: _pieces(t.step(), 50, last=False),
    "empty pieces": lambda t: [frame(last=True)],
    "empty pieces that are said": lambda t: [b"\x1a\x00"],
    "a message in a piece": lambda t: [frame(piece=t.step(), header=b"a")],
    "pieces of nonsense": lambda t: _pieces(b"\xff" * 400, 100),
    "pieces of pieces": lambda t: _pieces(_pieces(t.step(), 1000)[0], 30),
    "pieces without end": lambda t: _pieces(bytes(5 << 20), 1 << 18, last=False),
}
"""What a member says in a round, for which its stream must end."""

LATE: dict[str, tuple[Bad, list[str]]] = {
    "a step of another run": (lambda t: [t.step(run="another")], ["skip"]),
    "a step of an earlier round": (lambda t: [t.step(round=t.round - 1)], ["skip"]),
    "a step of an earlier order": (lambda t: [t.step(order=t.order - 1)], ["skip"]),
    "a step of a later order": (lambda t: [t.step(order=t.order + 1)], ["skip"]),
    "a step without a place": (lambda t: [wire(step=pb.Step())], ["skip"]),
    "a step that was made": (lambda t: [t.step(), t.step(), t.step()], ["gradient"]),
    "finished of an earlier order": (
        lambda t: [t.finished(place=t.place(order=t.order - 1))],
        ["skip"],
    ),
    "labels that do not count": (lambda t: [t.step(labels=torch.full((4,), -100))], ["skip"]),
    "an evaluation that nobody asked for": (
        lambda t: [wire(evaluate=pb.Evaluate(place=t.place()))],
        ["skip"],
    ),
}
"""What a member says too late, too early, twice or to no end, and the answer: it counts for nothing."""


# ---- what strangers say --------------------------------------------------------------------------------------------------------------
def strange(rng: random.Random, run: str) -> list[bytes]:
    """A few messages of one who is no member: each list must end its stream."""
    told = Told(run, rng.choice([0, 1, HUGE]), rng.choice([0, 1, HUGE]), 1)
    name = rng.choice(
        ["stranger", "", "0" * 65, "../0", "a b", "\0", "3\n", "\u0660", "4294967296"]
    )
    return rng.choice([
        lambda: [hello(name)],
        lambda: [hello(name), told.step()],
        lambda: [hello("0", protocol=rng.choice([0, PROTOCOL + 1, HUGE]))],
        lambda: [told.step()],
        lambda: [rng.choice(list(IN_A_ROUND.values()))(told)[0]],
        lambda: [told.finished()],
        lambda: [wire(arrived=pb.Arrived(samples=1))],
        lambda: [wire(probe=pb.Probe(payload=pb.Tensor(dtype="uint8", shape=[100]), answer_bytes=HUGE))],
        lambda: [frame(piece=hello(name), last=True)],
        lambda: _pieces(hello(name), 3)[:-1],
        lambda: _pieces(nonsense(rng), 50),
        lambda: [b""],
    ])()  # fmt: skip


def nonsense(rng: random.Random) -> bytes:
    """Bytes that are no frame, or a frame of no message."""
    told = Told("run", 1, 1, 1)
    while True:
        data = rng.choice(
            [
                lambda: rng.randbytes(rng.randrange(1, 200)),
                lambda: mutated(told.step(), rng),
                lambda: frame(header=b"\xff" * 40),
            ]
        )()
        try:
            opened(pb.DeviceMessage, data)
        except Malformed:
            return data


def mutated(data: bytes, rng: random.Random) -> bytes:
    """Some bytes with a few bits flipped, cut short, doubled or set to the extremes."""
    changed = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(changed))
        way = rng.randrange(5)
        if way == 0:
            changed[at] ^= 1 << rng.randrange(8)
        elif way == 1:
            changed[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
        elif way == 2:
            del changed[max(at, 1) :]
        elif way == 3:
            changed[at:at] = changed[at : at + rng.randrange(1, 9)]
        else:
            del changed[at : at + rng.randrange(1, 5)]
        if not changed:
            return b"\0"
    return bytes(changed)
