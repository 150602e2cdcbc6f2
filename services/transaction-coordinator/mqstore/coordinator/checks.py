"""Checks for producers that poll: leased from every shard on their behalf."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from mqstore.coordinator.errors import ShardUnavailable
from mqstore.coordinator.shards import Shard, Shards
from mqstore.service.relay_connections import RelayedReply
from mqstore.service.transaction_structs import (
    LeaseChecks,
    LeasedCheck,
    LeasedChecks,
    Transaction,
)
from mqstore.wire.checks import LEASE_CHECKS, CheckTaking

POLL: Final = "poll"
"""Sender of a check in a transaction's history: the producer polled for it."""
GRACE_S: Final = 10.0
"""Seconds that a shard may take to reply beyond the wait that it was given."""
_LEASED: Final = msgspec.json.Decoder(LeasedChecks)


async def lease(shard: Shard, request: LeaseChecks) -> Sequence[LeasedCheck]:
    """Due checks of a shard. Raises ShardUnavailable, also where the shard refuses."""
    body = msgspec.json.encode(request)
    reply = await shard.call("POST", LEASE_CHECKS.path, body, request.wait + GRACE_S)
    if not reply.is_success:
        raise refusal(shard, reply)
    try:
        return _LEASED.decode(reply.body).checks
    except msgspec.MsgspecError as error:
        reason = f"answered what this release does not know: {error}"
        raise ShardUnavailable(shard.ordinal, reason, is_sent=False) from error


def refusal(shard: Shard, reply: RelayedReply) -> ShardUnavailable:
    """A shard's refusal of a request of this service."""
    try:
        problem: Any = msgspec.json.decode(reply.body)
        detail = problem["detail"]
    except (ValueError, LookupError, TypeError):
        detail = "no reason"
    return ShardUnavailable(shard.ordinal, f"answered {reply.status}: {detail}", is_sent=False)


class Checks:
    """Used on the event loop only."""

    def __init__(self, shards: Shards, interrupted: asyncio.Event) -> None:
        """``interrupted``: set when the service shuts down; waiting requests are then answered."""
        self._shards = shards
        self._interrupted = interrupted

    async def take(self, wanted: CheckTaking) -> list[Transaction]:
        """At most ``max`` checks, which count as sent; waits for one. Raises Problem where no shard
        answers."""
        shards = self._shards.in_turn()
        found = await self._take_now(shards, wanted)
        if found or not wanted.wait:
            return found
        return await self._await(shards, wanted)

    async def _take_now(self, shards: Sequence[Shard], wanted: CheckTaking) -> list[Transaction]:
        """Take the due transactions, from one shard after the other."""
        found: list[Transaction] = []
        troubles: list[ShardUnavailable] = []
        for shard in shards:
            if left := wanted.max - len(found):
                try:
                    found += await _take(shard, wanted.producer_group, left, 0.0)
                except ShardUnavailable as error:
                    troubles.append(error)
        if len(troubles) == len(shards):
            raise troubles[0].problem
        return found

    async def _await(self, shards: Sequence[Shard], wanted: CheckTaking) -> list[Transaction]:
        """Wait for the first transactions that become due.

        Each shard returns at most its share of ``max``, so that several together return at most
        ``max``.
        """
        chosen = shards[: wanted.max]
        share = wanted.max // len(chosen)
        waits = {
            asyncio.ensure_future(_take(shard, wanted.producer_group, share, wanted.wait))
            for shard in chosen
        }
        ending = asyncio.ensure_future(self._interrupted.wait())
        found: list[Transaction] = []
        try:
            while waits and not found and not ending.done():
                await asyncio.wait({*waits, ending}, return_when="FIRST_COMPLETED")
                for each in {each for each in waits if each.done()}:
                    waits.discard(each)
                    if each.exception() is None:
                        found += each.result()
        finally:
            for task in (*waits, ending):
                task.cancel()
        return found


async def _take(shard: Shard, group: str, count: int, wait_s: float) -> list[Transaction]:
    """Raises ShardUnavailable."""
    request = LeaseChecks(group=group, max=count, by=POLL, wait=wait_s)
    return [each.transaction for each in await lease(shard, request)]
