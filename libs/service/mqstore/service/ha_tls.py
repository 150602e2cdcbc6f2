"""TLS between a leader and its followers: each shows a certificate of one authority.

Host names are not compared, as replicas know each other by addresses that change: every certificate
of the authority admits to the log. One that names a replica proves that name to its leader, where
there is no secret (``ha_proof``). RocketMQ's HA protocol has no TLS.
"""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Final

from mqstore.service.configuration_error import ConfigurationError
from mqstore.service.settings import Settings
from mqstore.service.tls import ServerTls

NAMES: Final = "haTlsCert, haTlsKey or haTlsCa"


class HaTls:
    """The certificates of one replica. Used on the event loop only."""

    def __init__(self, cert: Path, key: Path, authority: Path) -> None:
        """Load the files. Raises ConfigurationError for unreadable or invalid ones."""
        self._cert, self._key, self._authority = cert, key, authority
        self._server = ServerTls(
            cert, key, authority, client_certificate=ssl.CERT_REQUIRED, names=NAMES
        )

    @classmethod
    def of(cls, settings: Settings) -> HaTls | None:
        """Build it from the settings; None without TLS. Raises ConfigurationError."""
        cert, key, authority = settings.ha_tls_cert, settings.ha_tls_key, settings.ha_tls_ca
        if cert is None and key is None and authority is None:
            return None
        if cert is None or key is None or authority is None:
            raise ConfigurationError(
                "TLS between replicas needs haTlsCert, haTlsKey and haTlsCa, all three"
            )
        return cls(cert, key, authority)

    @property
    def server(self) -> ssl.SSLContext:
        """The context of a leader, which reads changed files again."""
        return self._server.context

    def client(self) -> ssl.SSLContext:
        """Return the context of a follower, of the files as they are now. Raises OSError."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname = False
        context.load_cert_chain(self._cert, self._key)
        context.load_verify_locations(self._authority)
        return context


def certified_names(writer: asyncio.StreamWriter) -> frozenset[str]:
    """Return the names in the certificate of the other side; none without TLS."""
    found = writer.get_extra_info("peercert") or {}
    subjects = (pair for part in found.get("subject", ()) for pair in part)
    values = (*subjects, *found.get("subjectAltName", ()))
    return frozenset(value for kind, value in values if kind in ("commonName", "DNS"))
