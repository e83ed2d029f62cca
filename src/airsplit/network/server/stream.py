"""One device's stream, as the server sees it: what it may say when, and what it is told.

A device speaks and waits for the answer, so that a session is a generator: a message in, an answer out.  Nothing that a device
says can touch another's: whatever is wrong with it ends this stream, and only this.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import grpc

from airsplit.core.errors import AirsplitError, show
from airsplit.network.identity.admission import Refused
from airsplit.network.server.device_registry import TRAINING, Member, Unwelcome, skip
from airsplit.network.wire import airsplit_pb2 as pb
from airsplit.network.wire.codec import Incoming, Malformed, Outgoing, joined, paced
from airsplit.network.wire.pacing import TokenBucket, burst_bytes
from airsplit.network.wire.transport import PROTOCOL

if TYPE_CHECKING:
    from airsplit.network.server.service import Desk

SILENCE_S = 10.0
"""How long a stream may be open before it is said whose it is."""

MESSAGES_PER_S = 20_000
"""More than any device has use for."""
LAST_WORD_S = 2.0
"""How long a stream that was replaced stays open to be told so."""
PROBES = 64
PROBING_S = 20.0
"""How long a device has at most to measure its link by itself, and waits until the one before it has done so."""


class Flooding(AirsplitError):
    """A device that sends more messages than any has use for."""


class Session:
    """A stream from its first message to its last."""

    def __init__(self, desk: Desk, context: grpc.ServicerContext) -> None:
        self.context = context
        self.orders: queue.SimpleQueue[Outgoing[pb.ServerMessage] | None] = queue.SimpleQueue()
        self.bucket = TokenBucket(None, burst_bytes(None))
        self._desk = desk
        self._member: Member | None = None
        self.idle = False  # whether the device waits for an order
        self._second, self._messages = 0, 0
        self._probing, self._probes_lock = False, threading.Lock()
        self._turn: threading.Timer | None = None  # to probe, from the first probe on
        self._replaced = False
        self._silence = _later(
            SILENCE_S, context.cancel
        )  # who does not say who it is must not keep others out
        context.add_callback(lambda: self.orders.put(None))

    def give(self, order: Outgoing[pb.ServerMessage]) -> None:
        """Let the device have an order next.  Those that it has not taken are void, and go: each may hold a whole model."""
        try:
            while self.orders.get_nowait() is not None:
                pass
        except queue.Empty:
            self.orders.put(order)
        else:
            self.orders.put(None)  # the stream has ended

    def replace(self) -> None:
        """End the stream: another has come in its place.  One that still listens is told so, and does not come back."""
        self._replaced = True
        self.orders.put(None)
        _later(LAST_WORD_S, self.context.cancel)

    def _require_own(self) -> None:
        if self._replaced:
            raise Unwelcome("another device has connected under this name; names must differ")

    def converse(self, arriving: Iterator[bytes]) -> Iterator[bytes]:
        """Answers to a device's messages; the stream ends with a status that says why."""
        try:
            self._desk.require_admitted(self.context)  # before anything is read
            limits = self._desk.limit_bytes, self._desk.header_limit
            for answer in self._talk(joined(pb.DeviceMessage, self._counted(arriving), *limits)):
                for data in paced(answer, self.bucket):
                    self._count("received_bytes", data)
                    yield data
        except AirsplitError as error:
            self._end(error)
        except grpc.RpcError:  # the device is gone
            pass
        finally:
            self._silence.cancel()
            self._end_probing()
            if self._member is not None:
                self._desk.left(self._member, self)

    def _end_probing(self) -> None:
        with self._probes_lock:
            if self._turn is not None:
                self._turn.cancel()  # or one who comes, probes and goes again and again would leave a thread each time
            if self._probing:
                self._desk.probing.release()
                self._probing = False

    def _end(self, error: AirsplitError) -> None:
        codes: dict[type[AirsplitError], grpc.StatusCode] = {
            Refused: grpc.StatusCode.PERMISSION_DENIED,
            Unwelcome: grpc.StatusCode.FAILED_PRECONDITION,
            Flooding: grpc.StatusCode.RESOURCE_EXHAUSTED,
        }
        code = next(
            (code for kind, code in codes.items() if isinstance(error, kind)),
            grpc.StatusCode.INVALID_ARGUMENT,
        )
        if self._member is not None:
            self._desk.refused(self._member, self, error)
        else:
            self._desk.tell("refused", why=str(error))
        self.context.abort(code, str(error)[:2000])

    def _counted(self, arriving: Iterator[bytes]) -> Iterator[bytes]:
        """The same messages, no more of them a second than any device has use for."""
        for data in arriving:
            second = int(time.monotonic())
            self._second, self._messages = (
                second,
                self._messages + 1 if second == self._second else 1,
            )
            if self._messages > MESSAGES_PER_S:
                raise Flooding(f"a device may send at most {MESSAGES_PER_S:,} messages a second")
            if self._member is not None:
                self._member.last_seen = time.monotonic()
            self._count("sent_bytes", data)
            yield data

    def _count(self, column: str, data: bytes) -> None:
        """Bytes of a round's training; what is said besides does not count."""
        work = None if self._member is None else self._member.work
        if work is not None and work.state == TRAINING:
            setattr(work, column, getattr(work, column) + len(data))

    # ---- the conversation --------------------------------------------------------------------------------------------------
    def _talk(
        self, messages: Iterator[Incoming[pb.DeviceMessage]]
    ) -> Iterator[Outgoing[pb.ServerMessage]]:
        hello = next(messages, None)
        if hello is None:
            return
        member = self._member = self._greeted(_body(hello.message, "hello"))
        self._silence.cancel()
        yield Outgoing(pb.ServerMessage(welcome=self._desk.welcome(member)))
        probes = 0
        for incoming in messages:
            message = incoming.message
            body = message.WhichOneof("body")
            if body == "probe" and not member.arrived and probes < PROBES:
                probes += 1
                yield self._probed(message.probe)
            elif body == "arrived" and not member.arrived:
                self._end_probing()
                self._desk.arrived(member, self, message.arrived)
                yield from self._ordered()
            elif not member.arrived:
                raise Malformed(
                    f"a device must say that it has arrived before anything else, got {show(body)}"
                )
            else:
                yield from self._answered(member, incoming, body)

    def _greeted(self, hello: pb.Hello) -> Member:
        if hello.protocol != PROTOCOL:
            raise Unwelcome(
                f"the server speaks version {PROTOCOL} of the protocol, the device {hello.protocol}; install the same airsplit"
            )
        return self._desk.greet(self, hello.name)

    def _probed(self, probe: pb.Probe) -> Outgoing[pb.ServerMessage]:
        if self._turn is None:  # who does not get its turn in time measures all the same
            self._probing = self._desk.probing.acquire(timeout=PROBING_S)
            self._turn = _later(PROBING_S, self._end_probing)
        return self._desk.probed(probe)

    def _answered(
        self, member: Member, incoming: Incoming[pb.DeviceMessage], body: str | None
    ) -> Iterator[Outgoing[pb.ServerMessage]]:
        """One message of a device that has arrived."""
        self._require_own()
        message = incoming.message
        if body == "ready":
            self._desk.ready(member, message.ready)
            yield from self._ordered()
        elif body == "step":
            yield from self._desk.step(member, incoming, message.step)
        elif body == "evaluate":
            yield from self._desk.evaluate(member, incoming, message.evaluate)
        elif body == "finished":
            if self._desk.finished(member, incoming, message.finished):
                yield from self._ordered()
            else:
                yield skip(message.finished.place.order, "that order is over")
        elif body == "assessed":
            self._desk.assessed(member, message.assessed)
            yield from self._ordered()
        elif body == "moved":
            self._desk.moved(member, incoming, message.moved)
            yield from self._ordered()
        else:
            raise Malformed(f"a device that has arrived trains, got {show(body)}")

    def _ordered(self) -> Iterator[Outgoing[pb.ServerMessage]]:
        """The next order; waits for it."""
        self.idle = True
        order = self.orders.get()
        while (
            order is not None and not self.orders.empty()
        ):  # a newer one may have come just now, or the end of the stream
            order = self.orders.get()
        self.idle = False
        self._require_own()
        if order is not None:
            yield order


def _later(seconds: float, call: Callable[[], object]) -> threading.Timer:
    """Make a call after a while, unless the timer is cancelled; a process that ends does not wait for it."""
    timer = threading.Timer(seconds, call)
    timer.daemon = True
    timer.start()
    return timer


def _body(message: pb.DeviceMessage, wanted: str) -> Any:
    """What a message says; an error where it says something else."""
    got = message.WhichOneof("body")
    if got != wanted:
        raise Malformed(f"a device must say {wanted} first, got {show(got)}")
    return getattr(message, wanted)
