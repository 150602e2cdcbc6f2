"""The shards whose half queues this process watches, each with a coordinator and its thread.

A transaction lives on one shard, and its id says which. What concerns one shard stops no other.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final
from zlib import crc32

from mqstore.client import Client, Topic
from mqstore.coordinator.connection import Connection
from mqstore.coordinator.coordinator import Coordinator
from mqstore.coordinator.errors import NotLoaded, TransactionUnknown
from mqstore.coordinator.http_log import HttpLog
from mqstore.coordinator.leadership import Leadership
from mqstore.coordinator.schedule import Rules
from mqstore.coordinator.topics import Topics
from mqstore.coordinator.transactions import Transaction, Transactions
from mqstore.coordinator.worker import Worker
from mqstore.service import membership, problems
from mqstore.service.auth import OwnToken
from mqstore.service.problems import Problem
from mqstore.service.settings import Settings
from mqstore.storage.codec.message_id import UniqueKeys
from mqstore.storage.system.threads import production_seams

HOUR_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True)
class Shard:
    """One store-writer, and what coordinates its transactions."""

    ordinal: int
    writer_url: str
    client: Client
    appends: Connection
    topics: Topics
    coordinator: Coordinator
    worker: Worker

    @property
    def pending(self) -> list[Transaction]:
        """Without a decision, as far as is known."""
        state = self._state
        return [] if state is None else list(state.pending.values())

    @property
    def set_aside(self) -> int:
        """How many a person is to decide."""
        state = self._state
        return 0 if state is None else len(state.set_aside)

    @property
    def _state(self) -> Transactions | None:
        try:
            return self.coordinator.state
        except NotLoaded:
            return None


class Shards:
    """All of them. May be read from any thread."""

    def __init__(self, shards: list[Shard]) -> None:
        self._shards = {shard.ordinal: shard for shard in shards}
        self._turn = 0

    def __iter__(self) -> Iterator[Shard]:
        return iter(self._shards.values())

    @property
    def trouble(self) -> str | None:
        """Why nothing can be begun or decided on any of them, or None."""
        troubles = [shard.worker.trouble for shard in self]
        return None if None in troubles else troubles[0]

    def start(self) -> None:
        for shard in self:
            shard.worker.start()

    def stop(self) -> None:
        """Returns when every thread has ended."""
        for shard in self:
            shard.worker.interrupt()
        for shard in self:
            shard.worker.stop()
            shard.client.close()

    def disconnect(self) -> None:
        """After ``stop``; on the event loop."""
        for shard in self:
            shard.appends.close()

    def find(self, transaction_id: str) -> tuple[Shard, str]:
        """The shard that an id names, and the transaction's key. Raises TransactionUnknown."""
        ordinal, _, key = transaction_id.partition("-")
        shard = self._shards.get(int(ordinal)) if ordinal.isascii() and ordinal.isdigit() else None
        if shard is None or not key:
            known = ", ".join(map(str, self._shards))
            raise TransactionUnknown(f"{transaction_id!r} is no transaction of shards {known}")
        return shard, key

    def choose(self, ordinal: int | None, uniq_key: str | None) -> Shard | None:
        """Where to begin a transaction: where it is asked for (None: there is no such shard); under
        a key that may be sent again always in the same place; else in turn where it can be."""
        if ordinal is not None:
            return self._shards.get(ordinal)
        every = list(self)
        if uniq_key is not None:
            return every[crc32(uniq_key.encode()) % len(every)]
        able = [shard for shard in every if shard.worker.trouble is None] or every
        self._turn += 1
        return able[self._turn % len(able)]

    async def place(self, shard: Shard, topic: str, *, is_fixed: bool) -> tuple[Shard, Topic]:
        """Where to begin a transaction of a topic: on ``shard``, and what it says of the topic.

        A new shard copies the topics of the others. While it lacks one that another shard has, the
        transaction begins there, or has to wait if its shard ``is_fixed``. Raises Problem (503: try
        again; 404: no shard has the topic), TopicNameError.
        """
        try:
            return shard, await shard.topics.writable(topic)
        except Problem as problem:
            if problem.kind is not problems.TOPIC_UNKNOWN:
                raise
            for other in self:
                found = None if other is shard else await other.topics.find(topic)
                if found is None:
                    continue
                if is_fixed:
                    why = f"shard {shard.ordinal} does not have topic {topic} yet; try again"
                    raise Problem(problems.COORDINATOR_NOT_READY, why) from problem
                return other, found
            raise


def shards_of(
    settings: Settings,
    leadership: Leadership,
    keys: UniqueKeys,
    tls: ssl.SSLContext | None,
    failed: Callable[[BaseException], None],
) -> Shards:
    """As ``shardsFile`` lists them at the start, else the one that the settings name; ``failed`` as
    of a Worker. Raises Refused."""
    token = OwnToken(settings.tokens)
    rules = Rules(
        settings.transaction_time_out,
        settings.transaction_check_interval,
        settings.transaction_check_max,
    )
    reserved_ms = settings.store_config.file_reserved_time * HOUR_MS
    shards, places = [], _places(settings)
    for ordinal, host, writer_url, query_url in places:
        # A single one is not named: releases that know of no other refuse the parameter.
        named = ordinal if len(places) > 1 else None
        client = Client(writer_url, query_url, token=token, tls=tls, shard=named)
        appends = Connection(writer_url, token=token, tls=tls)
        log = HttpLog(client, appends, ordinal, host, reserved_ms, leadership.next_epoch)
        coordinator = Coordinator(log, production_seams().clock, keys, rules)
        topics, worker = Topics(client), Worker(coordinator, log, leadership, failed)
        shards.append(Shard(ordinal, writer_url, client, appends, topics, coordinator, worker))
    return Shards(shards)


def _places(settings: Settings) -> list[tuple[int, str, str, str]]:
    """Number, STOREHOST, store-writer and query of each shard. Raises Refused."""
    if settings.shards_file is None:
        urls = settings.writer_url, settings.query_url
        return [(settings.shard, settings.store_host, *urls)]
    return [
        (each.shard, each.store_host, each.writer_url, each.query_url)
        for each in membership.read(settings.shards_file).shards
    ]
