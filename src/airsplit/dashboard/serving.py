"""Serving the dashboard: on loopback, or elsewhere with a token."""

from __future__ import annotations

import ipaddress
import secrets
import socket
from collections.abc import Callable
from pathlib import Path

import uvicorn

from airsplit.dashboard.app import make_app
from airsplit.dashboard.guard import Rules
from airsplit.errors import FileProblem, InvalidValue

LOOPBACK = "127.0.0.1"


def serve(
    root: Path,
    *,
    host: str = LOOPBACK,
    port: int = 0,
    names: tuple[str, ...] = (),
    ready: Callable[[str], None] = lambda _: None,
) -> None:
    """Serve the runs in a folder until the process is asked to stop; `ready` is told the address, once, with its token if there is one.

    port   0: any that is free
    """
    if not root.is_dir():
        raise FileProblem(f"runs {str(root)!r} is not a folder")
    listening = _listening(host, port)
    token = None if is_loopback(host) else secrets.token_urlsafe(24)
    app = make_app(root, Rules(names, token))
    settings = uvicorn.Config(app, log_level="warning", access_log=False, server_header=False, timeout_graceful_shutdown=1, lifespan="off")
    shown = f"[{host}]" if ":" in host else host
    ready(f"http://{shown}:{listening.getsockname()[1]}/" + ("" if token is None else f"?token={token}"))
    with listening:
        uvicorn.Server(settings).run(sockets=[listening])


def is_loopback(host: str) -> bool:
    """
    >>> is_loopback("localhost"), is_loopback("127.0.0.1"), is_loopback("0.0.0.0"), is_loopback("::1")
    (True, True, False, True)
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _listening(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        found = socket.socket(family, socket.SOCK_STREAM)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(where)
        found.listen(128)
    except (OSError, UnicodeError, OverflowError) as error:
        raise InvalidValue(f"host {host!r} and port {port} cannot be listened on: {getattr(error, 'strerror', None) or error}") from None
    return found
