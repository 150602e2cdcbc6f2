"""Errors of messages that are stored, and that are not acknowledged as requested.

They are FlushTimeouts, as both say that a message is stored and its durability is not known.
"""

from __future__ import annotations

from mqstore.storage.errors import FlushTimeout


class ChangeUnconfirmed(FlushTimeout):
    """Replicas in sync may lack a change of topics, groups or offsets that was made."""


class SlaveTimeout(FlushTimeout):
    """No slave has acknowledged it within slaveTimeout: RocketMQ's FLUSH_SLAVE_TIMEOUT."""


class SlaveNotAvailable(FlushTimeout):
    """No slave is near enough to wait for: RocketMQ's SLAVE_NOT_AVAILABLE."""


class LeadLost(FlushTimeout):
    """The replica lost the lead of its shard before it could acknowledge."""

    def __init__(self) -> None:
        super().__init__(
            "this replica lost the lead of its shard before it could acknowledge the messages; "
            "they are stored here, and may not be on the next leader: send them again"
        )
