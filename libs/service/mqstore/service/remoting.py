"""RocketMQ's remoting protocol: the codec of its commands, a small server and a small client.

A frame is the length of all that follows (4 bytes), the length of the header (4; the highest byte
is the serialization of the header, 0 for JSON), the header and the body. A request and its response
have the same ``opaque``. Integers are big-endian.

    RemotingError
    ├── CommandInvalid    the bytes are no command
    ├── CommandRefused    the response to a request has another code than SUCCESS
    └── PeerUnreachable   no connection, no response in time, or the connection was lost
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from enum import IntEnum
from typing import Annotated, Final

import msgspec

from mqstore.service import logs

log = logs.get(__name__)

FRAME_SIZE_MAX: Final = 16 << 20
"""Bytes of a frame at most, as RocketMQ's default ``com.rocketmq.remoting.frameMaxLength``."""
CONNECTIONS_MAX: Final = 16
"""Maximum number of connections of a server; further ones are closed."""
IDLE_TIMEOUT_S: Final = 120.0
"""Seconds without a request, or with a half one, after which a server closes the connection."""
SEND_TIMEOUT_S: Final = 30.0
"""Seconds in which a client must take a response."""
REQUEST_TIMEOUT_S: Final = 3.0

SUCCESS: Final = 0
SYSTEM_ERROR: Final = 1
REQUEST_CODE_NOT_SUPPORTED: Final = 3
RESPONSE_FLAG: Final = 1
ONEWAY_FLAG: Final = 2


class RequestCode(IntEnum):
    """Requests between a master and its slaves (RequestCode of 4.9.7)."""

    GET_ALL_TOPIC_CONFIG = 21
    GET_BROKER_CONFIG = 26
    GET_BROKER_RUNTIME_INFO = 28
    GET_ALL_CONSUMER_OFFSET = 43
    GET_ALL_DELAY_OFFSET = 45
    REGISTER_BROKER = 103
    UNREGISTER_BROKER = 104
    GET_ALL_SUBSCRIPTIONGROUP_CONFIG = 201


_LENGTHS: Final = struct.Struct(">II")
_HEADER_LENGTH: Final = struct.Struct(">I")
_HEADER_SIZE_MAX: Final = (1 << 24) - 1
_JSON: Final = 0

JavaInt = Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1)]


class RemotingError(Exception):
    """A command could not be exchanged."""


class CommandInvalid(RemotingError):
    """The bytes are no command. Close the connection: the next command cannot be found."""


class CommandRefused(RemotingError):
    """The peer refused a request. A handler raises it to refuse one."""

    def __init__(self, code: int, remark: str | None) -> None:
        super().__init__(f"code {code}: {remark or 'without a remark'}")
        self.code = code
        self.remark = remark


class PeerUnreachable(RemotingError):
    """No connection, no response in time, or the connection was lost. Retry later."""


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """A request, or with ``RESPONSE_FLAG`` the response to one."""

    code: int
    ext_fields: Mapping[str, str] = {}
    body: bytes = b""
    remark: str | None = None
    opaque: int = 0
    flag: int = 0
    language: str = "PYTHON"
    version: int = 0

    @property
    def is_response(self) -> bool:
        """Whether this is the response to a request."""
        return bool(self.flag & RESPONSE_FLAG)

    @property
    def is_oneway(self) -> bool:
        """Whether no response is expected."""
        return bool(self.flag & ONEWAY_FLAG)


class _Header(msgspec.Struct, rename="camel", kw_only=True):
    """A command's header in JSON. Other fields, such as serializeTypeCurrentRPC, are ignored."""

    code: JavaInt
    language: str = "OTHER"
    version: JavaInt = 0
    opaque: JavaInt = 0
    flag: JavaInt = 0
    remark: str | None = None
    ext_fields: dict[str, str] | None = None


_decode_header = msgspec.json.Decoder(_Header).decode


