"""TLS contexts of clients."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Iterator
from pathlib import Path


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


@contextlib.contextmanager
def _using(what: str, *paths: Path | str | None) -> Iterator[None]:
    """Add to an OSError of ``ssl`` the files, and what they should hold."""
    try:
        yield
    except OSError as error:
        files = " and ".join(str(path) for path in paths if path is not None)
        why = error.strerror or str(error)
        raise OSError(f"{files} cannot be used ({why}); name {what} in PEM") from error
