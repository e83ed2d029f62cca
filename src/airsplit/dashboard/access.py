"""Access control: who may send which requests to the dashboard.

A web page anywhere can make a visitor's browser send requests to loopback, under any name that it
points there (DNS rebinding). So the Host header must be a name of this server, and an Origin header
must be the server's own.
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

MAX_BODY_BYTES = 8 << 20
# Pages run only scripts of this server, and none that is written into a page.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# Sent with every response: no other site may embed or read it, and no cache keep it.
HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
CROSS_SITE = "requests from pages of other servers are rejected, except links that a user follows"


@dataclass(frozen=True)
class AccessRules:
    """Rules that a request must satisfy.

    Attributes:
        names: Names of the server in lower case, besides localhost and numeric addresses. No other
            name is accepted, since anybody can point one at this address.
        token: A secret that requests must know; None on loopback.
    """

    names: tuple[str, ...] = ()
    token: str | None = None

    def reject(self, headers: Headers, method: str = "GET") -> str | None:
        """Return why a request is rejected; None if it is not."""
        host = headers.get("host", "")
        if not self.is_own_name(host):
            return (
                f"this server does not go by the name {host[:100]!r}; "
                "open it by its address, or start it with --name"
            )
        # Browsers send an Origin with every POST, and forms of other sites cannot change it.
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2] != host:
            return CROSS_SITE

        # Browsers say where a request comes from. A link in a mail is harmless: it opens a page,
        # and the other site sees nothing of it.
        is_followed_link = (
            method == "GET"
            and headers.get("sec-fetch-mode") == "navigate"
            and headers.get("sec-fetch-dest") == "document"
        )
        site = headers.get("sec-fetch-site", "same-origin")
        if site not in ("same-origin", "none") and not is_followed_link:
            return CROSS_SITE
        return None

    def is_own_name(self, host: str) -> bool:
        """Return whether a Host header names this server, with or without a port.

        >>> rules = AccessRules(("lab.local",))
        >>> rules.is_own_name("lab.local.:8000"), rules.is_own_name("[::1]:8000")
        (True, True)
        >>> rules.is_own_name("example.com")
        False
        """
        try:
            name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
        except ValueError:
            # As of an IPv6 address without its closing bracket.
            return False
        return name == "localhost" or name in self.names or is_numeric(name)

    def accepts(self, token: str | None) -> bool:
        """Return whether a token is right, in a time that does not depend on where it differs."""
        if self.token is None:
            return True
        return token is not None and hmac.compare_digest(token.encode(), self.token.encode())


class AccessControl:
    """An application that rejects requests before another one sees them."""

    def __init__(self, app: ASGIApp, rules: AccessRules) -> None:
        self._app = app
        self._rules = rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            # 1008: policy violation. There are no web sockets here.
            await send({"type": "websocket.close", "code": 1008})
            return
        response = self._check(Request(scope)) or _LimitedApp(self._app)
        await response(scope, receive, add_security_headers(send))

    def _check(self, request: Request) -> Response | None:
        """Return the response to a request that the application must not see."""
        reason = self._rules.reject(request.headers, request.method)
        if reason is not None:
            return JSONResponse({"error": reason}, status_code=403)
        if request.method not in ("GET", "HEAD", "POST"):
            return JSONResponse({"error": "only GET and POST are supported"}, status_code=405)

        token = request.query_params.get("token")
        if token is not None and self._rules.token is not None and self._rules.accepts(token):
            return move_token_to_cookie(request, token)
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            token = request.cookies.get(_cookie_name(request))
        if not self._rules.accepts(token):
            return JSONResponse(
                {"error": "a token is needed: open the address that airsplit dashboard printed"},
                status_code=401,
                headers={"www-authenticate": "Bearer"},
            )
        return None


def move_token_to_cookie(request: Request, token: str) -> Response:
    """Redirect to the same address without the token, so that nobody shares it with a link."""
    clean = request.url.remove_query_params("token")
    # Two slashes would lead to another server.
    address = "/" + clean.path.lstrip("/")
    if clean.query:
        address += f"?{clean.query}"
    response = RedirectResponse(address, status_code=303)
    response.set_cookie(_cookie_name(request), token, httponly=True, samesite="lax", path="/")
    return response


def _cookie_name(request: Request) -> str:
    """Return a name per port, since all servers of a host share its cookies."""
    _, port = request.scope.get("server") or ("", 0)
    return f"airsplit-token-{port}"


class _LimitedApp:
    """An application that never sees more than MAX_BODY_BYTES of a request."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        length = Headers(scope=scope).get("content-length")
        if length is not None and (not length.isdigit() or int(length) > MAX_BODY_BYTES):
            error = f"a request has at most {MAX_BODY_BYTES:,} bytes"
            response = JSONResponse({"error": error}, status_code=413)
            await response(scope, receive, send)
            return

        # A body sent in chunks has no length beforehand.
        received = 0

        async def receive_limited() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > MAX_BODY_BYTES:
                # To the application, as if the sender had gone.
                return {"type": "http.disconnect"}
            return message

        await self._app(scope, receive_limited, send)


def add_security_headers(send: Send) -> Send:
    """Add the security headers to every response that does not set its own."""

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers.setdefault("content-security-policy", POLICY)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return send_with_headers
