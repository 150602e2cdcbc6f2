"""The config tables as texts, as a broker sends them to its slaves.

Source: what SlaveSynchronize of 4.9.7 requests, and ``encode`` of the four managers: the content of
the config files.
"""

from __future__ import annotations

from mqstore.storage.admin.administration import AdminTables
from mqstore.storage.tables.config_tables import DelayOffsets


class TableTexts:
    """Each table as it stands in memory, in the JSON of its file. Thread-safe."""

    def __init__(self, tables: AdminTables, delays: DelayOffsets) -> None:
        self._tables = tables
        self._delays = delays

    def topics(self) -> str:
        """``topics.json``."""
        return self._tables.topics.text()

    def groups(self) -> str:
        """``subscriptionGroup.json``."""
        return self._tables.groups.text()

    def consumer_offsets(self) -> str:
        """``consumerOffset.json``."""
        return self._tables.offsets.text()

    def delay_offsets(self) -> str:
        """``delayOffset.json``: the progress of delivery whose copies are on disk."""
        return self._delays.text()
