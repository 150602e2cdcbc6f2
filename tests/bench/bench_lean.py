"""Sends, pulls, look-ups and transactions of the lean client, on our services and on a real broker.

The same program, `lean.c`, loads both sides: our HTTP, and the remoting protocol with frames as
RocketMQ's Java client encodes them. A connection sends the next request after the reply to the one
before; both sides reply to a commit once it is stored. Our cost and memory are those of
store-writer and query together for messages that are stored, and those of query for pulls. Rows
with deduplication off exist because a broker does not deduplicate.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from mqstore.client import Client
from mqstore.storage.codec import message_id
from mqstore.storage.config import FlushDiskType, StoreConfig
from tests.bench import exchanges, lean, servers
from tests.bench.bench_pulls import PULL, end_of_queues, serve_broker, serve_query
from tests.bench.bench_pulls import SEGMENT as PULL_SEGMENT
from tests.bench.bench_reads import SEED
from tests.bench.failures import SideError
from tests.bench.harness import Bench, Figures, Metric, Setting
from tests.bench.lean import Exchange, Limits
from tests.bench.memory import MIB
from tests.bench.servers import Server
from tests.bench.stores import Filled, filled_store
from tests.bench.workload import BODY_SIZE, HOST, QUEUES

BATCH: Final = 100
CONNECTIONS: Final = (1, 8, 32)
READERS: Final = (1, 8)
LOOKUP_CONNECTIONS: Final = (1, 8)
LOOKUPS_SHARE: Final = 400
"""An exchange, which a connection repeats, has one look-up for so many records of the run."""
LOOKUPS: Final = 100
"""Look-ups of one request."""
LOOKUP: Final = "look-up"
READ_SHARE: Final = 4
"""The part of the log's size that is read: so much stays in the page cache for both sides."""
WARM_UP: Final = Limits(seconds=1)
WINDOW: Final = StoreConfig.model_fields["unique_key_window_count"].default
"""Unique keys that store-writer remembers; 0 deduplicates nothing."""


@dataclass(frozen=True)
class Load:
    """The requests of the connections; each side has its exchange of the same messages."""

    name: str
    ours: Exchange
    theirs: Exchange
    unit: str = "message"
    is_stored: bool = True
    has_latency: bool = True
    """False: an exchange is of many requests."""


@dataclass(frozen=True)
class Services:
    """One start of both sides: how they flush, whether ours deduplicates, and the loads."""

    load: Load
    flush: FlushDiskType = FlushDiskType.ASYNC
    is_deduplicated: bool = True
    connections: tuple[int, ...] = CONNECTIONS
    through_coordinator: bool = False

    def name(self, connections: int) -> str:
        """The name of the row."""
        count = "1 connection" if connections == 1 else f"{connections} connections"
        flush = ", sync flush" if self.flush is FlushDiskType.SYNC else ""
        window = "" if self.is_deduplicated else ", deduplication off"
        door = " through the coordinator" if self.through_coordinator else ""
        return f"lean {self.load.name}{door}, {count}{flush}{window}"


SINGLE: Final = Load("sends 1 KiB", exchanges.our_send(BODY_SIZE), exchanges.their_send(BODY_SIZE))
BATCHED: Final = Load(
    f"sends 1 KiB in batches of {BATCH}",
    exchanges.our_batch(BODY_SIZE, BATCH),
    exchanges.their_batch(BODY_SIZE, BATCH),
)
TRANSACTION: Final = Load(
    "transactions 1 KiB",
    exchanges.our_transaction(BODY_SIZE),
    exchanges.their_transaction(BODY_SIZE),
    "transaction",
)


def send_benches(setting: Setting) -> Iterator[Bench]:
    """Single sends, async and sync, and batches; each with deduplication on and off."""
    for flush in FlushDiskType:
        for is_deduplicated in (True, False):
            yield from _benches(setting, Services(SINGLE, flush, is_deduplicated))
    for connections in CONNECTIONS:  # a row's log has gigabytes, and goes before the next one
        for is_deduplicated in (True, False):
            services = Services(BATCHED, FlushDiskType.ASYNC, is_deduplicated, (connections,))
            yield from _benches(setting, services)


