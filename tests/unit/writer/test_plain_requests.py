"""Plain begins and decisions have the records and replies of the slow path."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mqstore.service.http import (
    DeferredReply,
    HotRequest,
    Lane,
    Prepared,
    Reply,
    await_reply,
    problem_of,
)
from mqstore.service.problems import Problem
from mqstore.storage import StoreConfig
from mqstore.storage.errors import StorageError
from mqstore.storage.settings import FlushDiskType
from mqstore.storage.transactions import Verdict
from mqstore.writer.service import WriterService
from mqstore.writer.transactions.hot_routes import HotRoutes
from tests.long_runs import examples
from tests.unit.writer.begin_requests import TOPIC, begins
from tests.unit.writer.opened_writer import open_writer

SPREAD: Final = "spread"
QUEUES: Final = 3
HEADERS: Final = [(b"content-type", b"application/json"), (b"host", b"localhost")]
ID: Final = "id"
OF_ONE_STORE: Final = re.compile(
    r'"(storeTimestamp|bornTimestamp|decidedAt)": \d+|006D7173[0-9A-F]{24}|at \d+ ms'
)
REASONS: Final = st.sampled_from(
    [b"", b'{"reason":"why"}', b'{"reason":"gr\\u00f6\\u0001"}', b"[]"]
)


def _take(lane: Lane, value: str) -> bytes | None:
    """The body of a lane's reply; None where the slow path has to reply."""
    try:
        reply = lane(value.encode(), b"", b"\r\n")
    except (Problem, StorageError):
        return None
    return None if reply is None else reply.partition(b"\r\n\r\n")[2]


class Writer:
    """One store-writer of this process, and the replies of its routes of transactions."""

    def __init__(
        self, runner: asyncio.Runner, root: Path, flush: FlushDiskType = FlushDiskType.ASYNC
    ) -> None:
        self._runner = runner
        config = StoreConfig(flush_disk_type=flush, mapped_file_size_commit_log=4 << 20)
        self.service = runner.run(open_writer(root, config, {TOPIC: 1, SPREAD: QUEUES}))
        self.routes = HotRoutes(self.service)

    def begin(self, body: bytes, *, is_plain: bool = True) -> tuple[int, Any]:
        """Status and JSON of the reply."""
        return self._runner.run(self._begin(body, is_plain=is_plain))

    async def _begin(self, body: bytes, *, is_plain: bool) -> tuple[int, Any]:
        general = self.routes._begin(_request(self.service, body, {}))
        if not is_plain:
            return await _reply_of(general)
        return await self._reply(lambda: self.routes._prepare_begin, body, {}, general)

    def decide(
        self, id_: str, verdict: Verdict, body: bytes = b"", *, is_plain: bool = True
    ) -> tuple[int, Any]:
        """Status and JSON of the reply."""
        return self._runner.run(self._decide(id_, verdict, body, is_plain=is_plain))

    async def _decide(
        self, id_: str, verdict: Verdict, body: bytes, *, is_plain: bool
    ) -> tuple[int, Any]:
        params = {ID: id_}
        general = self.routes._decide(verdict, _request(self.service, body, params))
        if not is_plain:
            return await _reply_of(general)

        def prepare(request: HotRequest) -> Prepared:
            return self.routes._prepare_decision(verdict, request)

        lane = None if body else prepare(_request(self.service, b"", params)).lane
        if lane is not None and (reply := _take(lane, id_)) is not None:
            general.close()
            return 200, json.loads(reply)
        return await self._reply(lambda: prepare, body, params, general)

    async def _reply(
        self, prepare: Any, body: bytes, params: Mapping[str, str], general: Any
    ) -> tuple[int, Any]:
        """The reply of the fast path, else of the slow path."""
        try:
            prepared = prepare()(_request(self.service, b"", params))
            found = prepared.begin(body, params)
        except (Problem, StorageError):
            found = None
        if found is None:
            return await _reply_of(general)
        general.close()
        try:
            if isinstance(found, DeferredReply):
                found = await await_reply(found)
        except (Problem, StorageError) as error:
            return _refusal(error)
        return prepared.status, json.loads(found)

    def records(self, start: int) -> list[tuple[Any, ...]]:
        """Each record from a physical offset on, but for times and generated keys."""
        found, log = [], self.service.store.log
        while start < log.max_offset:
            record = log.record_at(start)
            properties = {
                name: OF_ONE_STORE.sub("KEY", value)
                for name, value in (record.properties or {}).items()
                if name != "MQSTORE_DECIDED_AT"
            }
            place = record.topic, record.queue_id, record.queue_offset, record.size
            flags = record.flag, record.sys_flag, record.prepared_transaction_offset
            found.append((place, record.body, properties, flags, record.born_host.address))
            start += record.size
        return found


def _request(service: WriterService, body: bytes, params: Mapping[str, str]) -> HotRequest:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    scope = {"method": "POST", "path": "/", "query_string": b"", "headers": HEADERS}
    return HotRequest(scope, receive, params, service.front.limits)


async def _reply_of(general: Any) -> tuple[int, Any]:
    try:
        reply: Reply = await general
        return reply.status, json.loads(reply.body)
    except (Problem, StorageError) as error:
        return _refusal(error)


def _refusal(error: Problem | StorageError) -> tuple[int, str]:
    problem = error if isinstance(error, Problem) else problem_of(error)
    return problem.kind.status, problem.detail


