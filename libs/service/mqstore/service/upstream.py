"""Who signed the certificates of other services: ``upstreamCa``, read again when it changes."""

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

LOOK_S: Final = 1.0

log = logs.get(__name__)


class UpstreamTls:
    """Used on the event loop only, but for ``context``, which any thread may connect with.

    Whom a changed file names is trusted from then on, also by clients that have the context
    already; whom it named before, until the process ends.
    """

    def __init__(self, ca: Path, certificate: Path | None, key: Path | None) -> None:
        """Raises ConfigurationError for files that cannot be used."""
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
        """None where the system's authorities are trusted. Raises ConfigurationError."""
        ca = settings.upstream_ca
        return None if ca is None else cls(ca, settings.tls_cert, settings.tls_key)

    async def follow(self) -> None:
        """Look again and again."""
        while True:
            await asyncio.sleep(LOOK_S)
            self.reload_if_changed()

    def reload_if_changed(self) -> None:
        found = fingerprint_of(self._ca)
        if found == self._seen:
            return
        self._seen = found
        try:
            self.context.load_verify_locations(self._ca)
        except OSError as error:
            log.error("the changed upstreamCa cannot be used; the old one is", error=str(error))
        else:
            log.info("upstreamCa read again", path=str(self._ca))
