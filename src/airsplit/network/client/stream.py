"""The device's end of its stream: a message out, an answer in."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator

import grpc
import torch

from airsplit.core.errors import AirsplitError
from airsplit.core.units import bytes_to_bits
from airsplit.network.client.reachability import explain
from airsplit.network.wire import airsplit_pb2 as pb
from airsplit.network.wire.codec import Incoming, Outgoing, joined, paced
from airsplit.network.wire.pacing import TokenBucket, burst_bytes
from airsplit.network.wire.transport import LARGEST_MESSAGE, LARGEST_PROBE, join_call

FINAL = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.UNIMPLEMENTED,
}
"""Statuses after which trying again is of no use."""


class Rejected(AirsplitError):
    """The server wants nothing of this device, and says why."""


class Lost(Exception):
    """The connection is gone; it may come back."""


class Stream:
    """One connection to the server.

    address and is_secured  how it was dialled, to find out why that fails
    """

    def __init__(
        self, channel: grpc.Channel, address: str = "", *, is_secured: bool = False
    ) -> None:
        self._channel, self._address, self._is_secured = channel, address, is_secured
        self._was_connected = False
        self._outbox: queue.SimpleQueue[Outgoing[pb.DeviceMessage] | None] = queue.SimpleQueue()
        self._bucket = TokenBucket(None, burst_bytes(None))
        self._call = join_call(channel, self._requests())
        self._answers = joined(pb.ServerMessage, self._call, LARGEST_MESSAGE)

    def _requests(self) -> Iterator[bytes]:
        while (message := self._outbox.get()) is not None:
            yield from paced(message, self._bucket)

    def pace(self, rate_bps: float) -> None:
        """Keep to a rate from the next message on; 0: none."""
        wanted = rate_bps or float("inf")
        if wanted != self._bucket.rate_bps:
            self._bucket = TokenBucket(wanted, burst_bytes(wanted))

    def ask(
        self, message: pb.DeviceMessage | Outgoing[pb.DeviceMessage]
    ) -> Incoming[pb.ServerMessage]:
        """Say something and wait for the answer."""
        self._outbox.put(message if isinstance(message, Outgoing) else Outgoing(message))
        try:
            answer = next(self._answers)
        except StopIteration:
            raise Lost("the server has closed the connection") from None
        except grpc.RpcError as error:
            raise told(
                error, self._address, is_secured=self._is_secured, was_connected=self._was_connected
            ) from None
        self._was_connected = True
        return answer

    def close(self) -> None:
        self._outbox.put(None)
        self._call.cancel()
        self._channel.close()


def in_words(text: str) -> str:
    """What a server says, fit for a terminal: one line, without what would steer it.

    >>> in_words("wait\\n\\x1b[2Jfor me")
    'wait [2Jfor me'
    """
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


def told(
    error: grpc.RpcError,
    address: str = "",
    *,
    is_secured: bool = False,
    was_connected: bool = False,
) -> AirsplitError | Lost:
    """What a broken connection means: to try again, or not; the arguments are those of `explain`."""
    code, details = error.code(), in_words(str(error.details() or ""))
    too_large = code is grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in details
    if code in FINAL or too_large:
        if code is grpc.StatusCode.UNIMPLEMENTED:
            return Rejected(
                f"what answers there is not airsplit serve, or of another version ({details}); is the port right?"
            )
        return Rejected(f"the server refuses: {details}")
    return Lost(
        explain(details, address, is_secured=is_secured, was_connected=was_connected) or str(code)
    )


def measure_link(
    ask: Callable[[Outgoing[pb.DeviceMessage]], object],
    seconds: float = 1.0,
    largest: int = LARGEST_PROBE,
) -> dict[str, float]:
    """The rates of the link, both ways, and the time for there and back: with messages that grow until they take long enough.

    What an empty message takes is taken off, so that a rate is what is left for many bytes.
    ask   sends a probe, and waits for the answer
    """

    def timed(up: int, down: int) -> float:
        probe = Outgoing(pb.DeviceMessage(probe=pb.Probe(answer_bytes=down)))
        probe.put(probe.message.probe.payload, torch.zeros(up, dtype=torch.uint8))
        probe = probe.sealed()
        start = time.perf_counter()
        ask(probe)
        return time.perf_counter() - start

    trip_s = min(timed(0, 0) for _ in range(5))
    found = {"round_trip_s": trip_s}
    for name, ways in (("up_bps", (1, 0)), ("down_bps", (0, 1))):
        size = 16 << 10
        took = timed(ways[0] * size, ways[1] * size)
        while size < largest and took < seconds / 4:
            size = min(largest, size * 4)
            took = timed(ways[0] * size, ways[1] * size)
        found[name] = bytes_to_bits(size) / max(took - trip_s, took / 10)
    return found
