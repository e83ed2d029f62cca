"""A dashboard that serves in a thread, and unprocessed requests to it."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from airsplit.dashboard.server import Dashboard


@contextmanager
def a_dashboard(root: Path, **options: Any) -> Iterator[Dashboard]:
    dashboard = Dashboard(root, **options)
    thread = threading.Thread(target=dashboard.run, daemon=True)
    thread.start()
    try:
        yield dashboard
    finally:
        dashboard.stop()
        thread.join(10)


class Answer:
    """The response to a request, read completely."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = response.headers
        self.body = response.read()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def request(
    dashboard: Dashboard, path: str, body: Any = None, method: str | None = None, **headers: str
) -> Answer:
    """Send a request.

    A body is sent as JSON unless it is bytes. Underscores in names of headers become hyphens.
    """
    where = urlsplit(dashboard.address)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    if data is not None:
        named = {"content-type": "application/json"} | named
    connection = http.client.HTTPConnection("127.0.0.1", where.port, timeout=20)
    try:
        connection.request(method or ("GET" if data is None else "POST"), path, data, named)
        return Answer(connection.getresponse())
    finally:
        connection.close()
