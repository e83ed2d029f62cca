"""Why a server cannot be reached, over real sockets: what listens there, and what is between."""

from __future__ import annotations

import contextlib
import re
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from airsplit.cli.app import main
from airsplit.network.client.client import Unreachable
from airsplit.network.client.reachability import find_proxy
from airsplit.network.client.stream import Lost, Rejected, Stream
from airsplit.network.identity.admission import channel_credentials, init, issue, server_credentials
from airsplit.network.wire import airsplit_pb2 as pb
from airsplit.network.wire.transport import connect
from network.fleets import Party, party, scenario, wait_until

ELSEWHERE = "192.0.2.1:7070"
"""An address that nobody has: what is sent there goes to the proxy, or nowhere."""

Handle = Callable[[socket.socket], None]


@contextmanager
def listening(handle: Handle) -> Iterator[str]:
    """A program that does this with every connection: its address."""
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor() as pool:

        def accept() -> None:
            with contextlib.suppress(OSError):  # until the listener is closed
                while True:
                    connection, _ = listener.accept()
                    pool.submit(serve, connection)

        def serve(connection: socket.socket) -> None:
            with connection, contextlib.suppress(OSError):
                connection.settimeout(5.0)
                handle(connection)

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def answering(*answers: bytes) -> Handle:
    """Say this once the other side has said something."""

    def handle(connection: socket.socket) -> None:
        connection.recv(1 << 16)
        for answer in answers:
            connection.sendall(answer)
        while connection.recv(
            1 << 16
        ):  # a connection that is closed at once may take the answer with it
            pass

    return handle


