"""Changes of a leader's tables on their way to one follower of mqstore.

Called from ``leader_session``.
"""

from __future__ import annotations

from mqstore.storage.lookup.log_stream import LogStream
from mqstore.storage.replication import ha_tables
from mqstore.storage.replication.table_feed import BEFORE_LOG, NOTHING, TableFeed


class TablesSender:
    """Decides which texts are sent, and where in the log.

    Those that a follower needs before the log are sent before the log that was read with them. The
    others refer to messages, and are sent behind the log up to its end when they were taken, once
    that is confirmed: no later leader lacks these messages, whatever tail a follower cuts.
    """

    def __init__(self, feed: TableFeed, stream: LogStream) -> None:
        self.sent = NOTHING
        """The version that was sent last."""
        self._feed = feed
        self._stream = stream
        self._before_log = NOTHING
        """Version of the last change of tables that are sent before the log."""
        self._seen = NOTHING
        """A version up to which nothing is to be sent before the log."""
        self._taken: tuple[int, bytes] | None = None
        """Changes, and the end of the log that is to be sent before."""

    @property
    def has_news(self) -> bool:
        """Whether ``take`` or ``before_log`` would find something. Looked at after the log was
        read."""
        version = self._feed.version
        if version > self.sent and self._taken is None:
            return True
        if version == self._seen:
            return False
        if self._feed.changed(self._before_log, BEFORE_LOG) != self._before_log:
            return True
        self._seen = version
        return False

    def take(self) -> None:
        """Take the changes since, unless some are on their way. Long tables take time. Raises
        OSError, TablesTooLong."""
        if self._taken is None and self._feed.version > self.sent:
            batch = self._feed.take(self.sent)
            self.sent = batch.version
            self._taken = self._stream.end, ha_tables.encode(batch)

    def before_log(self) -> bytes | None:
        """Return changes that come before what was read of the log; None without one. Raises
        OSError, TablesTooLong."""
        changed = self._feed.changed(self._before_log, BEFORE_LOG)
        if changed == self._before_log:
            return None
        self._before_log = changed
        return ha_tables.encode(self._feed.take_before_log())

    def awaited(self, sent: int) -> int:
        """Return the end of the log, of which ``sent`` is sent, that is to be confirmed before more
        changes are; 0 without one."""
        return 0 if self._taken is None or self._taken[0] > sent else self._taken[0]

    def behind_log(self, sent: int, confirmed: int) -> bytes | None:
        """Return the changes that come behind the log up to ``sent``; None without one."""
        if self._taken is None or self._taken[0] > min(sent, confirmed):
            return None
        (_, text), self._taken = self._taken, None
        return text
