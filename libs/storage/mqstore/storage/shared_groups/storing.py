"""Stores copies of messages in topics of groups, which are made when they are first needed."""

from __future__ import annotations

from mqstore.storage._kernel import Placement
from mqstore.storage.admin.topics import TopicChange
from mqstore.storage.codec.record import Message
from mqstore.storage.errors import FilePending, TopicUnknown
from mqstore.storage.message_store import MessageStore

_READ_WRITE = 6


def require_topic(store: MessageStore, name: str, queues: int) -> None:
    """Make a topic unless it is there. Errors as ``MessageStore.put_topic``."""
    try:
        store.topic(name)
    except TopicUnknown:
        store.put_topic(name, TopicChange(queues, queues, _READ_WRITE))


def append(store: MessageStore, message: Message) -> Placement:
    """Append a message, and make the files that it needs. Raises PutRefused, StoreFailed."""
    while True:
        try:
            return store.append(message)
        except FilePending as pending:
            pending.make()
