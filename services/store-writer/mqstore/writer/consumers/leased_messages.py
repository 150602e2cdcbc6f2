"""Messages that are leased to a consumer, as JSON."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from mqstore.service import message_structs, message_views
from mqstore.service.message_bodies import BodyForm
from mqstore.storage.reads import leased_json
from mqstore.storage.shared_groups import Delivered

_encode: Final = msgspec.json.Encoder().encode
_FORM: Final = BodyForm()


class LeasedMessages:
    """Encodes the messages of a receive. For one thread at a time."""

    def __init__(self, shard: int) -> None:
        self._shard = shard
        self._kernel_form = message_views.kernel_form(shard, _FORM)

    def encode(self, found: list[Delivered], expires_ms: int) -> Any:
        """Encode ``LeasedMessage`` structs, as a msgspec.Raw: in the kernel if all are plain."""
        ends = {
            topic: b',"sourceTopic":%b,"leaseExpires":%d}' % (_encode(topic), expires_ms)
            for topic in {each.source_topic for each in found}
        }
        encoded = self._kernel_form and leased_json(self._kernel_form, found, ends)
        return msgspec.Raw(encoded or _encode([self.view(each, expires_ms) for each in found]))

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