def encode(command: Command) -> bytes:
    """Return a command's frame. Raises CommandInvalid if it is longer than ``FRAME_SIZE_MAX``."""
    header = msgspec.json.encode(
        _Header(
            code=command.code,
            language=command.language,
            version=command.version,
            opaque=command.opaque,
            flag=command.flag,
            remark=command.remark,
            ext_fields=dict(command.ext_fields) or None,
        )
    )
    length = _HEADER_LENGTH.size + len(header) + len(command.body)
    if length + _HEADER_LENGTH.size > FRAME_SIZE_MAX or len(header) > _HEADER_SIZE_MAX:
        raise CommandInvalid(f"a command of {length} bytes; at most {FRAME_SIZE_MAX} are allowed")
    return _LENGTHS.pack(length, len(header)) + header + command.body


def decode(frame: bytes) -> Command:
    """Return the command of a frame without its first 4 bytes. Raises CommandInvalid."""
    if len(frame) < _HEADER_LENGTH.size:
        raise CommandInvalid(f"a frame of {len(frame)} bytes has no header")
    word: int = _HEADER_LENGTH.unpack_from(frame)[0]
    serialization, body = word >> 24, _HEADER_LENGTH.size + (word & _HEADER_SIZE_MAX)
    if serialization != _JSON:
        raise CommandInvalid(
            f"a header in serialization {serialization}, and only JSON (0) is read; start the peer "
            "without -Drocketmq.serialize.type and ROCKETMQ_SERIALIZE_TYPE"
        )
    if body > len(frame):
        raise CommandInvalid(f"a header ends at {body} in a frame of {len(frame)} bytes")
    try:
        header = _decode_header(frame[_HEADER_LENGTH.size : body])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CommandInvalid(f"a header is not the JSON of a command: {error}") from None
    return Command(
        code=header.code,
        ext_fields=header.ext_fields or {},
        body=frame[body:],
        remark=header.remark,
        opaque=header.opaque,
        flag=header.flag,
        language=header.language,
        version=header.version,
    )


async def read_command(reader: asyncio.StreamReader) -> Command | None:
    """Read the next command; None where the peer closed the connection between two.

    Raises CommandInvalid; OSError and EOFError when the connection is lost.
    """
    try:
        head = await reader.readexactly(_HEADER_LENGTH.size)
    except asyncio.IncompleteReadError as error:
        if not error.partial:
            return None
        raise
    length: int = _HEADER_LENGTH.unpack(head)[0]
    if length + _HEADER_LENGTH.size > FRAME_SIZE_MAX:
        raise CommandInvalid(f"a frame of {length} bytes; at most {FRAME_SIZE_MAX} are allowed")
    return decode(await reader.readexactly(length))


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a handler, sent with the code SUCCESS."""

    body: bytes = b""
    ext_fields: Mapping[str, str] = {}


class Connection(msgspec.Struct, frozen=True):
    """The IP addresses of a connection's two ends."""

    peer: str
    local: str


Handler = Callable[[Command, Connection], Awaitable[Response]]
"""Serves requests of one code. Raises CommandRefused to refuse one."""


