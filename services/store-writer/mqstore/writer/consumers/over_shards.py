"""Shared groups over several shards: receipts go to the shard that they name, and a receive takes
what other shards have when this one has nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import Any

import msgspec

from mqstore.service import message_structs, problems
from mqstore.service.forwarding import ForwardedRequest, was_forwarded
from mqstore.service.http import HotRequest, Reply
from mqstore.service.membership import ShardEntry
from mqstore.service.problems import Problem
from mqstore.service.shards import Shards
from mqstore.storage.shared_groups import Receipt
from mqstore.wire.consumers import ReceiptStatus

_RESULTS = msgspec.json.Decoder(message_structs.ReceiptResults)
_RECEIVED = msgspec.json.Decoder(message_structs.ReceivedMessages)
Settle = Callable[[Sequence[Receipt]], Awaitable[Sequence[str]]]
"""Settles receipts of this shard; returns the status of each."""


class ShardedConsumers:
    """Sends parts of requests to other shards. Used on the event loop only."""

    def __init__(self, shards: Shards) -> None:
        self._shards = shards
        self._turn = 0

    def is_alone(self, request: HotRequest) -> bool:
        """Whether this shard serves a request without the others."""
        return not self._shards.fans_out(request.scope)

    async def settle(
        self,
        request: HotRequest,
        members: dict[str, Any],
        receipts: Sequence[Receipt],
        here: Settle,
    ) -> list[str]:
        """Settle receipts on the shards that they name; return the status of each.

        ``members`` is the JSON of the request. Raises Problem (422) for an unknown shard, and what
        ``here`` raises.
        """
        by_shard: dict[int, list[int]] = {}
        for number, receipt in enumerate(receipts):
            by_shard.setdefault(receipt.shard, []).append(number)
        entries = {shard: self._entry(shard, request) for shard in by_shard}
        statuses: list[str] = [ReceiptStatus.UNREACHABLE] * len(receipts)

        async def visit(shard: int, numbers: list[int]) -> None:
            part = [receipts[each] for each in numbers]
            entry = entries[shard]
            if entry is None:
                found = await here(part)
            else:
                found = await self._settle_there(entry, request, members, part)
            for number, status in zip(numbers, found, strict=True):
                statuses[number] = status

        await asyncio.gather(*(visit(shard, numbers) for shard, numbers in by_shard.items()))
        return statuses

    async def receive(
        self, request: HotRequest, members: dict[str, Any], count: int
    ) -> message_structs.ReceivedMessages | None:
        """Receive what another shard has now, without waiting; None when none has a message."""
        others = self._shards.members.others
        self._turn += 1
        start = self._turn % len(others) if others else 0
        for entry in [*others[start:], *others[:start]]:
            content = msgspec.json.encode({**members, "max": count, "wait": 0})
            try:
                reply = await self._shards.reply(entry, self._forwarded(request, content))
            except Problem:
                continue  # a shard that is down delivers its messages later
            if reply.status == HTTPStatus.OK:
                found = _RECEIVED.decode(reply.body)
                if found.messages:
                    return found
        return None

    def _entry(self, shard: int, request: HotRequest) -> ShardEntry | None:
        """The other shard that receipts name; None for this one. Raises Problem (421, 422)."""
        if shard == self._shards.own:
            return None
        entry = self._shards.members.entries.get(shard)
        if entry is None:
            raise Problem(problems.RECEIPT_INVALID, f"a receipt names shard {shard}, unknown here")
        if was_forwarded(request.scope):
            raise self._shards.misdirected(entry)
        return entry

    async def _settle_there(
        self,
        entry: ShardEntry,
        request: HotRequest,
        members: dict[str, Any],
        part: Sequence[Receipt],
    ) -> Sequence[str]:
        content = msgspec.json.encode({**members, "receipts": [each.encode() for each in part]})
        try:
            reply: Reply = await self._shards.reply(entry, self._forwarded(request, content))
            if reply.status == HTTPStatus.OK:
                return [each.status for each in _RESULTS.decode(reply.body).results]
        except Problem:
            pass  # the consumer sends these receipts again
        return [ReceiptStatus.UNREACHABLE] * len(part)

    def _forwarded(self, request: HotRequest, content: bytes) -> ForwardedRequest:
        forwarded = ForwardedRequest.of(request.scope, str(self._shards.own))
        return replace(forwarded, content=content)
