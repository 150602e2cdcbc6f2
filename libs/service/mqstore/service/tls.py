"""TLS of the listening socket: certificates by settings, read again when their files change.

A rotation (cert-manager, a Kubernetes Secret) is seen at the next handshake; connections that are
open go on. Files that do not fit each other yet leave the ones before in use.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final

from mqstore.service import logs
from mqstore.service.configuration_error import ConfigurationError
from mqstore.service.settings import Settings

log = logs.get(__name__)

Fingerprint = tuple[tuple[int, int, int], ...]
"""Of each file: modification time in ns, inode, size."""
_GONE: Final = (0, 0, 0)


class ServerTls:
    """One service's certificates. Used on the event loop only."""

    def __init__(self, cert: Path, key: Path, client_ca: Path | None) -> None:
        """Raises ConfigurationError for files that cannot be used."""
        self._files = [cert, key] + ([client_ca] if client_ca is not None else [])
        self._cert, self._key, self._client_ca = cert, key, client_ca
        self._seen = self._fingerprint()
        try:
            self._current = self._load()
            self.context: Final = self._load()
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                f"tlsCert, tlsKey or tlsClientCa cannot be used: {error}"
            ) from None
        # Called in every handshake, also of clients that name no host.
        self.context.sni_callback = self._choose

    @classmethod
    def of(cls, settings: Settings) -> ServerTls | None:
        """None without TLS. Raises ConfigurationError for a part of the settings."""
        cert, key, client_ca = settings.tls_cert, settings.tls_key, settings.tls_client_ca
        if cert is None and key is None and client_ca is None:
            return None
        if cert is None or key is None:
            raise ConfigurationError(
                "TLS needs tlsCert and tlsKey, both; tlsClientCa comes on top of them"
            )
        return cls(cert, key, client_ca)

    @property
    def needs_client_certificate(self) -> bool:
        return self._client_ca is not None

    def _choose(self, handshake: ssl.SSLObject, _: str | None, __: ssl.SSLContext) -> None:
        self._reload_if_changed()
        handshake.context = self._current

    def _reload_if_changed(self) -> None:
        found = self._fingerprint()
        if found == self._seen:
            return
        self._seen = found
        try:
            self._current = self._load()
        except (OSError, ValueError) as error:
            log.error("changed certificates cannot be used; the old ones are", error=str(error))
        else:
            log.info("certificates read again", path=str(self._cert))

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self._cert, self._key)
        if self._client_ca is not None:
            context.load_verify_locations(self._client_ca)
            # Whoever has none is told so by an answer, and probes need none.
            context.verify_mode = ssl.CERT_OPTIONAL
        return context

    def _fingerprint(self) -> Fingerprint:
        return tuple(fingerprint_of(path) for path in self._files)


def fingerprint_of(path: Path) -> tuple[int, int, int]:
    """What changes with the file."""
    try:
        found = path.stat()
    except OSError:
        return _GONE
    return found.st_mtime_ns, found.st_ino, found.st_size