def transaction_benches(setting: Setting) -> Iterator[Bench]:
    """Begin and commit of one message, async and sync."""
    for flush in FlushDiskType:
        yield from _benches(setting, Services(TRANSACTION, flush))


def coordinator_benches(setting: Setting) -> Iterator[Bench]:
    """As ``transaction_benches``, at the port that producers are given."""
    for flush in FlushDiskType:
        yield from _benches(setting, Services(TRANSACTION, flush, through_coordinator=True))


def replicated_benches(setting: Setting) -> Iterator[Bench]:
    """Single sends whose replies wait for a second copy, on the same machine.

    A follower of ours acknowledges what is on its disk, and with haFlushDiskType=ASYNC_FLUSH what
    is in its page cache, as a slave of RocketMQ does.
    """
    for flush in FlushDiskType:
        place = "disk" if flush is FlushDiskType.SYNC else "page cache"
        with servers.leader(setting, flush) as ours, servers.master(setting) as master:
            for connections in CONNECTIONS:
                count = "1 connection" if connections == 1 else f"{connections} connections"
                name = f"lean replicated {SINGLE.name}, {place}, {count}"
                yield _bench(setting, SINGLE, name, connections, ours, master)


def pull_benches(setting: Setting) -> Iterator[Bench]:
    """Pulls of a filled store's queues."""
    size = (setting.log_mib << 20) // READ_SHARE
    with (
        filled_store(setting.directory, PULL_SEGMENT, size) as filled,
        serve_query(filled) as ours,
        serve_broker(setting, filled) as broker,
    ):
        end = end_of_queues(filled)
        ours_exchange, theirs = exchanges.our_pull(PULL, end), exchanges.their_pull(PULL, end)
        load = Load(f"pulls of {PULL}", ours_exchange, theirs, is_stored=False)
        for readers in READERS:
            name = f"lean {load.name}, {'1 reader' if readers == 1 else f'{readers} readers'}"
            yield _bench(setting, load, name, readers, ours, broker)


