"""The remoting port of a master of RocketMQ: replies with given bodies, by request code."""

from __future__ import annotations

import socketserver
import struct
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from mqstore.service.remoting import RESPONSE_FLAG, SYSTEM_ERROR, Command, decode, encode

_LENGTH = struct.Struct(">I")


@contextmanager
def scripted_broker(bodies: Mapping[int, str]) -> Iterator[str]:
    """Serve on a free port, whose address is yielded; other codes are refused."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while head := self.rfile.read(_LENGTH.size):
                request = decode(self.rfile.read(_LENGTH.unpack(head)[0]))
                body = bodies.get(request.code)
                response = Command(
                    code=SYSTEM_ERROR if body is None else 0,
                    body=(body or "").encode(),
                    opaque=request.opaque,
                    flag=RESPONSE_FLAG,
                )
                self.wfile.write(encode(response))

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
