"""The web application: which address leads to which page, plan or run."""

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
from airsplit.dashboard.event_stream import Watcher
from airsplit.dashboard.live_runs import LiveRuns, NoSuchRun
from airsplit.dashboard.plan_request import BadRow
from airsplit.report.page import POLICY as REPORT_POLICY

STATIC = Path(__file__).parent / "static"
# More runs in one page would make every look at them slow.
MAX_RUNS_PER_PAGE = 8
# More plans at a time would only slow each other down.
MAX_CONCURRENT_PLANS = 2


def make_app(runs: LiveRuns, watcher: Watcher, rules: AccessRules) -> ASGIApp:
    """Return the application for the runs in a folder."""

    async def stream_events(request: Request) -> Response:
        if watcher.is_full:
            return JSONResponse({"error": "too many pages are open"}, status_code=503)
        names = request.query_params.getlist("run")[:MAX_RUNS_PER_PAGE]
        return StreamingResponse(watcher.listen(names), media_type="text/event-stream")

    async def show_run(request: Request) -> Response:
        name = request.query_params.get("run", "")
        series = await run_in_threadpool(lambda: runs.run(name).series())
        return Response(series, media_type="application/json")

    async def show_report(request: Request) -> Response:
        name = request.query_params.get("run", "")
        text = await run_in_threadpool(lambda: runs.run(name).report())
        # A report has its own policy in a meta element, but that cannot forbid framing.
        policy = f"{REPORT_POLICY}; frame-ancestors 'none'"
        return HTMLResponse(text, headers={"content-security-policy": policy})

    async def list_runs(request: Request) -> Response:  # noqa: ARG001
        return JSONResponse(await run_in_threadpool(runs.overview))

    async def list_choices(request: Request) -> Response:  # noqa: ARG001
        return JSONResponse(await run_in_threadpool(playground.list_choices))

    async def serve_palette(request: Request) -> Response:  # noqa: ARG001
        css = palette.format_css(
            palette.DASHBOARD_LIGHT, palette.DASHBOARD_DARK, palette.DASHBOARD_ROLES
        )
        return Response(css, media_type="text/css")

    async def explain_error(request: Request, error: Exception) -> Response:  # noqa: ARG001
        """Return a user's mistake in words, with the line of the CSV that it is in."""
        content: dict[str, Any] = {"error": runs.problem(error)}
        if isinstance(error, BadRow):
            content["line"] = error.line
        status = 404 if isinstance(error, NoSuchRun) else 422
        return JSONResponse(content, status_code=status)

    # Everything that reads files or computes runs in threads, so that events keep flowing.
    slots = asyncio.Semaphore(MAX_CONCURRENT_PLANS)
    routes = [
        Route("/", _serve_page("playground.html")),
        Route("/runs", _serve_page("runs.html")),
        Route("/report", show_report),
        Route("/palette.css", serve_palette),
        Route("/api/choices", list_choices),
        Route("/api/plan", serve_json(playground.answer_request, slots), methods=["POST"]),
        Route("/api/runs", list_runs),
        Route("/api/run", show_run),
        Route("/api/events", stream_events),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]
    handlers: Mapping[Any, Any] = {AirsplitError: explain_error, HTTPException: show_http_error}
    return AccessControl(Starlette(routes=routes, exception_handlers=handlers), rules)


def _serve_page(name: str) -> Callable[[Request], Any]:
    async def show_page(request: Request) -> Response:  # noqa: ARG001
        return FileResponse(STATIC / name)

    return show_page


def serve_json(
    compute: Callable[[Mapping[str, Any]], dict[str, Any]], slots: asyncio.Semaphore
) -> Callable[[Request], Any]:
    """Return a handler that answers a JSON object with another, computed in a thread.

    Args:
        compute: Function from the request's object to the response's.
        slots: Limits how many requests are computed at a time; others wait.
    """

    async def respond(request: Request) -> Response:
        content = await _read_object(request)
        try:
            async with slots:
                return JSONResponse(await run_in_threadpool(compute_quietly, compute, content))
        except AirsplitError:
            raise
        except (ArithmeticError, ValueError, RecursionError) as error:
            # Numbers that pass every check can still overflow together.
            kind = type(error).__name__
            raise HTTPException(422, f"these numbers cannot be planned with ({kind})") from None

    return respond


async def _read_object(request: Request) -> dict[str, Any]:
    content_type = request.headers.get("content-type", "").partition(";")[0].strip()
    # A form of another site can send other types without asking the server first.
    if content_type != "application/json":
        raise HTTPException(415, "the content type must be application/json")
    try:
        content = parse_json((await request.body()).decode(), "the request")
    except (FileProblem, UnicodeDecodeError):
        raise HTTPException(400, "the request is not valid JSON") from None
    except ClientDisconnect:
        raise HTTPException(413, "the request is too long") from None
    if not isinstance(content, dict):
        raise HTTPException(400, "the request must be a JSON object")
    return content


def compute_quietly(
    compute: Callable[[Mapping[str, Any]], dict[str, Any]], content: Mapping[str, Any]
) -> dict[str, Any]:
    """Compute without warnings about overflow: results that are not finite are rejected."""
    # Inside the thread, since numpy's settings may not follow a call into another one.
    with np.errstate(all="ignore"):
        return compute(content)


async def show_http_error(request: Request, error: Exception) -> Response:  # noqa: ARG001
    """Return a status with its reason as JSON, like all other errors, not as plain text."""
    assert isinstance(error, HTTPException)  # noqa: S101 - registered only for these
    return JSONResponse({"error": error.detail}, status_code=error.status_code)
