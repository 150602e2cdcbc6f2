"""The CA bundle for other services' addresses: ``upstreamCa``, read again when it changes."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Final

from mqstore.client import make_tls_context
from mqstore.service import logs
from mqstore.service.configuration_error import ConfigurationError
from mqstore.service.settings import Settings
from mqstore.service.tls import fingerprint_of

RELOAD_INTERVAL_S: Final = 1.0

log = logs.get(__name__)


class UpstreamTls:
    """The TLS context for connections to other services.

    The CAs of a changed file are trusted at once, also by clients that hold the context already.
    CAs that are no longer in the file stay trusted until the process ends. Used on the event loop
    only, except ``context``, which any thread may connect with.
    """

    def __init__(self, ca: Path, certificate: Path | None, key: Path | None) -> None:
        """Load the files. Raises ConfigurationError for unreadable or invalid ones."""
        self._ca = ca
        self._seen = fingerprint_of(ca)
        try:
            self.context: Final[ssl.SSLContext] = make_tls_context(ca, certificate, key)
        except OSError as error:
            raise ConfigurationError(
                f"upstreamCa, tlsCert or tlsKey cannot be used: {error}"
            ) from None

    @classmethod
    def of(cls, settings: Settings) -> UpstreamTls | None:
        """Build it from the settings; None without ``upstreamCa``: the system's CAs are trusted.

        Raises ConfigurationError.
        """
        ca = settings.upstream_ca
        return None if ca is None else cls(ca, settings.tls_cert, settings.tls_key)

    async def watch(self) -> None:
        """Reload the file when it changes, until cancelled."""
        while True:
            await asyncio.sleep(RELOAD_INTERVAL_S)
            self.reload_if_changed()

    def reload_if_changed(self) -> None:
        """Reload the file if it changed; an invalid file has no effect."""
        found = fingerprint_of(self._ca)
        if found == self._seen:
            return
        self._seen = found
        try:
            self.context.load_verify_locations(self._ca)
        except OSError as error:
            log.error("the changed upstreamCa is invalid; the old one stays", error=str(error))
        else:
            log.info("upstreamCa read again", path=str(self._ca))
