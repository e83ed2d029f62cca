"""The web application: pages, the planner and the runs, each behind an address."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import (
    FileResponse,
    HTMLResponse,
    JSONResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from airsplit.core import palette
from airsplit.core.errors import AirsplitError, FileProblem
from airsplit.core.parsing import parse_json
from airsplit.dashboard import playground
from airsplit.dashboard.access import AccessControl, AccessRules
from airsplit.dashboard.events import Watcher
from airsplit.dashboard.live_runs import LiveRuns, NoSuchRun
from airsplit.report.page import POLICY as REPORT_POLICY

STATIC = Path(__file__).parent / "static"
MOST_SHOWN = 8  # runs that one page watches
PLANS_AT_A_TIME = 2  # more would keep each other waiting


def make_app(runs: LiveRuns, watcher: Watcher, rules: AccessRules) -> ASGIApp:
    """The application for the runs in a folder."""

    async def events(request: Request) -> Response:
        if watcher.is_full:
            return JSONResponse({"error": "too many pages are open"}, status_code=503)
        names = request.query_params.getlist("run")[:MOST_SHOWN]
        return StreamingResponse(watcher.listen(names), media_type="text/event-stream")

    async def run(request: Request) -> Response:
        name = request.query_params.get("run", "")
        return Response(
            await run_in_threadpool(lambda: runs.run(name).series()), media_type="application/json"
        )

    async def report(request: Request) -> Response:
        name = request.query_params.get("run", "")
        text = await run_in_threadpool(lambda: runs.run(name).report())
        return HTMLResponse(
            text, headers={"content-security-policy": REPORT_POLICY + "; frame-ancestors 'none'"}
        )

    async def overview(request: Request) -> Response:  # noqa: ARG001
        return JSONResponse(await run_in_threadpool(runs.overview))

    async def offered(request: Request) -> Response:  # noqa: ARG001
        return JSONResponse(await run_in_threadpool(playground.list_choices))

    async def palette_css(request: Request) -> Response:  # noqa: ARG001
        css = palette.format_css(
            palette.DASHBOARD_LIGHT, palette.DASHBOARD_DARK, palette.DASHBOARD_ROLES
        )
        return Response(css, media_type="text/css")

    planning = asyncio.Semaphore(PLANS_AT_A_TIME)
    routes = [
        Route("/", _page("playground.html")),
        Route("/runs", _page("runs.html")),
        Route("/palette.css", palette_css),
        Route("/api/offered", offered),
        Route("/api/plan", _answering(playground.plan_request, planning), methods=["POST"]),
        Route("/api/runs", overview),
        Route("/api/run", run),
        Route("/api/events", events),
        Route("/report", report),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]

    async def mistaken(request: Request, error: Exception) -> Response:  # noqa: ARG001
        """A user's mistake: said as everywhere, with the line of a CSV where it is about one."""
        line = {"line": error.line} if isinstance(error, playground.BadRow) else {}
        return JSONResponse(
            {"error": runs.problem(error)} | line,
            status_code=404 if isinstance(error, NoSuchRun) else 422,
        )

    handlers: Mapping[Any, Any] = {AirsplitError: mistaken, HTTPException: _wrong}
    return AccessControl(Starlette(routes=routes, exception_handlers=handlers), rules)


def _page(name: str) -> Callable[[Request], Any]:
    async def page(request: Request) -> Response:  # noqa: ARG001
        return FileResponse(STATIC / name)

    return page


def _answering(
    compute: Callable[[Mapping[str, Any]], dict[str, Any]], planning: asyncio.Semaphore
) -> Callable[[Request], Any]:
    """A POST of JSON that is answered with JSON; the work is done off the event loop."""

    async def answer(request: Request) -> Response:
        if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            raise HTTPException(415, "send JSON, with its content type")
        try:
            asked = parse_json((await request.body()).decode(), "the request")
        except (FileProblem, UnicodeDecodeError):
            raise HTTPException(400, "not valid JSON") from None
        except ClientDisconnect:
            raise HTTPException(413, "the request is too long") from None
        if not isinstance(asked, dict):
            raise HTTPException(400, "an object is wanted")
        try:
            async with planning:
                return JSONResponse(await run_in_threadpool(_quietly, compute, asked))
        except AirsplitError:
            raise
        except (ArithmeticError, ValueError, RecursionError) as error:
            raise HTTPException(
                422, f"these numbers are beyond what can be planned ({type(error).__name__})"
            ) from None

    return answer


def _quietly(
    compute: Callable[[Mapping[str, Any]], dict[str, Any]], asked: Mapping[str, Any]
) -> dict[str, Any]:
    """Numbers that overflow are no warning here: what comes of them is refused."""
    with np.errstate(all="ignore"):
        return compute(asked)


async def _wrong(request: Request, error: Exception) -> Response:  # noqa: ARG001
    assert isinstance(error, HTTPException)  # noqa: S101 - it is registered for these
    return JSONResponse({"error": error.detail}, status_code=error.status_code)
