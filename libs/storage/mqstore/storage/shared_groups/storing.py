"""Stores copies of messages in topics of groups, which are made when they are first needed."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from mqstore.storage._kernel import Placement
from mqstore.storage.admin.topics import TopicChange
from mqstore.storage.codec.record import Message, Record
from mqstore.storage.errors import FilePending, TopicUnknown
from mqstore.storage.lookup.pop_records import retry_topics as pop_retry_topics
from mqstore.storage.lookup.pull_filter import OriginFilter
from mqstore.storage.message_store import MessageStore
from mqstore.storage.shared_groups import returned
from mqstore.storage.shared_groups.results import Subscription
from mqstore.storage.tables.config_tables import TopicConfig
from mqstore.storage.tables.subscription_groups import GroupConfig
from mqstore.storage.topic_names import DLQ_PREFIX, RETRY_PREFIX

_READ_WRITE = 6


def require_topic(store: MessageStore, name: str, queues: int) -> TopicConfig:
    """Return a topic; make it unless it is there. Errors as ``MessageStore.put_topic``."""
    try:
        return store.topic(name)
    except TopicUnknown:
        return store.put_topic(name, TopicChange(queues, queues, _READ_WRITE))


def append(store: MessageStore, message: Message) -> Placement:
    """Append a message, and make the files that it needs. Raises PutRefused, StoreFailed."""
    while True:
        try:
            return store.append(message)
        except FilePending as pending:
            pending.make()


def retry_topics(
    store: MessageStore, group: str, subscriptions: Sequence[Subscription]
) -> dict[str, OriginFilter | None]:
    """Return the topics of a group's retries: its own, and those that POP consumers of a broker
    have made for these subscriptions; with the filter of one that may be another group's too."""
    found: dict[str, OriginFilter | None] = {}
    for each in subscriptions:
        newer, older = pop_retry_topics(group, each.topic)
        found |= {newer: None, older: OriginFilter(group, is_pop=True)}
    others = (group[:at] for at, character in enumerate(group) if character == "_")
    is_shared = any(map(store.groups.exists, others))
    own = OriginFilter(group, is_pop=False) if is_shared else None
    queue_ids = store.queues.queue_ids
    return {RETRY_PREFIX + group: own} | {name: it for name, it in found.items() if queue_ids(name)}


class Copies:
    """Stores the copies of messages that consumers return."""

    def __init__(self, store: MessageStore, random: Random) -> None:
        self._store = store
        self._random = random

    def append_retry(self, config: GroupConfig, record: Record, level: int, reason: str) -> int:
        """Store a message for a retry after a delay level; return the end of the copy in the log.

        Raises TopicNotWritable, PutRefused, PropertyError, StoreFailed.
        """
        topic, queues = RETRY_PREFIX + config.name, max(1, config.retry_queues)
        require_topic(self._store, topic, queues).require_writable()
        queue_id = self._random.randrange(queues)
        level = returned.level_for(record, level)
        host, store_format = self._store.host, self._store.format
        copy = returned.copy_for_retry(
            record, config.name, queue_id, level, host, store_format, reason=reason
        )
        return append(self._store, copy).end

    def append_dead(self, group: str, record: Record, attempts: int, reason: str) -> int:
        """Store a message as a dead letter; return the end of the copy in the log. Errors as
        ``append_retry``."""
        require_topic(self._store, DLQ_PREFIX + group, 1)
        host, store_format = self._store.host, self._store.format
        copy = returned.copy_for_dead_letters(
            record, group, attempts, host, store_format, reason=reason
        )
        return append(self._store, copy).end
