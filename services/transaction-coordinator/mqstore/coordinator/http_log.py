"""The coordinator's log over the services' REST API: store-writer appends, query reads."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any, Final, TypeVar

import msgspec

from mqstore.client import Client, ClientError, Message, ProblemError, Store
from mqstore.client.again import NOTHING_STORED
from mqstore.coordinator.connection import Connection
from mqstore.coordinator.errors import (
    CoordinatorError,
    Fenced,
    KeysKnown,
    LogRefused,
    LogUnavailable,
    NotLoaded,
    Reopened,
)
from mqstore.coordinator.log import Kinds, LogPosition, QueueOffsets, Standing
from mqstore.coordinator.records import Append, Key, Keyed, NewRecord, Page, Placement, Stored
from mqstore.storage.layout import HALF_TOPIC, OP_TOPIC, TRANSACTION_GROUP, StoreFormat

FENCE: Final = "transaction-coordinator"
KEYED_MAX: Final = 64
KINDS_AT_ONCE: Final = 1_000
"""Keys of one request, as store-writer takes them."""
POLL_S: Final = 0.02
PATIENCE_S: Final = 30.0
"""How long a takeover waits until all that was appended is readable and on disk."""
UNKNOWN: Final = frozenset({"topic-unknown", "queue-unknown"})
REFUSED: Final = range(400, 500)
_APPEND: Final = "/v1/internal/append"
_FAILURES: Final = (ClientError, OSError)

T = TypeVar("T")


class _Placed(msgspec.Struct, rename="camel", gc=False):
    queue_offset: int
    physical_offset: int
    size: int
    store_timestamp: int


class _Appended(msgspec.Struct, gc=False):
    records: list[_Placed]
    readable: bool


class HttpLog:
    """A ``mqstore.coordinator.log.Log``, used by a thread, and a ``SoonLog`` of an event loop."""

    def __init__(
        self,
        client: Client,
        appends: Connection,
        shard: int,
        store_host: str,
        reserved_ms: int,
        next_epoch: Callable[[int], int],
    ) -> None:
        """On the event loop. ``appends`` is a connection of its own to store-writer; ``next_epoch``
        as ``Leadership.next_epoch``."""
        self._loop = asyncio.get_running_loop()
        self._client = client
        self._appends = appends
        self._appended = msgspec.json.Decoder(_Appended)
        self._shard = shard
        self._next_epoch = next_epoch
        self._host = store_host
        self._reserved_ms = reserved_ms
        self._epoch = -1
        self._opening = -1
        """The store's own epoch at the take-over."""
        self._answers = 0

    @property
    def answers(self) -> int:
        return self._answers

    def take_over(self) -> Standing:
        store = self._call(self._client.store)
        if store.shard != self._shard:
            raise LogUnavailable(
                f"the store of shard {store.shard} is where shard {self._shard} should be; "
                "mend writerUrl and queryUrl, or shardsFile"
            )
        self._opening = store.epoch
        self._epoch = self._call(self._raised)
        self._call(self._client.flush)
        store = self._store()
        deadline = time.monotonic() + PATIENCE_S
        end = store.max_offset
        while store.flushed_offset < end or store.dispatched_offset < end:
            if time.monotonic() > deadline:
                raise LogUnavailable(f"the log up to {end} is not on disk and in its queues yet")
            time.sleep(POLL_S)
            store = self._store()
        return Standing(StoreFormat(store.format), self._host, self._reserved_ms)

    def append(self, records: Sequence[NewRecord]) -> list[Placement]:
        appending = self.append_soon(Append(records))
        return asyncio.run_coroutine_threadsafe(appending, self._loop).result()

    async def append_soon(self, append: Append) -> list[Placement]:
        request: dict[str, Any] = {
            "fence": {"name": FENCE, "epoch": self._epoch},
            "records": append.records,
        }
        if append.absent:
            request["absent"] = append.absent
        try:
            reply = self._answer(await self._appends.post(_APPEND, _encode(request)))
        except _FAILURES as error:
            raise _error_of(error, is_conditional=bool(append.absent)) from error
        if not reply.readable:
            end = max(placed.physical_offset + placed.size for placed in reply.records)
            await asyncio.to_thread(self._wait_until_readable, end)
        return [
            Placement(placed.queue_offset, placed.physical_offset, placed.store_timestamp)
            for placed in reply.records
        ]

    def _wait_until_readable(self, end: int) -> None:
        """Raises LogUnavailable."""
        deadline = time.monotonic() + PATIENCE_S
        while self._store().dispatched_offset < end:
            if time.monotonic() > deadline:
                raise LogUnavailable("what was appended cannot be read yet")
            time.sleep(POLL_S)

    def read(self, topic: str, queue_id: int, offset: int, count: int) -> Page:
        found = self._known(lambda: self._client.pull(topic, queue_id, offset, max_messages=count))
        if found is None:
            return Page([], 0, 0, 0)
        records = [_stored(each) for each in found.messages]
        return Page(records, found.next, found.min_offset, found.max_offset)

    def by_key(self, topic: str, key: str) -> Keyed:
        found = self._known(lambda: self._client.messages_by_key(topic, key, limit=KEYED_MAX))
        if found is None:
            return Keyed()
        complete = found.complete or found.next is not None
        return Keyed([_stored(each) for each in found.messages], complete)

    def kinds(self, keys: Sequence[Key]) -> Kinds:
        found: dict[Key, frozenset[int]] = {}
        for first in range(0, len(keys), KINDS_AT_ONCE):
            some = keys[first : first + KINDS_AT_ONCE]
            names = [(each.topic, each.key) for each in some]
            reply = self._call(partial(self._client.transaction_kinds, names))
            if not reply.complete:
                raise NotLoaded("the store's index is being rebuilt; transactions wait for it")
            kinds = zip(some, reply.kinds, strict=True)
            found |= {key: frozenset(each) for key, each in kinds if each}
        return found

    def sync(self) -> None:
        self._call(self._client.flush)

    def position(self) -> LogPosition:
        store = self._store()
        return LogPosition(store.flushed_offset, store.max_offset)

    def offsets(self) -> QueueOffsets:
        saved = {}
        for topic in (HALF_TOPIC, OP_TOPIC):
            found = self._known(partial(self._client.offsets, TRANSACTION_GROUP, topic=topic))
            for each in () if found is None else found.offsets:
                if each.committed is not None:
                    saved[topic, each.queue_id] = each.committed
        return saved

    def save_offsets(self, offsets: QueueOffsets) -> None:
        for (topic, queue_id), offset in offsets.items():
            new = {queue_id: offset}
            commit = partial(self._client.commit, TRANSACTION_GROUP, topic, new)
            self._call(partial(commit, allow_back=True))

    def _store(self) -> Store:
        """As it is now. Raises Reopened."""
        store = self._call(self._client.store)
        if store.epoch != self._opening:
            raise Reopened("the store was opened again; it is read again")
        return store

    def _answer(self, response: tuple[int, bytes]) -> _Appended:
        """Raises ProblemError, ClientError."""
        status, body = response
        try:
            if status == HTTPStatus.CREATED:
                return self._appended.decode(body)
            problem = msgspec.json.decode(body, type=dict[str, Any])
        except msgspec.MsgspecError as error:
            raise ClientError(f"{_APPEND} answered {status} with what is not known") from error
        raise ProblemError(status, problem)

    def _raised(self) -> int:
        """Our own epoch. Raises NotLeading."""
        try:
            present = self._client.fence(FENCE).epoch
        except ProblemError as error:
            if error.type != "fence-unknown":
                raise
            present = 0
        return self._client.raise_fence(FENCE, self._next_epoch(present)).epoch

    def _call(self, call: Callable[[], T]) -> T:
        """Raises LogRefused, Fenced, LogUnavailable."""
        try:
            found = call()
        except _FAILURES as error:
            raise _error_of(error) from error
        self._answers += 1
        return found

    def _known(self, call: Callable[[], T]) -> T | None:
        """None for a topic or queue that is not there (yet)."""
        try:
            return self._call(call)
        except LogRefused as error:
            name = str(error.problem.get("type", "")).rpartition(":")[2]
            if name in UNKNOWN:
                return None
            raise LogUnavailable(str(error)) from error


def _error_of(error: Exception, *, is_conditional: bool = False) -> CoordinatorError:
    """The coordinator's error for a failed request.

    ``is_conditional``: the append names absent keys, which a store-writer of an earlier release
    does not understand."""
    if not isinstance(error, ProblemError):
        return LogUnavailable(str(error))
    if error.type == "fenced-off":
        return Fenced(error.detail)
    if error.type == "fence-unknown":  # the store was opened again since our take-over
        return LogUnavailable(error.detail)
    if error.type == "keys-known" or (is_conditional and error.type == "body-invalid"):
        return KeysKnown(error.detail, error.problem)
    # Of the others only these say for sure that nothing was stored.
    if error.status in REFUSED or error.type in NOTHING_STORED:
        return LogRefused(error.detail, error.problem)
    return LogUnavailable(str(error))


_encode: Final = msgspec.json.Encoder().encode


def _stored(found: Message) -> Stored:
    record = NewRecord(
        found.topic,
        found.queue_id,
        found.body_bytes,
        found.properties,
        found.born_host,
        found.born_timestamp,
        found.flag,
        found.sys_flag,
        found.reconsume_times,
        found.prepared_transaction_offset,
    )
    return Stored(record, found.queue_offset, found.physical_offset, found.store_timestamp)
