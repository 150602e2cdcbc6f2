"""The parts of a store that sessions use, and the steps that they cause."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from mqstore.storage.log.commit_log import CommitLog
from mqstore.storage.lookup.log_stream import LogStream
from mqstore.storage.replication.log_epochs import LogEpochs
from mqstore.storage.replication.receiver import LogReceiver
from mqstore.storage.replication.table_copies import TableCopies
from mqstore.storage.replication.table_feed import TableFeed


class ReplicaStore(Protocol):
    """``MessageStore``, or a simulated one. A store that leads has neither receiver nor copies."""

    store_id: str
    epochs: LogEpochs
    log: CommitLog
    log_stream: LogStream
    table_feed: TableFeed
    receiver: LogReceiver | None
    table_copies: TableCopies | None

    def confirm(self, offset: int, in_sync: int) -> None:
        """Publish what all copies in sync have, and their number."""


class Step(msgspec.Struct, frozen=True, gc=False):
    """Work that bytes of the other side cause. Each step ends before the next one begins."""

    run: Callable[[], Any]
    """Reads or writes files, in any thread."""
    is_quick: bool
    """Whether it takes no longer than the way to a thread."""
    reply: Callable[[Any], bytes]
    """Called with the result, on the thread of the session; returns bytes to send."""
