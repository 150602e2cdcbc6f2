"""The shards that this process relays to: where each is, and whether it can be used now.

Used on the event loop only.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from typing import Final

import msgspec

from mqstore.client.tls import public_authorities
from mqstore.coordinator.errors import ShardUnavailable
from mqstore.service import membership, problems
from mqstore.service.auth import OwnToken
from mqstore.service.configuration_error import ConfigurationError
from mqstore.service.forwarding import FORWARDED, ForwardedRequest
from mqstore.service.problems import Problem
from mqstore.service.relay_connections import (
    NoReply,
    NotSent,
    RelayConnections,
    RelayedReply,
    RelayError,
)
from mqstore.service.settings import Settings

BY: Final = "transaction-coordinator"
"""Value of the header ``x-mqstore-forwarded`` in requests of this service."""
TIMEOUT_S: Final = 30.0
"""Seconds until a relayed request counts as unanswered."""
OWN_CONNECTIONS_MAX: Final = 1_024
"""To one shard, for requests of this service: they may wait for checks."""
PROBE_INTERVAL_S: Final = 1.0
PROBE_TIMEOUT_S: Final = 2.0
SERVING: Final = "/healthz/serving"
_NO_SUCH_ROUTE: Final = frozenset({problems.NOT_FOUND.urn, problems.METHOD_NOT_ALLOWED.urn})
_NOT_ALLOWED: Final = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})
_EARLIER: Final = "runs an earlier release, which has no transactions of its own; upgrade it"


class Shard:
    """One shard's store-writer."""

    def __init__(
        self,
        ordinal: int,
        url: str,
        tls: Callable[[], ssl.SSLContext],
        token: Callable[[], str | None],
    ) -> None:
        """Raises ConfigurationError for an invalid address."""
        self.ordinal = ordinal
        self.url = url.rstrip("/")
        try:
            self._relayed = RelayConnections(url, tls)
            self._own = RelayConnections(url, tls, OWN_CONNECTIONS_MAX)
        except ValueError as error:
            raise ConfigurationError(f"the address of shard {ordinal}: {error}") from None
        self._token = token
        self._probed: str | None = f"shard {ordinal} was not reached yet"
        self._refused: str | None = None

    @property
    def trouble(self) -> str | None:
        """Why no transaction can be begun or decided here now; None when it can."""
        return self._probed or self._refused

    async def send(
        self,
        request: ForwardedRequest,
        over: RelayConnections | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> RelayedReply:
        """The shard's reply, whatever its status is. Raises ShardUnavailable."""
        connections = over or self._relayed
        try:
            sent = request.encode(connections)
        except ValueError as error:
            reason = f"was sent nothing: {error}"
            raise ShardUnavailable(self.ordinal, reason, is_sent=False) from None
        try:
            reply = await connections.send(sent, timeout_s, request.client)
        except NotSent as error:
            self._probed = f"shard {self.ordinal} cannot be reached: {error}"
            reason = f"cannot be reached: {error}"
            raise ShardUnavailable(self.ordinal, reason, is_sent=False) from error
        except NoReply as error:
            reason = f"did not answer ({error})"
            raise ShardUnavailable(self.ordinal, reason, is_sent=True) from error
        if problem_type(reply) in _NO_SUCH_ROUTE:
            self._refused = f"shard {self.ordinal} {_EARLIER}"
            raise ShardUnavailable(self.ordinal, _EARLIER, is_sent=False)
        self._refused = None
        return reply

    async def call(
        self,
        method: str,
        target: str,
        body: bytes = b"",
        timeout_s: float = TIMEOUT_S,
        more_headers: Mapping[str, str] | None = None,
    ) -> RelayedReply:
        """The reply to a request of this service, under its own token. Raises ShardUnavailable."""
        headers = {FORWARDED: BY, **(more_headers or {})}
        if (token := self._token()) is not None:
            headers["authorization"] = f"Bearer {token}"
        if body:
            headers["content-type"] = "application/json"
        sent = ForwardedRequest(method, target, headers, body)
        reply = await self.send(sent, self._own, timeout_s)
        if reply.status in _NOT_ALLOWED:  # no word to the client, whose own token is valid
            reason = f"rejects the system token of this coordinator ({reply.status})"
            raise ShardUnavailable(self.ordinal, reason, is_sent=False)
        return reply

    async def probe(self) -> None:
        """Find out whether the shard replies to requests. A shard whose disk is full does: its
        transactions can be listed, looked at and, with the room that is left, decided."""
        try:
            request = ForwardedRequest("GET", SERVING, {}).encode(self._own)
            reply = await self._own.send(request, PROBE_TIMEOUT_S)
        except RelayError as error:
            self._probed = f"shard {self.ordinal} cannot be reached: {error}"
            return
        # A shard of an earlier release has no such path.
        is_up = reply.is_success or reply.status == HTTPStatus.NOT_FOUND
        self._probed = None if is_up else f"shard {self.ordinal} does not serve requests yet"

    async def close(self) -> None:
        """Close the connections."""
        await self._relayed.close()
        await self._own.close()


class Shards:
    """All of them, in the order of their numbers."""

    def __init__(self, shards: list[Shard], token: Callable[[], str | None]) -> None:
        """``token`` returns the system token of this process; None without authentication."""
        self.token = token
        self._shards = {shard.ordinal: shard for shard in shards}
        self._turn = 0
        self._probing: asyncio.Task[None] | None = None

    def __iter__(self) -> Iterator[Shard]:
        return iter(self._shards.values())

    def __len__(self) -> int:
        return len(self._shards)

    @property
    def troubles(self) -> list[str]:
        """Why some shards cannot be used now, one text a shard."""
        return [shard.trouble for shard in self if shard.trouble is not None]

    @property
    def able(self) -> list[Shard]:
        """Shards that can be used now; all where none is known to be."""
        return [shard for shard in self if shard.trouble is None] or list(self)

    def start(self) -> None:
        """Probe the shards from now on, each every ``PROBE_INTERVAL_S``."""
        self._probing = asyncio.get_running_loop().create_task(self._probe())

    async def stop(self) -> None:
        """End the probes and close the connections."""
        if self._probing is not None:
            self._probing.cancel()
        await asyncio.gather(*(shard.close() for shard in self))

    def of_transaction(self, transaction_id: str) -> Shard | None:
        """The shard that an id names; None if the list that was read at the start lacks it.

        Raises Problem (404) for an id that names no shard.
        """
        ordinal, _, key = transaction_id.partition("-")
        if not (ordinal.isascii() and ordinal.isdigit() and len(ordinal) <= 10 and key):
            raise Problem(
                problems.TRANSACTION_UNKNOWN, f"{transaction_id!r} is no id of a transaction"
            )
        return self.of_number(int(ordinal))

    def of_number(self, ordinal: int) -> Shard | None:
        """The shard with a number; None if the list that was read at the start lacks it."""
        return self._shards.get(ordinal)

    def in_turn(self) -> list[Shard]:
        """Shards that can be used, each in its turn the first."""
        able = self.able
        self._turn += 1
        at = self._turn % len(able)
        return able[at:] + able[:at]

    async def _probe(self) -> None:
        while True:
            await asyncio.gather(*(shard.probe() for shard in self))
            await asyncio.sleep(PROBE_INTERVAL_S)


def shards_of(settings: Settings, tls: ssl.SSLContext | None) -> Shards:
    """As ``shardsFile`` lists them at the start, else the one that the settings name. Raises
    ConfigurationError."""
    if settings.shards_file is None:
        places = [(settings.shard, settings.writer_url)]
    else:
        listed = membership.read(settings.shards_file).shards
        places = [(each.shard, each.writer_url) for each in listed]
    token = OwnToken(settings.tokens)

    def context() -> ssl.SSLContext:
        return tls or public_authorities(trust_env=False)

    return Shards([Shard(ordinal, url, context, token) for ordinal, url in places], token)


class _ProblemType(msgspec.Struct):
    type: str = ""


_PROBLEM_TYPE: Final = msgspec.json.Decoder(_ProblemType)
_PROBLEM: Final = problems.CONTENT_TYPE.encode()


def problem_type(reply: RelayedReply) -> str:
    """The URN of the problem that a reply is; empty for another reply."""
    if reply.status < 400 or reply.header(b"content-type") != _PROBLEM:
        return ""
    try:
        return _PROBLEM_TYPE.decode(reply.body).type
    except msgspec.MsgspecError:
        return ""