def comparable(reply: tuple[int, Any]) -> tuple[int, str]:
    """A reply without what differs between two stores."""
    return reply[0], OF_ONE_STORE.sub("ONE", json.dumps(reply[1]))


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as found:
        yield found


@contextmanager
def running(runner: asyncio.Runner, root: Path, count: int) -> Iterator[list[Writer]]:
    """Writers whose queues have a message each: the first one makes its file."""
    found = [Writer(runner, root / str(number)) for number in range(count)]
    for writer in found:
        for topic in (TOPIC, SPREAD, SPREAD, SPREAD):
            commit(writer, topic)
    yield found
    for writer in found:
        runner.run(writer.service.stop())


@pytest.fixture(scope="module")
def writers(
    runner: asyncio.Runner, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Writer]]:
    """Two, which get the same requests."""
    with running(runner, tmp_path_factory.mktemp("pair"), 2) as found:
        yield found


@pytest.fixture(scope="module")
def writer(runner: asyncio.Runner, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Writer]:
    with running(runner, tmp_path_factory.mktemp("single"), 1) as found:
        yield found[0]


def commit(writer: Writer, topic: str = TOPIC, *, is_plain: bool = False) -> dict[str, Any]:
    """Begin and commit a transaction; the commit's reply."""
    _, begun = writer.begin(text(topic), is_plain=is_plain)
    status, found = writer.decide(begun["transactionId"], Verdict.COMMIT, is_plain=is_plain)
    assert status == 200
    assert isinstance(found, dict)
    return found


def text(topic: str = TOPIC, **message: Any) -> bytes:
    spec = {"producerGroup": "g", "topic": topic, "messages": [{"body": "a", **message}]}
    return json.dumps(spec).encode()


def end(writer: Writer) -> int:
    return writer.service.store.log.max_offset


def appends(writer: Writer) -> float:
    """Appends in one call of the kernel, and others."""
    return sum(writer.service.metrics.put_seconds.counts)


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
    max_examples=examples(60),
)
@given(begins(), st.sampled_from([Verdict.COMMIT, Verdict.ROLLBACK]), REASONS)
def test_records_and_replies_are_those_of_the_general_way(
    writers: list[Writer], body: bytes, verdict: Verdict, reason: bytes
) -> None:
    starts = [end(writer) for writer in writers]
    assert starts[0] == starts[1]
    plain, general = (
        writer.begin(body, is_plain=is_plain)
        for writer, is_plain in zip(writers, (True, False), strict=True)
    )
    assert comparable(plain) == comparable(general)
    if plain[0] == 201:
        for each in (verdict, Verdict.COMMIT):
            replies = [
                writer.decide(begun[1]["transactionId"], each, reason, is_plain=is_plain)
                for writer, begun, is_plain in zip(
                    writers, (plain, general), (True, False), strict=True
                )
            ]
            assert comparable(replies[0]) == comparable(replies[1])
    assert writers[0].records(starts[0]) == writers[1].records(starts[1])


def test_plain_requests_are_no_jobs_of_a_turn(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer.service.transactions.turns, "_put", None)
    found = commit(writer, is_plain=True)
    assert (found["state"], found["messages"], found["why"]) == ("committed", 1, "producer")
    assert found["halves"][0]["opOffset"] is not None


def test_a_begin_under_a_known_key_returns_the_first_one(writer: Writer) -> None:
    body = text(uniqKey=os.urandom(8).hex())
    status, first = writer.begin(body)
    before = end(writer)
    assert writer.begin(body) == (status, first) == (201, first)
    assert writer.decide(first["transactionId"], Verdict.ROLLBACK)[0] == 200
    assert writer.begin(body)[0] == 409
    assert writer.decide(first["transactionId"], Verdict.COMMIT)[0] == 409
    assert before < end(writer)


def test_messages_without_a_queue_go_to_the_queues_in_turn(writer: Writer) -> None:
    found = [commit(writer, SPREAD, is_plain=True) for _ in range(2 * QUEUES)]
    queues = [each["halves"][0]["queueId"] for each in found]
    assert queues == [(queues[0] + number) % QUEUES for number in range(2 * QUEUES)]


def test_plain_transactions_are_counted(writer: Writer) -> None:
    traffic, counts = writer.service.metrics.traffic, writer.service.transactions.engine.counts
    before = traffic.of(TOPIC, "transaction")[0], counts.begun, appends(writer)
    commit(writer, is_plain=True)
    after = traffic.of(TOPIC, "transaction")[0], counts.begun, appends(writer)
    assert [b - a for a, b in zip(before, after, strict=True)] == [1, 1, 2]


def test_with_sync_flush_replies_wait_until_the_log_is_on_disk(
    runner: asyncio.Runner, tmp_path: Path
) -> None:
    writer = Writer(runner, tmp_path, FlushDiskType.SYNC)
    try:
        commit(writer)
        log = writer.service.store.log
        _, begun = writer.begin(text())
        assert log.flushed_offset == log.max_offset
        assert writer.decide(begun["transactionId"], Verdict.COMMIT)[0] == 200
        assert log.flushed_offset == log.max_offset
    finally:
        runner.run(writer.service.stop())


def test_a_service_that_shuts_down_begins_nothing(runner: asyncio.Runner, tmp_path: Path) -> None:
    writer = Writer(runner, tmp_path)
    commit(writer)
    runner.run(writer.service.transactions.turns.stop())
    before = end(writer)
    assert writer.begin(text())[0] == 503
    assert end(writer) == before
    runner.run(writer.service.stop())
