"""Whom the coordinator trusts, over handshakes with a real server."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest
import trustme

from mqstore.service.configuration_error import ConfigurationError
from mqstore.service.upstream import UpstreamTls


@pytest.fixture(scope="module")
def authorities() -> tuple[trustme.CA, trustme.CA]:
    return trustme.CA(), trustme.CA()


@contextmanager
def serving(authority: trustme.CA) -> Iterator[int]:
    """The port of a server whose certificate that authority signed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)

    def serve(listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with suppress(OSError), context.wrap_socket(connection, server_side=True) as agreed:
                    agreed.recv(1)

    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        thread = threading.Thread(target=serve, args=[listener])
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def connect(port: int, upstream: UpstreamTls) -> None:
    with socket.create_connection(("127.0.0.1", port)) as plain:
        upstream.context.wrap_socket(plain, server_hostname="127.0.0.1").close()


def replace(file: Path, content: bytes) -> None:
    new = file.with_suffix(".new")
    new.write_bytes(content)
    new.rename(file)


def test_a_changed_file_of_signers_counts_for_the_next_handshake(
    tmp_path: Path, authorities: tuple[trustme.CA, trustme.CA]
) -> None:
    one, two = authorities
    ca = tmp_path / "ca.crt"
    replace(ca, one.cert_pem.bytes())
    upstream = UpstreamTls(ca, None, None)
    with serving(two) as port:
        with pytest.raises(ssl.SSLCertVerificationError):
            connect(port, upstream)
        replace(ca, two.cert_pem.bytes())
        upstream.reload_if_changed()
        connect(port, upstream)
    with serving(one) as port:  # who has not got the new certificate yet
        connect(port, upstream)


def test_a_file_that_cannot_be_used_changes_nothing(
    tmp_path: Path, authorities: tuple[trustme.CA, trustme.CA]
) -> None:
    ca = tmp_path / "ca.crt"
    replace(ca, authorities[0].cert_pem.bytes())
    upstream = UpstreamTls(ca, None, None)
    replace(ca, b"half of a file")
    upstream.reload_if_changed()
    with serving(authorities[0]) as port:
        connect(port, upstream)
    with pytest.raises(ConfigurationError, match="upstreamCa"):
        UpstreamTls(ca, None, None)
