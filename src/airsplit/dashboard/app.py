"""The web application: pages, the planner and the runs, each behind an address."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from airsplit.dashboard import playground
from airsplit.dashboard.events import Watcher
from airsplit.dashboard.guard import Guard, Rules
from airsplit.dashboard.monitor import Runs
from airsplit.errors import AirsplitError, UnknownName
from airsplit.report.page import POLICY as REPORT_POLICY

STATIC = Path(__file__).parent / "static"
MOST_SHOWN = 8  # runs that one page watches


def make_app(root: Path, rules: Rules) -> ASGIApp:
    """The application for the runs in a folder."""
    runs = Runs(root)
    watcher = Watcher(runs)

    async def events(request: Request) -> Response:
        if watcher.is_full:
            return JSONResponse({"error": "too many pages are open"}, status_code=503)
        names = request.query_params.getlist("run")[:MOST_SHOWN]
        return StreamingResponse(watcher.listen(names), media_type="text/event-stream")

    async def run(request: Request) -> Response:
        name = request.path_params["name"]
        return Response(await run_in_threadpool(lambda: runs.run(name).series()), media_type="application/json")

    async def report(request: Request) -> Response:
        name = request.path_params["name"]
        text = await run_in_threadpool(lambda: runs.run(name).report())
        return HTMLResponse(text, headers={"content-security-policy": REPORT_POLICY + "; frame-ancestors 'none'"})

    async def overview(request: Request) -> Response:  # noqa: ARG001
        return JSONResponse(await run_in_threadpool(runs.overview))

    async def offered(request: Request) -> Response:  # noqa: ARG001
        return JSONResponse(await run_in_threadpool(playground.offered))

    routes = [
        Route("/", _page("playground.html")),
        Route("/runs", _page("runs.html")),
        Route("/api/offered", offered),
        Route("/api/plan", _answering(playground.planned), methods=["POST"]),
        Route("/api/device", _answering(playground.device), methods=["POST"]),
        Route("/api/runs", overview),
        Route("/api/runs/{name:path}", run),
        Route("/api/events", events),
        Route("/report/{name:path}", report),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]
    handlers: Mapping[Any, Any] = {AirsplitError: _mistaken, HTTPException: _wrong}
    return Guard(Starlette(routes=routes, exception_handlers=handlers), rules)


def _page(name: str) -> Callable[[Request], Any]:
    async def page(request: Request) -> Response:  # noqa: ARG001
        return FileResponse(STATIC / name)

    return page


def _answering(compute: Callable[[Mapping[str, Any]], dict[str, Any]]) -> Callable[[Request], Any]:
    """A POST of JSON that is answered with JSON; the work is done off the event loop."""

    async def answer(request: Request) -> Response:
        if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            raise HTTPException(415, "send JSON, with its content type")
        try:
            asked = json.loads(await request.body())
        except (ValueError, RecursionError):
            raise HTTPException(400, "not valid JSON") from None
        except ClientDisconnect:
            raise HTTPException(413, "the request is too long") from None
        if not isinstance(asked, dict):
            raise HTTPException(400, "an object is wanted")
        return JSONResponse(await run_in_threadpool(compute, asked))

    return answer


async def _mistaken(request: Request, error: Exception) -> Response:  # noqa: ARG001
    """A user's mistake: said as everywhere, with the line of a CSV where it is about one."""
    line = {"line": error.line} if isinstance(error, playground.BadRow) else {}
    return JSONResponse({"error": str(error)} | line, status_code=404 if isinstance(error, UnknownName) else 422)


async def _wrong(request: Request, error: Exception) -> Response:  # noqa: ARG001
    assert isinstance(error, HTTPException)  # noqa: S101 - it is registered for these
    return JSONResponse({"error": error.detail}, status_code=error.status_code)
