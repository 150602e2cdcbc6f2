"""Slaves that copy the log, as raw sockets."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from mqstore.service.rate import Rate
from mqstore.service.replica_secret import ReplicaSecret
from mqstore.service.settings import Settings
from mqstore.service.sockets import bind
from mqstore.storage.message_store import MessageStore
from mqstore.storage.replication import ha_handover, ha_tables
from mqstore.storage.replication.ha_frames import (
    HEADER,
    Confirmation,
    Fetch,
    Frame,
    FrameReader,
    Tables,
    encode_report,
)
from mqstore.storage.replication.ha_handover import FollowerIntroduction, LeaderIntroduction
from mqstore.storage.replication.ha_proof import Challenge, FollowerProof, Proven, decode_first
from mqstore.storage.status import Epoch, TableBatch
from mqstore.writer.replication.admission import Admission
from mqstore.writer.replication.ha_server import HaServer
from mqstore.writer.replication.slave import HaOptions
from tests.unit.storage.stores import CONFIG, open_store, put_some

SEGMENT: Final = CONFIG.mapped_file_size_commit_log
OPTIONS: Final = HaOptions(
    heartbeat_s=3600, housekeeping_s=3600, batch_size=1000, from_last_segment=False
)
STORE_ID: Final = "f" * 32
"""Id of the store of a raw follower."""
SOME: Final = 700
"""Messages that fill several segments."""


async def message_of(reader: asyncio.StreamReader) -> bytes:
    """The JSON of the next message before the log. EOFError when the connection has ended."""
    _, size = HEADER.unpack(await reader.readexactly(HEADER.size))
    return await reader.readexactly(size)


class RawSlave:
    """A slave as bytes on a socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._frames = FrameReader()
        self._pending: list[Frame | Tables | Fetch] = []

    async def prove(self, secret: ReplicaSecret, of: Proven) -> None:
        """Request a hand-over, and prove to have the secret."""
        self.send(ha_handover.REQUEST)
        challenge = decode_first(await message_of(self._reader))
        assert isinstance(challenge, Challenge)
        proof = FollowerProof(secret.keys(), challenge, of, "0" * 64)
        self.send(proof.message)
        proof.check(await message_of(self._reader))

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    def report(self, offset: int) -> None:
        self.send(encode_report(offset))

    async def introduce(
        self, name: str, store_id: str = STORE_ID, *, proven: bool = False, **changes: Any
    ) -> LeaderIntroduction:
        """Introduce itself as an empty follower of mqstore does; the leader's introduction.
        ``proven``: it has requested it, and proved itself."""
        if not proven:
            self.send(ha_handover.REQUEST)
        leader = ha_handover.decode_introduction(await message_of(self._reader), LeaderIntroduction)
        history = replace(leader.history, start=0, end=0)
        self._frames = FrameReader(has_checksum=True)
        fields = ha_handover.fields_of(store_id, replace(history, **changes))
        self.send(ha_handover.encode(FollowerIntroduction(**fields, name=name)))
        return leader

    async def frame(self) -> Frame:
        """The next frame of the log. EOFError when the connection has ended."""
        while True:
            found = await self._next()
            if isinstance(found, Frame):
                return found

    async def until_tables(self) -> tuple[int, TableBatch]:
        """The end of the log that comes before the next text of tables, and what that has."""
        end = 0
        while not isinstance(found := await self._next(), Tables):
            if isinstance(found, Frame):
                end = found.offset + len(found.body)
        return end, ha_tables.decode(found.text)

    async def until_fetch(self) -> Fetch:
        """The next request for a range of the log."""
        while not isinstance(found := await self._next(), Fetch):
            pass
        return found

    async def _next(self) -> Frame | Tables | Fetch:
        while not self._pending:
            data = await self._read()
            if not data:
                raise EOFError
            self._pending += self._frames.feed(data)
        return self._pending.pop(0)

    async def log_from(self, start: int, end: int, segment_size: int = SEGMENT) -> bytes:
        """The log between two offsets, whose frames must follow each other."""
        found = bytearray()
        while start + len(found) < end:
            frame = await self.frame()
            assert frame.offset == start + len(found)
            if frame.body:
                last = frame.offset + len(frame.body) - 1
                assert frame.offset // segment_size == last // segment_size
            found += frame.body
        assert start + len(found) == end
        return bytes(found)

    async def ended(self) -> bool:
        """Whether the server ends the connection without another frame."""
        return not self._pending and not await self._read()

    async def _read(self) -> bytes:
        try:
            return await self._reader.read(1 << 16)
        except ConnectionError:
            return b""

    def close(self) -> None:
        self._writer.close()


