"""The messages of one produce request, as they are put.

Called from ``produce_route``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from mqstore.storage import MessageStore
from mqstore.storage.errors import UniqueKeyTaken
from mqstore.storage.puts import EncodedBatch, Originals, Put, Sends
from mqstore.wire.idempotency import NAME, other_keys

READS_MAX: Final = 200
"""Maximum number of possible duplicates of a request that the event loop reads in the log, in about
1 ms. A thread reads more."""


class Batch(msgspec.Struct, frozen=True, gc=False):
    """The messages of one request."""

    content: EncodedBatch
    sends: Sends
    """The sends of their topic."""
    waits: int
    """Conditions of the reply, as in ``waits``."""
    idempotency_key: str | None = None
    originals: Originals | None = None
    """Earlier messages under the same unique keys, if a thread read them."""

    def only(self, numbers: Sequence[int]) -> Batch:
        """Return a part of the batch, whose duplicates are found by unique keys alone."""
        return Batch(self.content.only(list(numbers)), self.sends, self.waits)

    def require_one_request(self, store: MessageStore, topic: str) -> None:
        """Raise UniqueKeyTaken if the Idempotency-Key is that of a request with another number of
        messages."""
        key = self.idempotency_key or ""
        if store.dedup is None:
            return
        others = other_keys(key, self.content.keys)
        if others and store.dedup.knows(topic, others):
            raise UniqueKeyTaken(
                f"{NAME} {key!r} of topic {topic} is that of another "
                "request, with another number of messages; send each request under its own key"
            )

    def append_to(self, store: MessageStore) -> Put:
        """Append the messages. Raises UniqueKeyTaken, OriginalsUnread, FilePending."""
        reads_max = READS_MAX if self.originals is None else None
        return store.append(self.content, originals=self.originals, reads_max=reads_max)

    def read_originals(self, store: MessageStore) -> Batch:
        """Return this batch with its ``originals``. Raises UniqueKeyTaken."""
        if store.dedup is None or self.content.given is None:
            return self
        return msgspec.structs.replace(self, originals=store.dedup.originals(self.content))
