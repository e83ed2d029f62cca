"""Addresses of computers, as far as their spelling tells: no name is looked up."""

from __future__ import annotations

import ipaddress


def is_loopback(host: str) -> bool:
    """Whether a host is this computer itself.

    >>> [is_loopback(host) for host in ("localhost", "127.0.0.9", "[::1]", "0.0.0.0", "pi.local")]
    [True, True, True, False, False]
    """
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    try:
        return ipaddress.ip_address(bare).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def is_numeric(host: str) -> bool:
    """Whether a host is an address in numbers.

    >>> is_numeric("10.0.0.5"), is_numeric("::1"), is_numeric("pi.local")
    (True, True, False)
    """
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
