"""gRPC: the service of airsplit.proto, and the options that both sides need."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

from airsplit.core.addresses import is_loopback
from airsplit.core.errors import InvalidValue
from airsplit.network.identity.admission import split_address
from airsplit.network.wire import airsplit_pb2 as pb

SERVICE = "airsplit.Training"
PROTOCOL = 2
"""Changes when devices and servers of different versions would misunderstand each other."""

KEEPALIVE_S = 10.0
LARGEST_MESSAGE = (1 << 31) - 1  # of protobuf
LARGEST_PROBE = 4 << 20
"""Bytes with which the link is measured at most, either way."""


def _options(limit_bytes: int) -> list[tuple[str, Any]]:
    keepalive = int(KEEPALIVE_S * 1000)
    return [
        ("grpc.max_send_message_length", limit_bytes),
        ("grpc.max_receive_message_length", limit_bytes),
        ("grpc.keepalive_time_ms", keepalive),
        ("grpc.keepalive_timeout_ms", keepalive),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", keepalive // 2),
        ("grpc.http2.max_ping_strikes", 0),
        ("grpc.so_reuseport", 0),
    ]


Converse = Callable[[Iterator[bytes], grpc.ServicerContext], Iterator[bytes]]
Answer = Callable[[bytes, grpc.ServicerContext], bytes]


def listen(
    address: str,
    join: Converse,
    calls: Mapping[str, Answer],
    *,
    devices: int,
    limit_bytes: int,
    credentials: grpc.ServerCredentials | None,
) -> tuple[grpc.Server, int]:
    """A server that listens, and its port.

    join     answers one device's messages
    calls    the service's other methods, by name

    All take bytes and return bytes: what is no message is ours to refuse, and must not fail within gRPC.
    """
    threads = ThreadPoolExecutor(max_workers=2 * devices + 8, thread_name_prefix="airsplit-device")
    server = grpc.server(
        threads, options=_options(limit_bytes), maximum_concurrent_rpcs=2 * devices + 8
    )
    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        name: grpc.unary_unary_rpc_method_handler(call) for name, call in calls.items()
    }
    handlers["Join"] = grpc.stream_stream_rpc_method_handler(join)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    try:
        port = (
            server.add_insecure_port(address)
            if credentials is None
            else server.add_secure_port(address, credentials)
        )
    except RuntimeError:
        raise InvalidValue(
            f"address {address!r} cannot be listened on; is it this machine's, and is the port free?"
        ) from None
    server.start()
    return server, port


def connect(
    address: str, credentials: grpc.ChannelCredentials | None, limit_bytes: int = LARGEST_MESSAGE
) -> grpc.Channel:
    """A channel to a server; in plain text where there are no credentials."""
    options = [
        *_options(limit_bytes),
        ("grpc.enable_retries", 0),
        ("grpc.use_local_subchannel_pool", 1),
    ]
    if is_loopback(split_address(address)[0]):
        options.append(("grpc.enable_http_proxy", 0))  # a proxy's loopback is another
    if credentials is None:
        return grpc.insecure_channel(address, options=options)
    return grpc.secure_channel(address, credentials, options=options)


def join_call(channel: grpc.Channel, requests: Iterator[bytes]) -> Any:
    """Open a device's stream: an iterator over the bytes that the server sends, which can also be cancelled."""
    method: Any = channel.stream_stream(f"/{SERVICE}/Join")
    return method(requests)


def ask_status(channel: grpc.Channel, timeout_s: float) -> str:
    """The server's state, as JSON."""
    method = channel.unary_unary(
        f"/{SERVICE}/Status",
        request_serializer=pb.StatusRequest.SerializeToString,
        response_deserializer=pb.StatusReply.FromString,
    )
    return str(method(pb.StatusRequest(), timeout=timeout_s).json)


def ask_probe(channel: grpc.Channel, frame: bytes, timeout_s: float) -> bytes:
    """Send a probe to the server, as a frame, and get another back."""
    method: Any = channel.unary_unary(f"/{SERVICE}/Measure")
    answer: bytes = method(frame, timeout=timeout_s)
    return answer


def require_safe(address: str, secured: bool, allowed: bool) -> None:
    """Raise where plain text would leave the machine, unless that was asked for."""
    host, _ = split_address(address)
    if not secured and not allowed and not is_loopback(host):
        raise InvalidValue(
            f"address {address!r} is not this machine's loopback, where plain text can be read and forged by others; "
            "give --identity (airsplit identity init makes one), or --insecure to do it all the same"
        )
