"""A follower of mqstore that acknowledges all tables, and of the log what a test says."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Final

import msgspec

from mqstore.storage.replication import ha_handover, ha_tables
from mqstore.storage.replication.ha_frames import (
    HEADER,
    FrameReader,
    Tables,
    encode_report,
    encode_tables_report,
)
from mqstore.storage.replication.ha_handover import FollowerIntroduction, LeaderIntroduction

STORE_ID: Final = "0" * 32
"""Any id will do: a follower's store is its own."""


class ScriptedReplica:
    """A connection to a leader's HA port, introduced under a name."""

    def __init__(self, connection: socket.socket, name: str, store_id: str) -> None:
        self._connection = connection
        self.takes_tables = True
        connection.sendall(ha_handover.REQUEST)
        header = self._take(HEADER.size)
        text = self._take(HEADER.unpack(header)[1])
        leader = msgspec.json.decode(text, type=LeaderIntroduction)
        fields = ha_handover.fields_of(store_id, replace(leader.history, start=0, end=0))
        connection.sendall(ha_handover.encode(FollowerIntroduction(**fields, name=name)))
        threading.Thread(target=self._acknowledge_tables, daemon=True).start()

    def acknowledge(self, offset: int) -> None:
        """Report that the log is on its disk up to an offset. The first report requests the log
        from there."""
        self._connection.sendall(encode_report(offset))

    def _acknowledge_tables(self) -> None:
        frames = FrameReader(has_checksum=True)
        with suppress(OSError):
            while data := self._connection.recv(1 << 16):
                for found in frames.feed(data):
                    if isinstance(found, Tables) and self.takes_tables:
                        version = ha_tables.decode(found.text).version
                        self._connection.sendall(encode_tables_report(version))

    def _take(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._connection.recv(size - len(data))
            assert more, "the leader closed the connection"
            data += more
        return data


@contextmanager
def scripted_replica(port: int, name: str) -> Iterator[ScriptedReplica]:
    """A replica that is connected to a leader's HA port."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        try:
            yield ScriptedReplica(connection, name, STORE_ID)
        finally:
            connection.shutdown(socket.SHUT_RDWR)
