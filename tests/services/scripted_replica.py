"""A follower of mqstore that acknowledges what a test says."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

import msgspec

from mqstore.service import ha_handover
from mqstore.service.ha_frames import HEADER, encode_report
from mqstore.service.ha_handover import FollowerIntroduction, LeaderIntroduction

STORE_ID: Final = "0" * 32
"""Any id will do: a follower's store is its own."""


class ScriptedReplica:
    """A connection to a leader's HA port, introduced under a name. It reads nothing."""

    def __init__(self, connection: socket.socket, name: str, store_id: str) -> None:
        self._connection = connection
        connection.sendall(ha_handover.REQUEST)
        header = self._take(HEADER.size)
        text = self._take(HEADER.unpack(header)[1])
        leader = msgspec.json.decode(text, type=LeaderIntroduction)
        fields = ha_handover.fields_of(store_id, replace(leader.history, start=0, end=0))
        connection.sendall(ha_handover.encode(FollowerIntroduction(**fields, name=name)))

    def acknowledge(self, offset: int) -> None:
        """Report that the log is on its disk up to an offset. The first report requests the log
        from there."""
        self._connection.sendall(encode_report(offset))

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
        yield ScriptedReplica(connection, name, STORE_ID)
