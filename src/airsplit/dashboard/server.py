"""The dashboard's server: on loopback, or elsewhere with a token."""

from __future__ import annotations

import errno
import secrets
import socket
from collections.abc import Callable
from pathlib import Path

import uvicorn

from airsplit.core.addresses import is_loopback
from airsplit.core.errors import FileProblem, InvalidValue
from airsplit.dashboard.access import AccessRules
from airsplit.dashboard.app import make_app
from airsplit.dashboard.event_stream import Watcher
from airsplit.dashboard.live_runs import LiveRuns

LOOPBACK = "127.0.0.1"


class Dashboard:
    """A server of the runs in a folder, listening from its construction.

    Attributes:
        address: URL of the playground. Except on loopback, it includes a token.
    """

    def __init__(
        self, root: Path, *, host: str = LOOPBACK, port: int = 0, names: tuple[str, ...] = ()
    ) -> None:
        """Listen on a port, 0 for any that is free, under these names besides the host's."""
        if not root.is_dir():
            raise FileProblem(f"runs {str(root)!r} is not a folder; name the one that runs are in")
        self._socket = open_socket(host, port)
        port = self._socket.getsockname()[1]
        # IPv6 addresses have colons of their own.
        place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self.address = f"http://{place}/"
        token = None
        if not is_loopback(host):
            token = secrets.token_urlsafe(24)
            self.address += f"?token={token}"

        # Host headers are compared in lower case and without the final dot of a full name.
        own_names = tuple(name.lower().rstrip(".") for name in (*names, host))
        runs = LiveRuns(root)
        watcher = Watcher(runs)
        config = uvicorn.Config(
            make_app(runs, watcher, AccessRules(own_names, token)),
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=1,
            lifespan="off",
        )
        self._server = _Server(config, watcher)

    def run(self, on_ready: Callable[[], object] = lambda: None) -> None:
        """Serve until SIGINT, SIGTERM or `stop`; call `on_ready` once these take effect."""
        self._server.on_ready = on_ready
        with self._socket:
            self._server.run(sockets=[self._socket])

    def stop(self) -> None:
        """Stop serving. May be called from any thread."""
        self._server.should_exit = True


class _Server(uvicorn.Server):
    """A server that ends event streams first: uvicorn would wait for them."""

    on_ready: Callable[[], object]

    def __init__(self, config: uvicorn.Config, watcher: Watcher) -> None:
        super().__init__(config)
        self._watcher = watcher

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._watcher.close()
        await super().shutdown(sockets)


def open_socket(host: str, port: int) -> socket.socket:
    """Return a socket that listens on a host's first address.

    Raises:
        InvalidValue: The host is unknown or not of this computer, or the port is taken.
    """
    place = f"host {host!r} and port {port}"
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = addresses[0]
        return socket.create_server(address[:2], family=family)
    except OSError as error:
        # Python appends the address, which is named already.
        reason = str(error.strerror or error).partition(" (while")[0]
        if error.errno == errno.EADDRINUSE:
            reason += "; --port names another one, and --port 0 takes any that is free"
        raise InvalidValue(f"{place} cannot be listened on: {reason}") from None
    except (UnicodeError, OverflowError) as error:
        raise InvalidValue(f"{place} cannot be listened on: {error}") from None