class Served:
    """A store that slaves copy."""

    def __init__(self, store: MessageStore, server: HaServer, address: tuple[str, int]) -> None:
        self.store = store
        self.server = server
        self.address = address
        self.slaves: list[RawSlave] = []

    async def slave(self, offset: int | None = 0) -> RawSlave:
        slave = RawSlave(*await asyncio.open_connection(*self.address))
        self.slaves.append(slave)
        if offset is not None:
            slave.report(offset)
        return slave

    @property
    def log(self) -> bytes:
        files = sorted(self.store.paths.commit_log.iterdir())
        start, end = self.store.log.min_offset, self.store.log.max_offset
        return b"".join(path.read_bytes() for path in files)[: end - start]

    def confirm(self, offset: int = 1 << 40) -> None:
        """Confirm the log up to an offset, by default all that is ever stored."""
        self.server.connections.confirm(Confirmation(offset, in_sync=1))

    async def until(self, holds: Callable[[], bool]) -> None:
        while not holds():  # noqa: ASYNC110 - values of another task
            await asyncio.sleep(0.001)


@asynccontextmanager
async def serving(
    root: Path, options: HaOptions, allowed: str = "127.0.0.1", **settings: Any
) -> AsyncIterator[Served]:
    admission = Admission(Settings(store=root, ha_allowed_slaves=allowed, **settings))
    with open_store(root) as store:
        server = HaServer(store, "leader", options, admission)
        listener = bind("127.0.0.1", 0)
        address = listener.getsockname()
        await server.start(listener)
        served = Served(store, server, address)
        try:
            yield served
        finally:
            for slave in served.slaves:
                slave.close()
            await server.close()


def run_served(
    root: Path, scenario: Callable[[Served], Awaitable[None]], options: HaOptions = OPTIONS
) -> None:
    async def run() -> None:
        async with serving(root, options) as served:
            await scenario(served)

    asyncio.run(run())


def test_an_empty_slave_gets_the_whole_log_and_what_is_put_later(root: Path) -> None:
    async def scenario(served: Served) -> None:
        put_some(served.store, SOME)
        slave = await served.slave()
        end = served.store.log.max_offset
        copied = await slave.log_from(0, end)
        put_some(served.store, SOME, start=SOME)
        copied += await slave.log_from(end, served.store.log.max_offset)
        assert copied == served.log
        slave.close()

    run_served(root, scenario)


def test_an_empty_slave_gets_the_last_segment_as_of_rocketmq_4_9(root: Path) -> None:
    async def scenario(served: Served) -> None:
        put_some(served.store, SOME)
        end = served.store.log.max_offset
        start = end - end % SEGMENT
        assert await (await served.slave()).log_from(start, end) == served.log[start:]

    run_served(root, scenario, replace(OPTIONS, from_last_segment=True))


def test_a_slave_goes_on_from_any_offset(root: Path) -> None:
    async def scenario(served: Served) -> None:
        put_some(served.store, SOME)
        log = served.log
        for offset in (1, SEGMENT - 1, SEGMENT, SEGMENT + 1, len(log) - 1):
            slave = await served.slave(offset)
            assert await slave.log_from(offset, len(log)) == log[offset:]
            slave.close()

    run_served(root, scenario)


