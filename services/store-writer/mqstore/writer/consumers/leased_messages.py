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
    Delivered,
    DeliveredLot,
    Received,
    texts_beside_offset,
)

_encode: Final = msgspec.json.Encoder().encode
_FORM: Final = BodyForm()


class LeasedMessages:
    """Encodes the messages of a receive. For one thread at a time."""

    def __init__(self, shard: int) -> None:
        self._shard = shard
        self._kernel_form = message_views.kernel_form(shard, _FORM)

    def encode(self, group: str, found: Received, expires_ms: int) -> bytes:
        """Encode ``ReceivedMessages``: the messages in the kernel if all are plain."""
        reply = message_structs.ReceivedMessages(
            group=group,
            messages=(),
            unreadable=tuple([unreadable(each) for each in found.unreadable]),
            expired=found.expired,
            dead=found.dead,
            full=found.is_full,
        )
        if self._kernel_form is not None:
            before, messages, behind = _encode(reply).partition(b'"messages":[')
            lots = [_plain_lot(each, expires_ms) for each in found.lots]
            encoded = leased_json(self._kernel_form, lots, before + messages, behind)
            if encoded is not None:
                return encoded
        reply.messages = tuple([self.view(each, expires_ms) for each in found.messages])
        return _encode(reply)

    def view(self, found: Delivered, expires_ms: int) -> message_structs.LeasedMessage:
        """The fields of a leased message."""
        view = message_structs.LeasedMessage(
            **message_views.fields(found.record, self._shard),
            receipt=found.receipt,
            delivery_attempt=found.attempt,
            source_topic=found.source_topic,
            lease_expires=expires_ms,
        )
        _FORM.add_body(found.record, view)
        return view


def _plain_lot(
    lot: DeliveredLot, expires_ms: int
) -> tuple[list[Record], list[int], bytes, bytes, bytes]:
    """The parts of a lot's messages, as ``leased_json`` joins them."""
    before, behind = texts_beside_offset(lot.shard, lot.topic, lot.queue_id, lot.lease)
    rest = b',"sourceTopic":%b,"leaseExpires":%d}' % (_encode(lot.source_topic), expires_ms)
    return lot.records, lot.attempts, _encode(before)[:-1], _encode(behind)[1:], rest
