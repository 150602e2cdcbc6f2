"""Requests as they are passed on to another service."""

from __future__ import annotations

import ssl

import pytest

from mqstore.service.forwarding import ForwardedRequest
from mqstore.service.relay_connections import RelayConnections

SERVICE = RelayConnections("http://shard:8081/base/", ssl.create_default_context)


def test_a_request_has_its_headers_and_the_length_of_its_body() -> None:
    request = ForwardedRequest("POST", "/v1/transactions?a=b", {"authorization": "Bearer t"}, b"{}")
    assert request.encode(SERVICE) == (
        b"POST /base/v1/transactions?a=b HTTP/1.1\r\nhost: shard:8081\r\n"
        b"accept-encoding: identity\r\nauthorization: Bearer t\r\ncontent-length: 2\r\n\r\n{}"
    )


def test_a_get_has_no_length() -> None:
    assert b"content-length" not in ForwardedRequest("GET", "/healthz/live", {}).encode(SERVICE)


@pytest.mark.parametrize(
    "value", ["a\r\nauthorization: Bearer other", "a\nb: c", "a\rb", "a\0", "日本"]
)
def test_a_value_that_would_begin_another_header_is_refused(value: str) -> None:
    for request in (
        ForwardedRequest("DELETE", "/v1/x", {"x-mqstore-producer-secret": value}),
        ForwardedRequest("GET", f"/v1/{value}", {}),
    ):
        with pytest.raises(ValueError, match=r"cannot be passed on|latin-1"):
            request.encode(SERVICE)
