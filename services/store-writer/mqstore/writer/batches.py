"""The messages of one produce request, as they are appended.

Called from ``produce_route``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from mqstore.storage import MessageStore
from mqstore.storage.errors import UniqueKeyTaken
from mqstore.storage.formats import StoreFormat
from mqstore.storage.puts import (
    EncodedBatch,
    Message,
    Originals,
    Put,
    check_batch_size,
    decode_batch,
)
from mqstore.wire.idempotency import NAME

READS_MAX: Final = 200
"""Maximum number of possible duplicates of a request that the event loop reads in the log, in about
1 ms. A thread reads more."""


class Batch(msgspec.Struct, frozen=True, gc=False):
    """The messages of one request."""

    content: list[Message] | EncodedBatch
    """The messages, or a batch in RocketMQ's encoding, whose bytes the kernel appends."""
    keys: list[str]
    waits: int
    """Conditions of the reply, as in ``waits``."""
    given: list[str | None] | None = None
    """The keys that the client gave; None if it gave no key."""
    delayed: bool = False
    """Whether any message is stored in a delay queue first."""
    ordering: list[str | None] | None = None
    """The messages' ordering keys, which chose their queues; None if none has one."""
    idempotency_key: str | None = None
    other_keys: Sequence[str] = ()
    """Unique keys of a request with another number of messages under the same Idempotency-Key."""
    originals: Originals | None = None
    """Earlier messages under the same unique keys, if a thread read them."""

    def messages(self, store_format: StoreFormat) -> list[Message]:
        """Return the messages one by one."""
        content = self.content
        if isinstance(content, EncodedBatch):
            return decode_batch(content.data, content.message, store_format=store_format)
        return content

    def only(self, numbers: Sequence[int], store_format: StoreFormat) -> Batch:
        """Return a part of the batch, whose duplicates are found by unique keys alone."""
        messages, keys = self.messages(store_format), self.keys
        given = self.given or [None] * len(keys)
        return Batch(
            [messages[each] for each in numbers],
            [keys[each] for each in numbers],
            self.waits,
            [given[each] for each in numbers],
            self.delayed,
            None if self.ordering is None else [self.ordering[each] for each in numbers],
        )

    def append_to(self, store: MessageStore, topic: str) -> Put:
        """Append the messages. Raises UniqueKeyTaken, OriginalsUnread, FilePending."""
        content, is_batch = self.content, len(self.keys) > 1
        if is_batch and isinstance(content, list) and (self.delayed or self.ordering is not None):
            is_batch = False  # DELAY has no effect in a batch, which is of one queue
            check_batch_size(content, store.config.max_message_size)
        if self.given is None:
            return store.append(content, as_batch=is_batch)
        if (
            self.other_keys
            and store.dedup is not None
            and store.dedup.knows(topic, self.other_keys)
        ):
            raise UniqueKeyTaken(
                f"{NAME} {self.idempotency_key!r} of topic {topic} is that of another "
                "request, with another number of messages; send each request under its own key"
            )
        reads_max = READS_MAX if self.originals is None else None
        return store.append(
            content,
            self.given,
            as_batch=is_batch,
            originals=self.originals,
            reads_max=reads_max,
        )

    def read_originals(self, store: MessageStore, topic: str) -> Batch:
        """Return this batch with its ``originals``. Raises UniqueKeyTaken."""
        if store.dedup is None or self.given is None:
            return self
        messages = self.messages(store.format)
        found = store.dedup.originals(topic, messages, self.given)
        return msgspec.structs.replace(self, content=messages, originals=found)
