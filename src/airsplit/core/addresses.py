"""Classification of host names by their spelling; no name is resolved."""

from __future__ import annotations

import ipaddress


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine's loopback interface.

    >>> [is_loopback(host) for host in ("localhost", "127.0.0.9", "[::1]", "0.0.0.0", "pi.local")]
    [True, True, True, False, False]
    """
    # An IPv6 address before a port is in brackets: [::1]:7070.
    address = host
    if host.startswith("[") and host.endswith("]"):
        address = host[1:-1]
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def is_numeric(host: str) -> bool:
    """Return whether a host is an IP address instead of a name.

    >>> is_numeric("10.0.0.5"), is_numeric("::1"), is_numeric("pi.local")
    (True, True, False)
    """
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
