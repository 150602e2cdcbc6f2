"""Finds what POP consumers of a broker have taken and not acknowledged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from mqstore.storage.codec.record import Record
from mqstore.storage.errors import ConfigTableError
from mqstore.storage.layout import TIMER_TOPIC
from mqstore.storage.lookup import pop_records
from mqstore.storage.lookup.pop_records import REVIVE_GROUP, REVIVE_PREFIX, Batch, Checkpoint
from mqstore.storage.tables.config_tables import ConsumerOffsets
from mqstore.storage.verify.finding import Finding, Kind
from mqstore.storage.verify.store_at_rest import StoreAtRest

_BATCHES_MAX: Final = 100_000
"""Batches that are remembered; of a store with more that are open the oldest are counted."""


class PopCheck:
    """Takes the records of the log in their order, each once."""

    def __init__(self, store: StoreAtRest) -> None:
        self._store = store
        self._open: dict[Batch, set[int]] = {}
        try:
            offsets = ConsumerOffsets.load(store.paths, store.format, store.seams)
        except ConfigTableError:  # a finding of its own
            offsets = ConsumerOffsets.empty(store.paths, store.format, store.seams)
        self._offsets = offsets

    @staticmethod
    def concerns(found: Record) -> bool:
        """Whether a record, which may lack its body, is to be taken with its body."""
        return found.topic == TIMER_TOPIC or found.topic.startswith(REVIVE_PREFIX)

    def take(self, found: Record) -> None:
        """Note a checkpoint or an acknowledgement."""
        known = pop_records.decode(found)
        if known is None:
            return
        if not isinstance(known, Checkpoint):
            self._open.get(known.batch, set()).difference_update(known.offsets)
        elif self._is_settled(found):
            self._open.pop(known.batch, None)
        elif known.batch not in self._open and len(self._open) < _BATCHES_MAX:
            self._open[known.batch] = set(known.offsets)

    def findings(self) -> Iterator[Finding]:
        """Yield one for each group and topic with messages that wait."""
        waiting = Counter[tuple[str, str]]()
        for (topic, group, *_), offsets in self._open.items():
            waiting[topic, group] += len(offsets)
        for (topic, group), count in sorted(waiting.items()):
            if count:
                what = (
                    f"POP group {group} has taken {count} messages of it and not acknowledged them:"
                    " they are delivered again in the group's retry topic"
                )
                does = self._store.broker.predict(Kind.STATE_NAMED)
                yield Finding(Kind.STATE_NAMED, "commitlog", what, does, topic=topic)

    def _is_settled(self, found: Record) -> bool:
        if found.topic == TIMER_TOPIC:
            return False
        settled = self._offsets.get(REVIVE_GROUP, found.topic, found.queue_id)
        return settled is not None and found.queue_offset <= settled
