"""Who may talk to the dashboard: requests that name this server, come from its own pages, and know the token where there is one.

A web page anywhere can make a visitor's browser send requests to loopback, under any name that it points there (DNS rebinding).  So the
Host header must be one that this server goes by, and where there is an Origin, it must be the server's own.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from airsplit.core.addresses import is_numeric

MOST_BODY_BYTES = 8 << 20
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
ELSEWHERE = "requests from pages of other servers are refused; a link that is followed is not"


@dataclass(frozen=True)
class AccessRules:
    """What a request must satisfy.

    names   that the server goes by, in small letters, besides localhost and addresses in numbers: a name that somebody else owns could be
            made to lead here
    token   a secret, or None on loopback
    """

    names: tuple[str, ...] = ()
    token: str | None = None

    def refuse(self, headers: Headers, method: str = "GET") -> str | None:
        """Why a request is refused, or None."""
        host = headers.get("host", "")
        if not self._is_ours(host):
            return f"this server does not go by the name {host[:100]!r}; open it by its address, or start it with --name"
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2] != host:
            return ELSEWHERE
        followed = (
            method == "GET"
            and headers.get("sec-fetch-mode") == "navigate"
            and headers.get("sec-fetch-dest") == "document"
        )
        if (
            headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none")
            and not followed
        ):
            return ELSEWHERE
        return None

    def _is_ours(self, host: str) -> bool:
        try:
            name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
        except ValueError:
            return False
        return name == "localhost" or name in self.names or is_numeric(name)

    def knows(self, given: str | None) -> bool:
        """Whether the token is right; takes as long whatever is wrong with it."""
        return self.token is None or (
            given is not None and hmac.compare_digest(given.encode(), self.token.encode())
        )


class AccessControl:
    """Stands before the application."""

    def __init__(self, app: ASGIApp, rules: AccessRules) -> None:
        self._app, self._rules = app, rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        request = Request(scope)
        answer = self._answer(request)
        await (answer or _Limited(self._app))(scope, receive, _with_headers(send))

    def _answer(self, request: Request) -> Response | None:
        """What is said in place of the application's answer."""
        if why := self._rules.refuse(request.headers, request.method):
            return JSONResponse({"error": why}, status_code=403)
        if request.method not in ("GET", "HEAD", "POST"):
            return JSONResponse({"error": "only GET and POST are known here"}, status_code=405)
        given = request.query_params.get("token")
        if given is not None and self._rules.token is not None and self._rules.knows(given):
            clean = request.url.remove_query_params("token")
            path = "/" + clean.path.lstrip("/")  # two slashes would lead to another server
            answer = RedirectResponse(
                f"{path}?{clean.query}" if clean.query else path, status_code=303
            )
            answer.set_cookie(_cookie(request), given, httponly=True, samesite="lax", path="/")
            return answer
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        if not self._rules.knows(
            bearer if scheme.lower() == "bearer" else request.cookies.get(_cookie(request))
        ):
            why = "a token is needed: open the address that airsplit dashboard printed"
            return JSONResponse(
                {"error": why}, status_code=401, headers={"www-authenticate": "Bearer"}
            )
        return None


def _cookie(request: Request) -> str:
    """Cookies do not know ports: each server of a host has one of its own."""
    return f"airsplit-token-{(request.scope.get('server') or ('', 0))[1]}"


class _Limited:
    """An application that never sees more than so many bytes of a request."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        length = Headers(scope=scope).get("content-length")
        if length is not None and (not length.isdigit() or int(length) > MOST_BODY_BYTES):
            await JSONResponse(
                {"error": f"a request has at most {MOST_BODY_BYTES:,} bytes"}, status_code=413
            )(scope, receive, send)
            return
        seen = 0

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            return {"type": "http.disconnect"} if seen > MOST_BODY_BYTES else message

        await self._app(scope, counted, send)


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers.setdefault("content-security-policy", POLICY)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return sending
