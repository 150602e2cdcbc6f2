"""A way to a service that can be cut while the service itself goes on for others."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

PIECE = 1 << 16


class CutPath:
    """Passes connections on to the service at ``url`` until it is cut."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None and parts.port is not None
        self._service = parts.hostname, parts.port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = [self._listener]
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Refuse new connections and drop the open ones."""
        for each in self._open:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                ends = self._listener.accept()[0], socket.create_connection(self._service)
                self._open += ends
                for way in (ends, ends[::-1]):
                    threading.Thread(target=_pass_on, args=way, daemon=True).start()


def _pass_on(source: socket.socket, to: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while piece := source.recv(PIECE):
            to.sendall(piece)
    with contextlib.suppress(OSError):
        to.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def path_to(url: str) -> Iterator[CutPath]:
    path = CutPath(url)
    try:
        yield path
    finally:
        path.cut()
