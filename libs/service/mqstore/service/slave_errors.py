"""Errors of messages that are stored, and whose reply was to wait for a slave.

They are FlushTimeouts, as both say that a message is stored and its durability is not known.
"""

from __future__ import annotations

from mqstore.storage.errors import FlushTimeout


class SlaveTimeout(FlushTimeout):
    """No slave has acknowledged it within slaveTimeout: RocketMQ's FLUSH_SLAVE_TIMEOUT."""


class SlaveNotAvailable(FlushTimeout):
    """No slave is near enough to wait for: RocketMQ's SLAVE_NOT_AVAILABLE."""