def test_nothing_is_sent_before_the_first_report(root: Path) -> None:
    async def scenario(served: Served) -> None:
        put_some(served.store, 3)
        slave = await served.slave(None)
        for byte in encode_report(0)[:7]:
            slave.send(bytes([byte]))
        await asyncio.sleep(0.05)
        assert served.server.connections.slaves == []
        slave.send(encode_report(0)[7:])
        assert await slave.log_from(0, served.store.log.max_offset) == served.log

    run_served(root, scenario)


def test_two_slaves_copy_and_acknowledge_on_their_own(root: Path) -> None:
    async def scenario(served: Served) -> None:
        put_some(served.store, SOME)
        end = served.store.log.max_offset
        first, second = await served.slave(), await served.slave()
        assert await first.log_from(0, end) == await second.log_from(0, end) == served.log
        first.report(100)
        second.report(1000)
        second.send(encode_report(2000) + encode_report(end) + b"\0\0")  # a part of a report
        await served.until(lambda: served.server.connections.acknowledged_by(1) == end)
        await served.until(
            lambda: (
                sorted(each.acknowledged for each in served.server.connections.slaves) == [100, end]
            )
        )
        second.close()
        await served.until(lambda: served.server.connections.acknowledged_by(1) == 100)
        assert served.server.connections.acknowledged_by(2) is None
        first.close()
        await served.until(lambda: served.server.connections.acknowledged_by(1) is None)

    run_served(root, scenario)


def test_a_slave_that_reads_nothing_holds_up_no_other(root: Path) -> None:
    async def scenario(served: Served) -> None:
        store = served.store
        put_some(store, 20 * SOME)
        with socket.create_connection(served.address) as slow:
            slow.sendall(encode_report(0))
            for turn in range(2):
                put_some(store, SOME, start=(20 + turn) * SOME)
                slave = await served.slave()
                assert await slave.log_from(0, store.log.max_offset) == served.log
                slave.close()

    run_served(root, scenario)


def test_a_heartbeat_names_the_next_offset(root: Path) -> None:
    async def scenario(served: Served) -> None:
        put_some(served.store, 3)
        end = served.store.log.max_offset
        slave = await served.slave(end)
        assert [await slave.frame() for _ in range(3)] == [Frame(end, b"")] * 3

    run_served(root, scenario, replace(OPTIONS, heartbeat_s=0.01))


def test_a_slave_without_reports_is_disconnected(root: Path) -> None:
    async def scenario(served: Served) -> None:
        for offset in (0, None):
            assert await (await served.slave(offset)).ended()

    run_served(root, scenario, replace(OPTIONS, housekeeping_s=0.05))


@pytest.mark.parametrize("later", [False, True])
def test_a_slave_ahead_of_the_log_is_disconnected(root: Path, later: bool) -> None:
    async def scenario(served: Served) -> None:
        put_some(served.store, 3)
        end = served.store.log.max_offset
        slave = await served.slave(end)
        await served.until(lambda: served.server.connections.acknowledged_by(1) == end)
        if not later:
            slave = await served.slave(None)
        slave.report(end + 1)
        assert await slave.ended()

    run_served(root, scenario)


def test_a_slave_cannot_acknowledge_what_it_was_not_sent(root: Path) -> None:
    async def scenario(served: Served) -> None:
        put_some(served.store, 20 * SOME)
        slave = await served.slave()
        await slave.frame()
        slave.report(served.store.log.max_offset)
        await served.until(lambda: not served.server.connections.slaves)

    run_served(root, scenario)


def test_a_slave_whose_segment_was_deleted_is_disconnected(root: Path) -> None:
    async def scenario(served: Served) -> None:
        put_some(served.store, SOME)
        served.store.expire(1)
        assert await (await served.slave(100)).ended()
        end = served.store.log.max_offset
        copied = await (await served.slave(0)).log_from(SEGMENT, end)
        assert copied == served.log

    run_served(root, scenario)


@pytest.mark.parametrize("data", [b"\xfe" * 8, HEADER.pack(-2, 0)])
def test_bytes_that_are_no_report_end_the_connection(root: Path, data: bytes) -> None:
    async def scenario(served: Served) -> None:
        slave = await served.slave(None)
        slave.send(data)
        assert await slave.ended()

    run_served(root, scenario)


