"""Messages that are leased to a consumer, as JSON."""

from __future__ import annotations

from typing import Final

import msgspec

from mqstore.service import message_structs, message_views
from mqstore.service.message_bodies import BodyForm
from mqstore.service.message_views import unreadable
from mqstore.storage.formats import Record
from mqstore.storage.reads import leased_json
from mqstore.storage.shared_groups import (
    DeliveredBatch,
    Received,
    texts_beside_offset,
)

_encode: Final = msgspec.json.Encoder().encode


class LeasedMessages:
    """Encodes the messages of a receive. For one thread at a time."""

    def __init__(self, shard: int) -> None:
        self._form = message_views.message_form(shard, BodyForm())

    def encode(self, group: str, found: Received, expires_ms: int) -> bytes:
        """Encode ``ReceivedMessages``."""
        reply = message_structs.ReceivedMessages(
            group=group,
            messages=(),
            unreadable=tuple([unreadable(each) for each in found.unreadable]),
            expired=found.expired,
            dead=found.dead,
            full=found.is_full,
        )
        before, messages, behind = _encode(reply).partition(b'"messages":[')
        batches = [_parts_of(each, expires_ms) for each in found.batches]
        return leased_json(self._form, batches, before + messages, behind)


def _parts_of(
    batch: DeliveredBatch, expires_ms: int
) -> tuple[list[Record], list[int], bytes, bytes, bytes]:
    """The parts of a batch's messages, as ``leased_json`` joins them."""
    before, behind = texts_beside_offset(batch.shard, batch.topic, batch.queue_id, batch.lease)
    rest = b',"sourceTopic":%b,"leaseExpires":%d}' % (_encode(batch.source_topic), expires_ms)
    return batch.records, batch.attempts, _encode(before)[:-1], _encode(behind)[1:], rest
