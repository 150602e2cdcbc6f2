"""TLS of the listening socket: certificate files, read again when they change.

A rotation (by cert-manager, or of a Kubernetes Secret) takes effect at the next handshake; open
connections continue. While certificate and key do not match yet, the previous ones stay in use.
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
"""Modification time in ns, inode and size of each file."""
_ABSENT: Final = (0, 0, 0)


class ServerTls:
    """The TLS context of a service. Used on the event loop only."""

    def __init__(
        self,
        cert: Path,
        key: Path,
        client_ca: Path | None,
        *,
        # A client without one gets a problem instead of a TLS alert, and probes need none.
        client_certificate: ssl.VerifyMode = ssl.CERT_OPTIONAL,
        names: str = "tlsCert, tlsKey or tlsClientCa",
    ) -> None:
        """Load the files, of settings with these ``names``. ``client_certificate`` is needed with
        ``client_ca``. Raises ConfigurationError for unreadable or invalid ones."""
        self._files = [cert, key] + ([client_ca] if client_ca is not None else [])
        self._cert, self._key, self._client_ca = cert, key, client_ca
        self._client_certificate = client_certificate
        self._seen = self._fingerprint()
        try:
            self._current = self._load()
            self.context: Final = self._load()
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"{names} cannot be used: {error}") from None
        # Called in every handshake, also of clients that name no host.
        self.context.sni_callback = self._choose

    @classmethod
    def of(cls, settings: Settings) -> ServerTls | None:
        """Build it from the settings; None without TLS. Raises ConfigurationError."""
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
        """Whether clients must present a certificate, except for health and metrics."""
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
            log.error("changed certificates are invalid; the old ones stay", error=str(error))
        else:
            log.info("certificates read again", path=str(self._cert))

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self._cert, self._key)
        if self._client_ca is not None:
            context.load_verify_locations(self._client_ca)
            context.verify_mode = self._client_certificate
        return context

    def _fingerprint(self) -> Fingerprint:
        return tuple(fingerprint_of(path) for path in self._files)


def fingerprint_of(path: Path) -> tuple[int, int, int]:
    """Return values that change when a file is replaced or rewritten."""
    try:
        found = path.stat()
    except OSError:
        return _ABSENT
    return found.st_mtime_ns, found.st_ino, found.st_size
