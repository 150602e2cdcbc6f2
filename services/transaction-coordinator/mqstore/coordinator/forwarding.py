"""What a standby does: it passes requests on to whoever leads, and says so when nobody does."""

from __future__ import annotations

import asyncio
import ssl
from typing import Final

import httpx
from fastapi import Request
from fastapi.responses import Response

from mqstore.coordinator.leadership import Leadership, NotLeading
from mqstore.service import problems
from mqstore.service.forwarded import FORWARDED, Asking, Relayed, returned
from mqstore.service.problems import Problem

TRIES: Final = 3
"""To connect: nothing of the request was sent before."""
RETRY_S: Final = 0.2
LOOK_INTERVAL_S: Final = 0.5
PROBE_INTERVAL_S: Final = 1.0
PROBE_TIMEOUT_S: Final = 2.0
_TIMEOUT: Final = httpx.Timeout(65.0, connect=2.0)
"""Longer than the longest poll, and than a takeover of ours."""


class _LeaderChanged(Exception):
    """While its answer was awaited."""


class Forwarder:
    """Used on the event loop only."""

    def __init__(self, leadership: Leadership, own_url: str, tls: ssl.SSLContext | None) -> None:
        self._leadership = leadership
        self._own_url = own_url
        self._http = httpx.AsyncClient(
            verify=True if tls is None else tls,
            timeout=_TIMEOUT,
            limits=httpx.Limits(max_connections=None),
            trust_env=False,
        )
        self._probing: asyncio.Task[None] | None = None
        self.trouble: str | None = "no leader is known yet"
        """Why no leader can be reached just now."""

    @property
    def leads(self) -> bool:
        try:
            self._leadership.term()
        except NotLeading:
            return False
        return True

    def start(self) -> None:
        """Look again and again whether the leader can be reached."""
        self._probing = asyncio.get_running_loop().create_task(self._probe())

    async def stop(self) -> None:
        if self._probing is not None:
            self._probing.cancel()
        await self._http.aclose()

    async def here_or_there(self, request: Request) -> None:
        """A dependency of routes: returns when this process leads. Raises Relayed, Problem."""
        try:
            self._leadership.term()
        except NotLeading as error:
            if FORWARDED in request.headers:
                raise Problem(problems.COORDINATOR_NOT_READY, str(error)) from None
            raise Relayed(await self._forwarded(request, str(error))) from None

    async def _forwarded(self, request: Request, why: str) -> Response:
        """Raises Problem."""
        for turn in range(TRIES):
            url = self._leader()
            if url is None:
                break
            try:
                return await self._sent(url, request)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                why = f"the leader at {url} cannot be reached: {error or type(error).__name__}"
            except (httpx.HTTPError, _LeaderChanged) as error:
                raise Problem(
                    problems.COORDINATOR_NOT_READY,
                    f"the leader at {url} did not answer ({error or type(error).__name__}): "
                    "it may have been done, and repeating it is fine",
                ) from error
            await asyncio.sleep(RETRY_S * turn)
        raise Problem(problems.COORDINATOR_NOT_READY, why)

    def _leader(self) -> str | None:
        url = self._leadership.leader_url()
        return None if url == self._own_url else url

    async def _sent(self, url: str, request: Request) -> Response:
        """Raises httpx.HTTPError, _LeaderChanged: nobody waits for a leader that stands still for
        longer than another one needs to take over."""
        asking = asyncio.ensure_future(self._asked(url, request))
        try:
            while not (await asyncio.wait({asking}, timeout=LOOK_INTERVAL_S))[0]:
                if self._leader() != url or self.leads:
                    raise _LeaderChanged("another coordinator leads by now")
            return asking.result()
        finally:
            asking.cancel()

    async def _asked(self, url: str, request: Request) -> Response:
        asking = Asking.of(request.scope, self._own_url, await request.body())
        answer = await self._http.request(**asking.at(url))
        return Response(answer.content, answer.status_code, headers=returned(answer.headers))

    def _why_not(self) -> str:
        """Nobody leads, as far as known."""
        try:
            self._leadership.term()
        except NotLeading as error:
            return str(error)
        return "no leader is known"

    async def _probe(self) -> None:
        while True:
            self.trouble = await self._trouble()
            await asyncio.sleep(PROBE_INTERVAL_S)

    async def _trouble(self) -> str | None:
        url = self._leader()
        if url is None:
            return self._why_not()
        try:
            answer = await self._http.get(f"{url}/healthz/ready", timeout=PROBE_TIMEOUT_S)
        except httpx.HTTPError as error:
            return f"the leader at {url} cannot be reached: {error or type(error).__name__}"
        return None if answer.is_success else f"the leader at {url} is not ready"