def lookup_benches(setting: Setting) -> Iterator[Bench]:
    """Look-ups by id and by time of a filled store, one and many in a request; RocketMQ has no
    request for many."""
    size = (setting.log_mib << 20) // READ_SHARE
    with (
        filled_store(setting.directory, PULL_SEGMENT, size) as filled,
        serve_query(filled) as ours,
        serve_broker(setting, filled) as broker,
    ):
        for load in _lookups(filled, ours, max(10, setting.records // LOOKUPS_SHARE)):
            for connections in LOOKUP_CONNECTIONS:
                count = "1 connection" if connections == 1 else f"{connections} connections"
                name = f"lean {load.name}, {count}"
                yield _bench(setting, load, name, connections, ours, broker)


def _lookups(filled: Filled, ours: Server, count: int) -> Iterator[Load]:
    chosen = random.Random(SEED)
    offsets = [filled.offsets[chosen.randrange(filled.records)] for _ in range(count)]
    ids = [message_id.encode(HOST, each) for each in offsets]
    with Client(query_url=ours.address) as client:
        found = [client.message_at(filled.offsets[each]).store_timestamp for each in (0, -1)]
        batch = client.messages_by_id(ids[:LOOKUPS]).results
        assert all(each.message for each in batch), "each id has a message"
    searches = [(number % QUEUES, chosen.randint(*found)) for number in range(count)]
    by_id, by_time = exchanges.their_messages(offsets), exchanges.their_offsets(searches)
    for each in (1, LOOKUPS):
        times = "" if each == 1 else f", {each} in a request"
        name, mine = f"look-ups by id{times}", exchanges.our_messages(ids, each)
        yield Load(name, mine, by_id, is_stored=False, has_latency=False)
        name, mine = f"offsets by time{times}", exchanges.our_offsets(searches, each)
        yield Load(name, mine, by_time, LOOKUP, is_stored=False, has_latency=False)


def _benches(setting: Setting, services: Services) -> Iterator[Bench]:
    window = WINDOW if services.is_deduplicated else 0
    with (
        servers.services(
            setting,
            services.flush,
            coordinator=services.through_coordinator,
            unique_key_window_count=window,
        ) as run,
        servers.broker(setting, services.flush) as broker,
    ):
        ours = Server(run.writer_url, (run.child("writer"), run.child("query")))
        if services.through_coordinator:
            ours = Server(run.coordinator_url, (*ours.process_ids, run.child("coordinator")))
        for connections in services.connections:
            name = services.name(connections)
            yield _bench(setting, services.load, name, connections, ours, broker)


def _bench(
    setting: Setting, load: Load, name: str, connections: int, ours: Server, broker: Server | None
) -> Bench:
    def side(server: Server, exchange: Exchange, limits: Limits) -> Callable[[], Figures]:
        return partial(_round, server, exchange, connections, limits)

    sides = {"ours": (ours, load.ours)}
    if broker is not None:
        sides["peer"] = (broker, load.theirs)
    short = WARM_UP if setting.round.seconds else setting.round
    return Bench(
        _metrics(name, load),
        side(*sides["ours"], setting.round),
        side(*sides["peer"], setting.round) if broker is not None else None,
        processes={},
        warm_up={each: side(*sides[each], short) for each in sides},
    )


def _metrics(name: str, load: Load) -> list[Metric]:
    lower = partial(Metric, higher_is_better=False)
    each, has_bodies = f"a {load.unit}", load.unit != LOOKUP
    metrics = [
        Metric("rate", name, f"{load.unit}s/s", record_size=BODY_SIZE if has_bodies else None),
        lower("server", f"{name}, server's cost", f"µs {each}"),
        lower("client", f"{name}, client's cost", f"µs {each}"),
    ]
    if load.has_latency:
        metrics += [lower("p50", f"{name}, p50", "ms"), lower("p99", f"{name}, p99", "ms")]
    metrics.append(lower("memory", f"{name}, memory (RSS)", "MiB"))
    if load.is_stored:
        metrics.append(lower("disk", f"{name}, written to the disk", f"bytes {each}"))
    return metrics


def _round(server: Server, exchange: Exchange, connections: int, limits: Limits) -> Figures:
    written = _written_bytes(server)
    found = lean.run(exchange, _port(server), connections, limits, server.process_ids)
    return {
        "messages": found.messages,
        "rate": found.messages / found.seconds,
        "server": found.server_us,
        "client": found.client_us,
        "p50": found.p50_ms,
        "p99": found.p99_ms,
        "memory": _resident_bytes(server) / MIB,
        "disk": (_written_bytes(server) - written) / found.messages,
    }


def _port(server: Server) -> int:
    """The port of a URL of ours, or of a broker's address."""
    return urlsplit(server.address).port or int(server.address)


def _written_bytes(server: Server) -> int:
    """Bytes that the processes caused to be written, by pages when they become dirty."""
    return sum(_field(each, "io", "write_bytes") for each in server.process_ids)


def _resident_bytes(server: Server) -> int:
    """RSS of the processes, mapped files included."""
    return sum(_field(each, "status", "VmRSS") << 10 for each in server.process_ids)


def _field(process_id: int, file: str, name: str) -> int:
    try:
        lines = Path(f"/proc/{process_id}/{file}").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError) as error:
        raise SideError(f"the server's process {process_id} has ended") from error
    found = [line.split()[1] for line in lines if line.startswith(f"{name}:")]
    if not found:
        raise SideError(f"the server's process {process_id} has ended")
    return int(found[0])
