"""The TLS context of a client that was given none."""

from __future__ import annotations

import ssl

from mqstore.client.tls import default_context, public_authorities


def test_a_client_without_an_https_address_trusts_no_server() -> None:
    found = default_context(["http://127.0.0.1:8081", "http://https.example"])
    assert found.verify_mode is ssl.CERT_REQUIRED
    assert found.get_ca_certs() == []


def test_a_client_with_an_https_address_trusts_the_public_authorities() -> None:
    found = default_context(["http://127.0.0.1:8081", "HTTPS://query.example"])
    assert found is public_authorities(trust_env=True)
