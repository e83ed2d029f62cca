"""Why a server cannot be reached, from what gRPC says and, where that leaves it open, from a look at the address."""

from __future__ import annotations

import ipaddress
import os
import re
import socket
import ssl
from collections.abc import Mapping
from contextlib import suppress
from urllib.parse import urlsplit

from airsplit.core.addresses import is_loopback
from airsplit.network.identity.admission import split_address

LOOK_S = 3.0
"""How long a look at an address may take."""

_GRPC_PREFIX = "failed to connect to all addresses; last error: "

# What gRPC says, as a pattern, and what that means: the first that fits counts.
_MEANT = {
    r"unable to get (local )?issuer|self.signed": (
        "its certificate is not of this device's authority; take the identity that the server's own folder has for this device"
    ),
    r"certificate has expired": "its certificate has expired; on the server: airsplit identity init --renew",
    r"Peer name|[Hh]ostname [Vv]erification": (
        "its certificate is not for this host; on the server: airsplit identity init --renew --host HOST, "
        "with the name or address that devices use"
    ),
    r"CERTIFICATE_VERIFY_FAILED": "its certificate cannot be believed; is the identity of the server's own folder?",
    r"WRONG_VERSION_NUMBER": (
        "it speaks plain text, and this device TLS; leave --identity out here, or give the server one"
    ),
    r"(?:HTTP status|with status:) (\d+)": (
        "what answers there is a web server or a proxy (HTTP status {}), not airsplit serve; is the port right?"
    ),
    r"http1\.x server|Failed parsing HTTP/2": "what answers there is not airsplit serve; is the port right?",
    r"Connection refused": "nobody listens there; is airsplit serve running, and is this its address and port?",
    r"errors resolving|lookup failed|DNS resolution failed": "its name cannot be resolved; is it spelt right?",
    r"No route to host|[Nn]etwork is unreachable|timed? ?out": (
        "there is no answer; is the address right, is the machine on and in this network, and does its firewall let the port through?"
    ),
}

# Also said of a server that was stopped, and of one that wants TLS.
_CLOSED = (
    r"Socket closed|Connection reset|Handshake read failed|Broken pipe|GOAWAY|Cancelling all calls"
)


def explain(
    details: str, address: str = "", *, is_secured: bool = False, was_connected: bool = False
) -> str:
    """Return why a call has failed, and what to do.

    Args:
        details: What gRPC says.
        address: Where the server was dialled; "" if that is not to be looked at.
        is_secured: Whether this side speaks TLS.
        was_connected: Whether the server has answered on this connection before.

    >>> explain("ipv4:127.0.0.1:7070: Connection refused")
    'nobody listens there; is airsplit serve running, and is this its address and port?'
    """
    proxy = find_proxy(address) if address else None
    refused_by_proxy = re.search(r"HTTP proxy returned response code (\d+)", details)
    why = _meaning(details)
    if why is None and re.search(_CLOSED, details):
        why = _why_closed("" if proxy else address, is_secured, was_connected)
    elif why is None:
        why = details.removeprefix(_GRPC_PREFIX)
    if proxy is None:
        return why
    variable, url = proxy
    past = f"to connect without it: no_proxy={split_address(address)[0]}, in the environment"
    if refused_by_proxy:
        return f"the proxy {url}, which {variable} names, does not let it through (HTTP status {refused_by_proxy[1]}); {past}"
    if re.search("Connection refused|errors resolving|lookup failed", details):
        return f"the proxy {url}, which {variable} names, cannot be reached; {past}"
    return f"{why} (it was dialled through the proxy {url}, which {variable} names; {past})"


def _meaning(details: str) -> str | None:
    for pattern, meaning in _MEANT.items():
        if found := re.search(pattern, details):
            return meaning.format(*found.groups())
    return None


def _why_closed(address: str, is_secured: bool, was_connected: bool) -> str:
    if was_connected:
        return "the connection broke; the server has stopped, or the network is gone"
    speaks_tls = bool(address) and _speaks_tls(*split_address(address))
    if speaks_tls and is_secured:
        return (
            "it closes the connection; is this device's certificate of the server's own authority?"
        )
    if speaks_tls:
        return "it speaks TLS, and this device plain text; give --identity"
    return "it closes the connection at once; is this airsplit serve, and is it the only thing on this port?"


def _speaks_tls(host: str, port: int) -> bool:
    """Return whether a server answers a TLS handshake, whatever its certificate."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # nothing is sent or believed
    context.set_alpn_protocols(["h2"])
    try:
        with (
            socket.create_connection((host, port), timeout=LOOK_S) as plain,
            context.wrap_socket(plain),
        ):
            return True
    except ssl.SSLEOFError:
        return False
    except ssl.SSLError as error:
        return error.reason != "WRONG_VERSION_NUMBER"
    except OSError:
        return False


def find_proxy(address: str, environment: Mapping[str, str] = os.environ) -> tuple[str, str] | None:
    """Return the variable that makes gRPC dial an address through a proxy, and the proxy without its password; None if none does.

    >>> find_proxy("10.0.0.5:7070", {"http_proxy": "http://me:secret@proxy:3128"})
    ('http_proxy', 'http://proxy:3128')
    >>> find_proxy("10.0.0.5:7070", {"http_proxy": "http://proxy:3128", "no_proxy": "localhost,10.0.0.0/8"}) is None
    True
    """
    host, _ = split_address(address)
    variable = next(
        (name for name in ("grpc_proxy", "https_proxy", "http_proxy") if environment.get(name)),
        None,
    )
    if variable is None or is_loopback(host):  # which is always dialled directly
        return None
    exceptions = environment.get("no_grpc_proxy") or environment.get("no_proxy") or ""
    if any(_is_within(host, each.strip()) for each in exceptions.split(",") if each.strip()):
        return None
    url = urlsplit(environment[variable])
    return variable, url._replace(netloc=url.netloc.rpartition("@")[2]).geturl()


def _is_within(host: str, exception: str) -> bool:
    with suppress(ValueError):
        return ipaddress.ip_address(host) in ipaddress.ip_network(exception, strict=False)
    return host.endswith(exception)
