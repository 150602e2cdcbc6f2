"""A leader of the HA protocol that sends the log of a store, unchanged and with faults."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress

from mqstore.storage import MessageStore
from mqstore.storage.replication.ha_handover import REQUEST as HANDOVER_REQUEST

FRAME_SIZE = 20_000
HEARTBEAT_S = 0.05


def log_bytes(store: MessageStore) -> bytes:
    return b"".join(bytes(file.view[: file.wrote_position]) for file in store.log.files.files)


class ScriptedLeader:
    """Serves one follower at a time, from threads of its own, until ``close``."""

    def __init__(self, log: Callable[[], bytes], *, port: int = 0) -> None:
        """``log`` returns the whole log, from offset 0 on."""
        self._log = log
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port: int = self._listener.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self.requested: list[int] = []
        """The offset that each connection began with."""
        self.acknowledged = threading.Condition()
        self.offset = 0
        """The last offset that was reported."""
        self._connection: socket.socket | None = None
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def await_offset(self, offset: int, timeout_s: float = 60) -> None:
        """Wait until a follower has reported an offset."""
        with self.acknowledged:
            assert self.acknowledged.wait_for(lambda: self.offset >= offset, timeout_s), self.offset

    def disconnect(self) -> None:
        """Close the connection to the follower."""
        if self._connection is not None:
            with suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.close()
        self.disconnect()

    def _accept(self) -> None:
        while True:
            try:
                self._connection, _ = self._listener.accept()
            except OSError:
                return
            with suppress(OSError), self._connection as connection:
                self._serve(connection)

    def _serve(self, connection: socket.socket) -> None:
        report = connection.recv(8, socket.MSG_WAITALL)
        if report == HANDOVER_REQUEST:  # a master of RocketMQ sends nothing before an offset
            report = connection.recv(8, socket.MSG_WAITALL)
        if len(report) < 8:
            return
        (sent,) = struct.unpack(">q", report)
        self._take(sent)
        self.requested.append(sent)
        threading.Thread(target=self._read, args=(connection,), daemon=True).start()
        while True:
            log = self._log()
            while sent < len(log):
                body = log[sent : sent + FRAME_SIZE]
                connection.sendall(struct.pack(">qi", sent, len(body)) + body)
                sent += len(body)
            connection.sendall(struct.pack(">qi", sent, 0))
            with self.acknowledged:
                self.acknowledged.wait(HEARTBEAT_S)

    def _read(self, connection: socket.socket) -> None:
        with suppress(OSError):
            while len(report := connection.recv(8, socket.MSG_WAITALL)) == 8:
                self._take(struct.unpack(">q", report)[0])

    def _take(self, offset: int) -> None:
        with self.acknowledged:
            self.offset = offset
            self.acknowledged.notify_all()