def test_a_slave_that_is_not_allowed_is_disconnected(root: Path) -> None:
    async def run() -> None:
        async with serving(root, OPTIONS, allowed="127.0.0.2") as served:
            assert await (await served.slave()).ended()

    asyncio.run(run())


def test_the_server_ends_all_connections_when_it_closes(root: Path) -> None:
    async def scenario(served: Served) -> None:
        slave = await served.slave()
        await served.until(lambda: bool(served.server.connections.slaves))
        await served.server.close()
        assert await slave.ended()

    run_served(root, scenario)


def test_a_follower_has_the_name_that_it_gives_and_a_slave_its_address(root: Path) -> None:
    async def scenario(served: Served) -> None:
        put_some(served.store, SOME)
        end = served.store.log.max_offset
        follower, slave = await served.slave(None), await served.slave()
        leader = await follower.introduce("mqstore-0-1")
        assert leader.store_id == served.store.store_id
        await served.until(lambda: len(served.server.connections.slaves) == 1)
        follower.report(0)
        assert await follower.log_from(0, end) == await slave.log_from(0, end) == served.log
        follower.report(end)
        await served.until(lambda: served.server.connections.acknowledged_by(1) == end)
        found = {each.is_replica: each for each in served.server.connections.slaves}
        assert (found[True].name, found[True].acknowledged) == ("mqstore-0-1", end)
        assert found[False].name == found[False].address

    run_served(root, scenario)


def test_the_newest_connection_of_a_follower_ends_its_earlier_one(root: Path) -> None:
    async def scenario(served: Served) -> None:
        first, second = await served.slave(None), await served.slave(None)
        for each in (first, second):
            await each.introduce("a")
            each.report(0)
            await served.until(lambda: bool(served.server.connections.slaves))
        with pytest.raises(EOFError):
            await first.until_fetch()
        await served.until(lambda: len(served.server.connections.slaves) == 1)

    run_served(root, scenario)


def test_two_followers_of_one_name_are_a_mistake(root: Path) -> None:
    async def scenario(served: Served) -> None:
        first, second = await served.slave(None), await served.slave(None)
        await first.introduce("a", "1" * 32)
        first.report(0)
        await served.until(lambda: bool(served.server.connections.slaves))
        await second.introduce("a", "2" * 32)
        assert await second.ended()
        assert served.server.connections.refused == 1

    run_served(root, scenario)


def test_bytes_that_are_no_introduction_end_the_connection(root: Path) -> None:
    async def scenario(served: Served) -> None:
        slave = await served.slave(None)
        slave.send(ha_handover.REQUEST + encode_report(0) + encode_report(0))
        while await slave._read():
            pass
        await served.until(lambda: served.server.connections.refused == 1)

    run_served(root, scenario)


@pytest.mark.parametrize(
    "changes",
    [
        {"log_id": "0" * 32, "end": 100},
        {"epochs": (Epoch(0, 0), Epoch(9, 0))},
        {"epochs": (Epoch(0, 0),), "end": 1 << 40},
    ],
)
def test_a_follower_with_another_history_is_disconnected(
    root: Path, changes: dict[str, Any]
) -> None:
    async def scenario(served: Served) -> None:
        put_some(served.store, SOME)
        slave = await served.slave(None)
        await slave.introduce("a", **changes)
        assert await slave.ended()
        assert served.server.connections.refused == 1

    run_served(root, scenario)


def test_slaves_share_the_limit_of_bytes_per_second(root: Path) -> None:
    limit = CountedRate(1 << 30)

    async def scenario(served: Served) -> None:
        put_some(served.store, SOME)
        end = served.store.log.max_offset
        for _ in range(2):
            slave = await served.slave()
            assert await slave.log_from(0, end) == served.log
        assert limit.taken == 2 * end

    run_served(root, scenario, replace(OPTIONS, rate=limit))


class CountedRate(Rate):
    """Counts the bytes that were taken."""

    taken = 0

    def reserve(self, size: int, now_s: float) -> float:
        self.taken += size
        return super().reserve(size, now_s)
