"""Serving the dashboard: on loopback, or elsewhere with a token."""

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
from airsplit.dashboard.events import Watcher
from airsplit.dashboard.live_runs import LiveRuns

LOOPBACK = "127.0.0.1"


class Dashboard:
    """A server of the runs in a folder, which listens from the moment it is made.

    address   where it is, with its token if it has one: elsewhere than on loopback it asks for one
    """

    def __init__(
        self, root: Path, *, host: str = LOOPBACK, port: int = 0, names: tuple[str, ...] = ()
    ) -> None:
        """Port 0 is any that is free; `names` are those that the server goes by."""
        if not root.is_dir():
            raise FileProblem(f"runs {str(root)!r} is not a folder; name the one that runs are in")
        self._socket = _listening(host, port)
        token = None if is_loopback(host) else secrets.token_urlsafe(24)
        shown = f"[{host}]" if ":" in host else host
        self.address = f"http://{shown}:{self._socket.getsockname()[1]}/" + (
            "" if token is None else f"?token={token}"
        )
        known = tuple(name.lower().rstrip(".") for name in (*names, host))
        runs = LiveRuns(root)
        watcher = Watcher(runs)
        app = make_app(runs, watcher, AccessRules(known, token))
        settings = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=1,
            lifespan="off",
        )
        self._server = _Server(settings, watcher)

    def run(self, on_ready: Callable[[], object] = lambda: None) -> None:
        """Serve until the process is asked to end, or `stop` is called; call `on_ready` as soon as either would be heard."""
        self._server.on_ready = on_ready
        with self._socket:
            self._server.run(sockets=[self._socket])

    def stop(self) -> None:
        """From any thread."""
        self._server.should_exit = True


class _Server(uvicorn.Server):
    """Ends the streams of events before it waits for what is being answered."""

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


def _listening(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, where = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        return socket.create_server(where[:2], family=family)
    except OSError as error:
        why, way = (
            str(error.strerror or error).partition(" (while")[0],
            "",
        )  # what Python adds says the address again
        if error.errno == errno.EADDRINUSE:
            way = "; --port names another one, and --port 0 takes any that is free"
        raise InvalidValue(
            f"host {host!r} and port {port} cannot be listened on: {why}{way}"
        ) from None
    except (UnicodeError, OverflowError) as error:
        raise InvalidValue(
            f"host {host!r} and port {port} cannot be listened on: {error}"
        ) from None
