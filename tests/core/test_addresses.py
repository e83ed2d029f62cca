"""Addresses: loopback is recognized by its spelling alone."""

from __future__ import annotations

import pytest

from airsplit.core.addresses import is_loopback


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.8.9.1", "::1", "[::1]", "localhost", "LOCALHOST"]
)
def test_loopback_is_recognized_by_its_spelling(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host",
    [
        "",
        "0.0.0.0",  # noqa: S104
        "::",
        "10.0.0.1",
        "localhost.example.org",
        "127.0.0.1.example.org",
        "127.1",
        "[::1",
        "[localhost]",
        "pi",
    ],
)
def test_any_other_host_is_not_loopback(host: str) -> None:
    assert not is_loopback(host)
