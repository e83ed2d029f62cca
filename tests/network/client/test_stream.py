"""What a broken connection is told as."""

from __future__ import annotations

import grpc
import pytest

from airsplit.network.client.stream import Lost, Rejected, told


class Broken(grpc.RpcError):
    """As gRPC raises it."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        self._code, self._details = code, details

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return self._details


@pytest.mark.parametrize(
    ("details", "words"),
    [
        (
            "failed to connect to all addresses; last error: UNAVAILABLE: ipv4:127.0.0.1:7070: Socket closed",
            "it closes the connection at once; is this airsplit serve, and is it the only thing on this port?",
        ),
        (
            "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:7071: Connection refused",
            "nobody listens there; is airsplit serve running, and is this its address and port?",
        ),
        ("failed to connect to all addresses; last error: something else", "something else"),
        (
            "failed to connect: TSI_PROTOCOL_FAILURE: SSL_ERROR_SSL: error:100000f7:SSL routines:OPENSSL_internal:WRONG_VERSION_NUMBER",
            "it speaks plain text, and this device TLS; leave --identity out here, or give the server one",
        ),
        ("Something\nelse", "Something else"),
        ("", "StatusCode.UNAVAILABLE"),
    ],
)
def test_a_server_that_cannot_be_reached_is_tried_again_and_told_why(
    details: str, words: str
) -> None:
    found = told(Broken(grpc.StatusCode.UNAVAILABLE, details))
    assert isinstance(found, Lost)
    assert str(found) == words


def test_a_refusal_is_final() -> None:
    found = told(Broken(grpc.StatusCode.PERMISSION_DENIED, "revoked"))
    assert isinstance(found, Rejected)
    assert str(found) == "the server refuses: revoked"
