"""Requests to the store-writer of the same store, which runs on the same machine."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import httpx

from mqstore.client.tls import public_authorities
from mqstore.service.forwarding import FORWARDED, ForwardedRequest
from mqstore.service.relay_connections import CONNECT_TIMEOUT_S
from mqstore.service.settings import Settings
from mqstore.service.shards import RELAY_TIMEOUT_S
from mqstore.service.upstream import UpstreamTls
from mqstore.storage.directory import StorePaths, load_writer_note
from mqstore.storage.host import FileSystem

TIMEOUT_S: Final = 2.0
"""Seconds for the whole reply. It is short because store-writer is on the same machine."""

_STREAM_TIMEOUT: Final = httpx.Timeout(RELAY_TIMEOUT_S, connect=CONNECT_TIMEOUT_S)


class LocalWriter:
    """Client of the local store-writer. Used on the event loop only.

    Its address is the one that store-writer notes in the store directory.
    """

    def __init__(self, settings: Settings, root: Path, files: FileSystem) -> None:
        """Raises ConfigurationError for certificates that cannot be used."""
        self._paths = StorePaths(root)
        self._files = files
        self._tls = UpstreamTls.of(settings)

    async def request(
        self, method: str, path: str, headers: Mapping[str, str], json: Any = None
    ) -> httpx.Response | None:
        """Send a request and return the reply, whatever its status.

        Returns None if no store-writer of this store replies within TIMEOUT_S.
        """
        try:
            async with asyncio.timeout(TIMEOUT_S):
                note = await asyncio.to_thread(load_writer_note, self._files, self._paths)
                if note is None:
                    return None
                sent = {**headers, FORWARDED: "query"}
                return await self._http.request(method, note.url + path, headers=sent, json=json)
        except (OSError, httpx.HTTPError, httpx.InvalidURL):  # TimeoutError is an OSError
            return None

    async def stream(
        self, forwarded: ForwardedRequest, url: str | None = None
    ) -> httpx.Response | None:
        """Send a request whose reply may be long, or last, and return it; the caller closes it.

        ``url`` is the address of another service. Returns None if no store-writer has noted its
        address. Raises httpx.HTTPError.
        """
        if url is None:
            try:
                note = await asyncio.to_thread(load_writer_note, self._files, self._paths)
            except OSError:
                note = None
            if note is None:
                return None
            url = note.url
        built = self._streams.build_request(**forwarded.arguments(url))
        return await self._streams.send(built, stream=True)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()
        if "_streams" in vars(self):
            await self._streams.aclose()

    @cached_property
    def _http(self) -> httpx.AsyncClient:
        return self._client(httpx.Timeout(TIMEOUT_S), httpx.Limits())

    @cached_property
    def _streams(self) -> httpx.AsyncClient:
        """A client of its own: replies that last take no connection from ``request``."""
        return self._client(_STREAM_TIMEOUT, httpx.Limits(max_keepalive_connections=20))

    def _client(self, timeout: httpx.Timeout, limits: httpx.Limits) -> httpx.AsyncClient:
        verify = self._tls.context if self._tls else public_authorities(trust_env=False)
        return httpx.AsyncClient(verify=verify, timeout=timeout, limits=limits, trust_env=False)