class RemotingServer:
    """Serves requests by their code, those of a connection one after another.

    ``allows`` decides by a peer's address whether its connection is served. Used on one event loop.
    """

    def __init__(
        self,
        handlers: Mapping[int, Handler],
        *,
        allows: Callable[[str], bool] = lambda _: True,
        connections_max: int = CONNECTIONS_MAX,
        idle_timeout_s: float = IDLE_TIMEOUT_S,
    ) -> None:
        self._handlers = handlers
        self._allows = allows
        self._connections_max = connections_max
        self._idle_timeout_s = idle_timeout_s
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.refused = 0
        """Connections that were refused, or did not follow the protocol."""
        self._warnings = logs.LimitedWarnings(log)

    async def start(self, listener: socket.socket) -> None:
        """Serve the connections of one more listening socket, which ``close`` closes."""
        self._servers.append(await asyncio.start_server(self._accept, sock=listener))

    async def close(self) -> None:
        """Close the sockets and all connections."""
        for server in self._servers:
            server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends = (writer.get_extra_info(name) or ("",) for name in ("peername", "sockname"))
        connection = Connection(*(str(each[0]) for each in ends))
        address = connection.peer
        if not self._allows(address):
            self._note_refusal("a remoting peer is not allowed", address)
            writer.close()
        elif len(self._tasks) >= self._connections_max:
            most = self._connections_max
            self._note_refusal("too many remoting connections", address, most=most)
            writer.close()
        else:
            task = asyncio.get_running_loop().create_task(self._serve(reader, writer, connection))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: Connection
    ) -> None:
        try:
            while (request := await self._next_request(reader)) is not None:
                response = await self._respond(request, connection)
                if not request.is_oneway:
                    writer.write(encode(response))
                    async with asyncio.timeout(SEND_TIMEOUT_S):
                        await writer.drain()
        except CommandInvalid as error:
            text = "a remoting connection is closed"
            self._note_refusal(text, connection.peer, reason=str(error))
        except (OSError, EOFError):  # includes timeouts
            pass
        finally:
            writer.close()

    def _note_refusal(
        self, event: str, peer: str, *, reason: str | None = None, most: int | None = None
    ) -> None:
        """Count a connection that is refused or does not follow the protocol, and log some."""
        self.refused += 1
        self._warnings.log(event, peer=peer, refused=self.refused, reason=reason, max=most)

    async def _next_request(self, reader: asyncio.StreamReader) -> Command | None:
        while True:
            async with asyncio.timeout(self._idle_timeout_s):
                command = await read_command(reader)
            if command is None or not command.is_response:
                return command

    async def _respond(self, request: Command, connection: Connection) -> Command:
        handler = self._handlers.get(request.code)
        if handler is None:
            remark = f"request code {request.code} is not supported by mqstore"
            return _response(request, REQUEST_CODE_NOT_SUPPORTED, remark)
        try:
            found = await handler(request, connection)
        except CommandRefused as error:
            return _response(request, error.code, error.remark)
        except Exception as error:
            text = "a remoting request failed"
            self._warnings.log(text, of=str(request.code), code=request.code, exc_info=error)
            return _response(request, SYSTEM_ERROR, "the request failed; see the log of mqstore")
        return _response(request, SUCCESS, None, found)


def _response(
    request: Command, code: int, remark: str | None, found: Response | None = None
) -> Command:
    found = found or Response()
    return Command(
        code=code,
        ext_fields=found.ext_fields,
        body=found.body,
        remark=remark,
        opaque=request.opaque,
        flag=RESPONSE_FLAG,
    )


class RemotingClient:
    """Sends requests to one peer over one connection, one after another.

    It connects when needed. A request that fails closes the connection, so the next one connects
    again. Used on one event loop.
    """

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._opaque = itertools.count(1)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._lock = asyncio.Lock()

    async def request(
        self,
        code: int,
        ext_fields: Mapping[str, str] | None = None,
        body: bytes = b"",
        *,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> Command:
        """Send a request and return its response, whose code is SUCCESS.

        Raises CommandRefused (the response has another code), PeerUnreachable, CommandInvalid.
        """
        opaque = next(self._opaque) & 0x7FFF_FFFF
        request = Command(code=code, ext_fields=ext_fields or {}, body=body, opaque=opaque)
        async with self._lock:
            try:
                async with asyncio.timeout(timeout_s):
                    response = await self._exchange(request)
            except TimeoutError:
                self.close()
                raise PeerUnreachable(f"{self._name} did not respond in {timeout_s:g} s") from None
            except (OSError, EOFError) as error:
                self.close()
                raise PeerUnreachable(f"{self._name} cannot be reached: {error}") from error
            except BaseException:
                self.close()
                raise
        if response.code != SUCCESS:
            raise CommandRefused(response.code, response.remark)
        return response

    async def _exchange(self, request: Command) -> Command:
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, self._port)
        reader, writer = self._streams
        writer.write(encode(request))
        await writer.drain()
        while True:
            command = await read_command(reader)
            if command is None:
                raise EOFError("the connection was closed")
            if command.is_response and command.opaque == request.opaque:
                return command

    @property
    def _name(self) -> str:
        return f"{self._host}:{self._port}"

    def close(self) -> None:
        """Close the connection. A later request opens another one."""
        if self._streams is not None:
            _, writer = self._streams
            self._streams = None
            with contextlib.suppress(RuntimeError):  # the loop is closed
                writer.close()
