"""TLS contexts of clients."""

from __future__ import annotations

import contextlib
import functools
import ssl
from collections.abc import Iterable, Iterator
from pathlib import Path

import httpx


def make_tls_context(
    ca: Path | str, certificate: Path | str | None = None, key: Path | str | None = None
) -> ssl.SSLContext:
    """Build the TLS context of a client from PEM files.

    ``ca`` holds the CA certificates, or the servers' own. ``certificate`` and ``key`` are the
    client's own, for servers that require one. Raises OSError, which names the unusable files.
    """
    with _using("a file of CA certificates", ca):
        context = ssl.create_default_context(cafile=str(ca))
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as by default from Python 3.13 on
    if certificate is not None:
        with _using("files of a certificate and its key", certificate, key):
            context.load_cert_chain(certificate, key)
    return context


def default_context(urls: Iterable[str]) -> ssl.SSLContext:
    """Return the context of a client that was given none.

    Without an https address it trusts no server: no handshake needs one, and the public
    authorities take long to read.
    """
    if any(url.lower().startswith("https:") for url in urls):
        return public_authorities(trust_env=True)
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


@functools.cache
def public_authorities(*, trust_env: bool) -> ssl.SSLContext:
    """Return the context that trusts the authorities that httpx trusts by default.

    It is made once in a process, as their reading takes 35 ms of CPU: do not change it.
    ``trust_env``: SSL_CERT_FILE and SSL_CERT_DIR name other authorities.
    """
    return httpx.create_ssl_context(trust_env=trust_env)


@contextlib.contextmanager
def _using(what: str, *paths: Path | str | None) -> Iterator[None]:
    """Add to an OSError of ``ssl`` the files, and what they should hold."""
    try:
        yield
    except OSError as error:
        files = " and ".join(str(path) for path in paths if path is not None)
        why = error.strerror or str(error)
        raise OSError(f"{files} cannot be used ({why}); name {what} in PEM") from error