def resetting(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """A frame of HTTP/2."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


WEB_SERVER = answering(b"HTTP/1.1 400 Bad Request\r\nServer: nginx\r\nContent-Length: 0\r\n\r\n")


def web_server_2(connection: socket.socket) -> None:
    """Answer the first request of HTTP/2 with headers whose only entry is ":status 404"."""
    settings, headers = 4, 1
    connection.sendall(frame(settings, 0, 0))
    with connection.makefile("rb") as said:
        said.read(len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
        while (head := said.read(9)) and head[3] != headers:
            said.read(int.from_bytes(head[:3], "big"))
        connection.sendall(frame(settings, 1, 0) + frame(headers, 5, 1, b"\x8d"))
        said.read()


SSH = answering(b"SSH-2.0-OpenSSH_9.2\r\n")


def why(address: str, credentials: grpc.ChannelCredentials | None = None) -> str:
    """What a device says of a server that it does not reach."""
    stream = Stream(connect(address, credentials), address, is_secured=credentials is not None)
    try:
        with pytest.raises((Lost, Rejected)) as caught:
            stream.ask(pb.DeviceMessage(hello=pb.Hello()))
    finally:
        stream.close()
    return str(caught.value)


@pytest.fixture(scope="module")
def identities(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("identities")
    for name in ("ours", "theirs"):
        init(folder / name)
        issue(folder / name, "pi")
    return folder


@pytest.fixture
def credentials(identities: Path) -> grpc.ChannelCredentials:
    return channel_credentials(identities / "ours/devices/pi")


@contextmanager
def bare(credentials: grpc.ServerCredentials | None = None) -> Iterator[str]:
    """A gRPC server that offers nothing: its address."""
    server = grpc.server(ThreadPoolExecutor(2))
    port = (
        server.add_insecure_port("127.0.0.1:0")
        if credentials is None
        else server.add_secure_port("0.0.0.0:0", credentials)
    )
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(0).wait()


@pytest.fixture
def dead() -> str:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return f"127.0.0.1:{found.getsockname()[1]}"


# ---- what listens there ----------------------------------------------------------------------------------------------------------
def test_nobody_listens(dead: str, credentials: grpc.ChannelCredentials) -> None:
    wanted = "nobody listens there; is airsplit serve running, and is this its address and port?"
    assert why(dead) == why(dead, credentials) == wanted


def test_a_name_that_cannot_be_resolved() -> None:
    assert why("no-such-host.invalid:7070") == "its name cannot be resolved; is it spelt right?"


def test_a_server_that_speaks_tls_to_a_device_that_does_not(identities: Path) -> None:
    with bare(server_credentials(identities / "ours")) as address:
        assert why(address) == "it speaks TLS, and this device plain text; give --identity"


def test_a_server_that_speaks_plain_text_to_a_device_with_tls(
    credentials: grpc.ChannelCredentials,
) -> None:
    with bare() as address:
        assert why(address, credentials).startswith(
            "it speaks plain text, and this device TLS; leave --identity out here"
        )


def test_a_server_of_another_authority(
    identities: Path, credentials: grpc.ChannelCredentials
) -> None:
    with bare(server_credentials(identities / "theirs")) as address:
        assert why(address, credentials).startswith(
            "its certificate is not of this device's authority; take the identity"
        )


def test_a_device_that_the_server_does_not_believe(identities: Path) -> None:
    pi, their = identities / "ours/devices/pi", identities / "theirs/devices/pi"
    mixed = channel_credentials(
        None, certificate=their / "device.pem", key=their / "device.key", authority=pi / "ca.pem"
    )
    with bare(server_credentials(identities / "ours")) as address:
        assert (
            why(address, mixed)
            == "it closes the connection; is this device's certificate of the server's own authority?"
        )


def test_a_certificate_for_another_host(
    identities: Path, credentials: grpc.ChannelCredentials
) -> None:
    with bare(server_credentials(identities / "ours")) as address:
        other = address.replace("127.0.0.1", "127.0.0.2")
        assert why(other, credentials).startswith(
            "its certificate is not for this host; on the server: airsplit identity init --renew"
        )


@pytest.mark.parametrize(
    ("handle", "wanted"),
    [
        (
            WEB_SERVER,
            r"what answers there is a web server or a proxy \(HTTP status 400\), not airsplit serve; is the port right\?",
        ),
        (
            web_server_2,
            r"what answers there is not airsplit serve, or of another version \(.*status: 404\); is the port right\?",
        ),
        (SSH, r"what answers there is not airsplit serve; is the port right\?"),
        (
            lambda _: None,
            r"it closes the connection at once; is this airsplit serve, and is it the only thing on this port\?",
        ),
        (
            resetting,
            r"it closes the connection at once; is this airsplit serve, and is it the only thing on this port\?",
        ),
    ],
    ids=["HTTP/1", "HTTP/2", "SSH", "closes", "resets"],
)
def test_something_else_that_listens(handle: Handle, wanted: str) -> None:
    with listening(handle) as address:
        assert re.fullmatch(wanted, why(address))


def test_another_grpc_server() -> None:
    with bare() as address:
        assert (
            why(address)
            == "what answers there is not airsplit serve, or of another version (Method not found!); is the port right?"
        )


# ---- a server that goes ----------------------------------------------------------------------------------------------------------
def test_a_device_whose_server_is_gone_hears_that(tmp_path: Path) -> None:
    told: list[tuple[str, dict[str, Any]]] = []
    with party(scenario(), tmp_path) as made:
        made.join("0", patience_s=1.0, tell=lambda event, **facts: told.append((event, facts)))
        wait_until(lambda: made.server.members[0].present)
        kill(made)
        made.leave()
    reasons = [facts["why"] for event, facts in told if event == "waiting"]
    assert reasons[0] == "the connection broke; the server has stopped, or the network is gone"
    assert reasons[-1].startswith("nobody listens there")
    assert isinstance(made.said["0"], Unreachable)
    assert "--identity" not in str(reasons) + str(made.said["0"])


def kill(made: Party) -> None:
    """End the server without a last word to its devices."""
    made.serving._open.close()


# ---- what is between ---------------------------------------------------------------------------------------------------------------
@pytest.fixture
def proxied(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Let gRPC go through a proxy."""
    for name in ("grpc_proxy", "https_proxy", "no_grpc_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    return lambda url: monkeypatch.setenv("http_proxy", url)


PAST = "to connect without it: no_proxy=192.0.2.1, in the environment"


def test_a_proxy_that_refuses_is_named(proxied: Callable[[str], None]) -> None:
    with listening(answering(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")) as address:
        proxied(f"http://me:secret@{address}")
        assert why(ELSEWHERE) == (
            f"the proxy http://{address}, which http_proxy names, does not let it through (HTTP status 403); {PAST}"
        )


def test_a_proxy_that_is_gone_is_named(proxied: Callable[[str], None], dead: str) -> None:
    proxied(f"http://{dead}")
    assert (
        why(ELSEWHERE)
        == f"the proxy http://{dead}, which http_proxy names, cannot be reached; {PAST}"
    )
    proxied("http://no-such-proxy.invalid:3128")
    assert (
        why(ELSEWHERE)
        == f"the proxy http://no-such-proxy.invalid:3128, which http_proxy names, cannot be reached; {PAST}"
    )


def test_what_is_behind_a_proxy_is_told_with_the_proxy(proxied: Callable[[str], None]) -> None:
    with listening(
        answering(b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 400 Bad Request\r\n\r\n")
    ) as address:
        proxied(f"http://{address}")
        found = why(ELSEWHERE)
    assert found.startswith("what answers there is a web server or a proxy (HTTP status 400)")
    assert found.endswith(
        f"(it was dialled through the proxy http://{address}, which http_proxy names; {PAST})"
    )


def test_this_machine_is_dialled_directly(proxied: Callable[[str], None], dead: str) -> None:
    proxied(f"http://{dead}")
    with bare() as address:
        assert "Method not found" in why(address)


@pytest.mark.parametrize("command", ["join", "status"])
def test_the_commands_name_the_proxy(
    command: str,
    proxied: Callable[[str], None],
    dead: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    proxied(f"http://{dead}")
    patience = ["--patience", "0", "--out", str(tmp_path)] if command == "join" else []
    assert main([command, ELSEWHERE, "--insecure", *patience]) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith(f"airsplit: server {ELSEWHERE} cannot be reached")
    assert last.endswith(
        f": the proxy http://{dead}, which http_proxy names, cannot be reached; {PAST}"
    )


@pytest.mark.parametrize(
    ("host", "environment", "proxy"),
    [
        ("10.0.0.5", {}, None),
        ("10.0.0.5", {"http_proxy": ""}, None),
        (
            "10.0.0.5",
            {"grpc_proxy": "http://a:1", "https_proxy": "http://b:2", "http_proxy": "http://c:3"},
            ("grpc_proxy", "http://a:1"),
        ),
        (
            "10.0.0.5",
            {"https_proxy": "http://b:2", "http_proxy": "http://c:3"},
            ("https_proxy", "http://b:2"),
        ),
        ("10.0.0.5", {"http_proxy": "http://c:3", "no_proxy": "10.0.0.6, 10.0.0.5"}, None),
        ("pi.local", {"http_proxy": "http://c:3", "no_proxy": ".local"}, None),
        (
            "pi.local",
            {"http_proxy": "http://c:3", "no_proxy": "10.0.0.0/8,example.org"},
            ("http_proxy", "http://c:3"),
        ),
        (
            "10.0.0.5",
            {"http_proxy": "http://c:3", "no_grpc_proxy": "10.0.0.6", "no_proxy": "10.0.0.5"},
            ("http_proxy", "http://c:3"),
        ),
        ("localhost", {"http_proxy": "http://c:3"}, None),
    ],
)
def test_the_proxy_is_the_one_that_grpc_takes(
    host: str, environment: dict[str, str], proxy: tuple[str, str] | None
) -> None:
    assert find_proxy(f"{host}:7070", environment) == proxy
