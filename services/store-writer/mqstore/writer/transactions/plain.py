"""Plain begins and decisions, each stored and answered in one call of the engine.

Called from ``hot_routes`` before its slow path, which has every reply.
"""

from __future__ import annotations

import time

import msgspec

from mqstore.service.transaction_structs import TransactionSpec
from mqstore.storage.formats import Host
from mqstore.storage.puts import QueueTurns, UniqueKeys
from mqstore.storage.topic_names import check_group
from mqstore.storage.transactions import Verdict, begin_reader
from mqstore.writer.service import WriterService
from mqstore.writer.synced_reply import SyncedReply
from mqstore.writer.transactions.views import view

_encode = msgspec.json.Encoder().encode


class PlainTransactions:
    """Used on the event loop only. None, with nothing stored: the slow path has to reply."""

    def __init__(self, service: WriterService, keys: UniqueKeys, turns: QueueTurns) -> None:
        self._service = service
        self._reader = begin_reader(keys)
        self._turns = turns

    def begin(self, spec: TransactionSpec, client: Host) -> bytes | SyncedReply | None:
        """Begin a transaction of one message to a known topic. Raises Problem."""
        service = self._service
        service.require_transactions()
        topic = service.topics.get(spec.topic)
        if topic is None or service.transactions.turns.is_ending:
            return None
        if (
            len(spec.messages) > 1
            or spec.shard is not None
            or spec.check_immunity_seconds is not None
        ):
            return None
        check_group(spec.producer_group)
        now_ms = time.time_ns() // 1_000_000
        request = self._reader.read(spec.producer_group, spec.topic, spec.messages[0], now_ms)
        if request is None:
            return None
        if request.has_key and not self._is_own(request.key):
            return None
        queue = request.queue_id
        if queue < 0:
            queue = self._turns.take(topic.write_queues)
        elif queue >= topic.write_queues:
            return None
        begun = service.transactions.engine.begin_plain(request, queue, client)
        if begun is None:
            return None
        reply = b'{"transactionId":"%d-%b","state":"pending"}'
        return self._settled(reply % (service.settings.shard, begun.key.encode()), begun.end)

    def decide(self, key: str, verdict: Verdict, why: str) -> bytes | SyncedReply | None:
        """Decide a transaction of one message. Raises Problem."""
        service = self._service
        service.require_transactions()
        if service.transactions.turns.is_ending:
            return None
        decided = service.transactions.engine.decide_plain(key, verdict, why)
        if decided is None:
            return None
        return self._settled(_encode(view(service.settings.shard, decided.snapshot)), decided.end)

    def _is_own(self, key: str) -> bool:
        """Whether a transaction under this key belongs to this shard."""
        service = self._service
        if service.shards.members.alone:
            return True
        window_ms = service.store.config.unique_key_window
        return service.key_routing.are_own(service.key_routing.parts([key], window_ms))

    @property
    def replies_wait(self) -> bool:
        """Whether replies wait, as those to messages do, for the disk or a slave."""
        return self._service.default_waits != 0

    def _settled(self, reply: bytes, end: int) -> bytes | SyncedReply:
        """A reply, which may wait."""
        service = self._service
        if not (waits := service.default_waits):
            return reply
        return SyncedReply(service.waiter(waits), end, reply, service.metrics.waits_of(waits))
