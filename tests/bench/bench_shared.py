"""Shared groups of ours beside RocketMQ 5's POP consumer, and beside RocketMQ 4's push consumer.

The lean client receives 32 messages and acknowledges them by one request, in turn with the peer:
POP_MESSAGE of any queue and BATCH_ACK_MESSAGE. A round's group is new, and begins at the first
message. Latency is that from the sending of a message to its receipt by a consumer that waits.

The push consumer is RocketMQ's own, in Java. It leases nothing: its broker keeps an offset of each
queue, which it commits every five seconds. It has as many threads as we have consumers.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final
from urllib.parse import urlsplit

from mqstore.storage.config import FlushDiskType
from tests.bench import exchanges, lean
from tests.bench.harness import Bench, Figures, Metric, Setting, Side
from tests.bench.lean import Exchange, Limits, Measurement
from tests.bench.rocketmq import Peer
from tests.bench.servers import Server
from tests.bench.stores import fresh_directory
from tests.bench.workload import BODY_SIZE, QUEUES, TOPIC
from tests.free_ports import free_port
from tests.services.service_processes import running

RECEIVED: Final = 32
CONSUMERS: Final = 8
PRODUCERS: Final = 8
BATCH: Final = 100
IDLE: Final = 1_000
"""Consumers that wait for a message that does not come. One of RocketMQ's gets the last message of
the topic: a new POP group begins there at the latest."""
WAIT_S: Final = 1
"""Time after which a consumer that received nothing ends."""
WARM_UP: Final = Limits(seconds=1)
PUSH_PATIENCE_S: Final = 60
"""Time after which a round of the push consumer ends that is limited by its messages only."""
PEAKS: Final = 3
"""Rounds of which the fastest is the peak."""
PEAK_S: Final = 2.0
SETTLE_S: Final = 3
"""Time in which all idle consumers connect and wait."""
IDLE_S: Final = 4
"""Time in which the cost of idle consumers is measured."""


@dataclass(frozen=True)
class _Side:
    """A server and the exchanges with it."""

    server: Server
    port: int
    fill: Exchange
    send: Exchange
    receive: Exchange
    wait: Exchange
    """A receive that waits until the end of the idle round."""


def benches(setting: Setting) -> Iterator[Bench]:
    """Rows of a backlog, of messages that are consumed as they come, and of idle consumers."""
    with ExitStack() as stack:
        sides = {"ours": stack.enter_context(_ours(setting))}
        if setting.peer is not None:
            sides["peer"] = stack.enter_context(_pop(setting))
        yield _idle(sides)
        yield _latencies(setting, sides)
        for each in sides.values():
            _fill(each.fill, each.port, 2 * setting.records)
        yield _rates(setting, sides)


def push_benches(setting: Setting) -> Iterator[Bench]:
    """Rows of a backlog that RocketMQ's push consumer consumes in turn with our shared groups."""
    with ExitStack() as stack:
        ours = stack.enter_context(_ours(setting))
        _fill(ours.fill, ours.port, 2 * setting.records)
        peer = None
        if setting.peer is not None:
            peer = stack.enter_context(_pushed(setting, setting.peer))
        yield _push_rates(setting, ours, peer)


@contextmanager
def _ours(setting: Setting) -> Iterator[_Side]:
    with (
        fresh_directory(setting.directory) as root,
        running(root / "store") as run,
        run.client() as client,
    ):
        client.create_topic(TOPIC, queues=QUEUES)
        yield _Side(
            Server(run.writer_url, (run.child("writer"), run.child("query"))),
            urlsplit(run.writer_url).port or 0,
            exchanges.our_batch(BODY_SIZE, BATCH),
            exchanges.our_send(BODY_SIZE, is_timed=True),
            exchanges.our_receive(RECEIVED, WAIT_S),
            exchanges.our_receive(RECEIVED, SETTLE_S + IDLE_S + 1),
        )


@contextmanager
def _pop(setting: Setting) -> Iterator[_Side]:
    assert setting.peer is not None
    flush = FlushDiskType.ASYNC.value
    with (
        fresh_directory(setting.directory) as root,
        setting.peer.pop.broker(root, flush) as (port, process_id),
    ):
        side = _Side(
            Server(str(port), (process_id,)),
            port,
            exchanges.their_batch(BODY_SIZE, BATCH),
            exchanges.their_send(BODY_SIZE, is_timed=True),
            exchanges.their_pop(RECEIVED, WAIT_S * 1000),
            exchanges.their_pop(RECEIVED, (SETTLE_S + IDLE_S + 1) * 1000, is_from_end=True),
        )
        lean.run(side.send, port, 1, Limits(exchanges=1))  # makes the topic
        yield side


@contextmanager
def _pushed(setting: Setting, peer: Peer) -> Iterator[_Pushed]:
    names, flush = free_port(), FlushDiskType.ASYNC.value
    with (
        fresh_directory(setting.directory) as root,
        peer.broker(root, flush, names=names) as (port, process_id),
    ):
        send = exchanges.their_send(BODY_SIZE)
        lean.run(send, port, 1, Limits(exchanges=1))  # makes the topic
        _fill(exchanges.their_batch(BODY_SIZE, BATCH), port, 2 * setting.records)
        yield _Pushed(peer, Server(str(port), (process_id,)), names, 2 * setting.records)


def _fill(send: Exchange, port: int, records: int) -> None:
    each = -(-records // (PRODUCERS * BATCH))
    lean.run(send, port, PRODUCERS, Limits(exchanges=each))


# a backlog


def _rates(setting: Setting, sides: dict[str, _Side]) -> Bench:
    name = f"shared receive and ack of {RECEIVED}, {CONSUMERS} consumers"
    short = WARM_UP if setting.round.seconds else setting.round
    measured = {key: _Backlog(side, setting.round) for key, side in sides.items()}
    return Bench(
        [
            Metric("rate", name, "messages/s", record_size=BODY_SIZE),
            Metric("server", f"{name}, server's cost", "µs a message", higher_is_better=False),
            Metric("client", f"{name}, client's cost", "µs a message", higher_is_better=False),
            Metric("p50", f"{name}, p50", "ms", higher_is_better=False),
            Metric("p99", f"{name}, p99", "ms", higher_is_better=False),
        ],
        measured["ours"],
        measured.get("peer"),
        processes={},
        warm_up={key: _Backlog(side, short) for key, side in sides.items()},
    )


@dataclass
class _Backlog:
    """A round over messages that are there; by a new group."""

    side: _Side
    limits: Limits

    def __call__(self) -> Figures:
        side = self.side
        found = lean.run(side.receive, side.port, CONSUMERS, self.limits, side.server.process_ids)
        return {
            "rate": found.messages / found.seconds,
            "server": found.server_us,
            "client": found.client_us,
            "p50": found.p50_ms,
            "p99": found.p99_ms,
        }


# a backlog, beside a push consumer


def _push_rates(setting: Setting, ours: _Side, peer: _Pushed | None) -> Bench:
    name = (
        f"receive and ack of {RECEIVED}, {CONSUMERS} consumers; push consumer, {CONSUMERS} threads"
    )
    short = WARM_UP if setting.round.seconds else setting.round
    warm_up: dict[str, Side] = {"ours": _Backlog(ours, short)}
    if peer is not None:
        warm_up["peer"] = partial(peer.consume, short)
    return Bench(
        [
            Metric("rate", name, "messages/s", record_size=BODY_SIZE),
            Metric("server", f"{name}, server's cost", "µs a message", higher_is_better=False),
            Metric("client", f"{name}, client's cost", "µs a message", higher_is_better=False),
        ],
        _Backlog(ours, setting.round),
        None if peer is None else partial(peer.consume, setting.round),
        processes={},
        warm_up=warm_up,
    )


@dataclass(frozen=True)
class _Pushed:
    """A broker with a backlog, and the program that consumes it by RocketMQ's push consumer."""

    peer: Peer
    broker: Server
    names: int
    """Port of the name server that leads to the broker."""
    backlog: int

    def consume(self, limits: Limits) -> Figures:
        """A round over messages that are there; by a new group."""
        wanted = limits.exchanges * RECEIVED * CONSUMERS or self.backlog
        before = self.broker.cpu_s()
        found = self.peer.request(
            "push",
            names=self.names,
            group=f"{exchanges.GROUP}-{lean.new_run_id()}",
            threads=CONSUMERS,
            batch=RECEIVED,
            messages=min(wanted, self.backlog),
            millis=round((limits.seconds or PUSH_PATIENCE_S) * 1000),
        )
        cost_us = (self.broker.cpu_s() - before) / found["consumed"] * 1e6
        return {"rate": found["rate"], "server": cost_us, "client": found["client"]}


# messages that are consumed as they come


def _latencies(setting: Setting, sides: dict[str, _Side]) -> Bench:
    name = "shared, from send to receive at half of the peak"
    loads = {key: _Load(side, setting.round) for key, side in sides.items()}
    return Bench(
        [
            Metric("rate", f"{name}, load", "messages/s"),
            Metric("p50", f"{name}, p50", "ms", higher_is_better=False),
            Metric("p99", f"{name}, p99", "ms", higher_is_better=False),
            Metric("server", f"{name}, server's cost", "µs a message", higher_is_better=False),
        ],
        loads["ours"],
        loads.get("peer"),
        processes={},
    )


class _Load:
    """A round of producers at half of the peak; the first round measures the peak."""

    def __init__(self, side: _Side, limits: Limits) -> None:
        self._side = side
        self._limits = limits
        self._peak = 0.0
        self._run_id = lean.new_run_id()
        """The id of all rounds, so that one group goes on."""

    def __call__(self) -> Figures:
        if not self._peak:
            seconds = min(PEAK_S, self._limits.seconds)
            for _ in range(PEAKS):
                found = self._round(Limits(seconds, self._limits.exchanges))
                self._peak = max(self._peak, found.messages / found.seconds)
        limits = Limits(self._limits.seconds, self._limits.exchanges, self._peak / 2)
        found = self._round(limits)
        return {
            "rate": found.messages / found.seconds,
            "p50": found.arrival_p50_ms,
            "p99": found.arrival_p99_ms,
            "server": found.server_us,
        }

    def _round(self, limits: Limits) -> Measurement:
        """Return what consumers received; they end when they have waited for WAIT_S in vain."""
        side = self._side
        with ThreadPoolExecutor(1) as pool:
            consuming = pool.submit(
                lean.run,
                side.receive,
                side.port,
                CONSUMERS,
                Limits(seconds=limits.seconds + 3 * WAIT_S),
                side.server.process_ids,
                self._run_id,
            )
            lean.run(side.send, side.port, PRODUCERS, limits)
            return consuming.result()


# idle consumers


def _idle(sides: dict[str, _Side]) -> Bench:
    name = f"{IDLE:,} consumers that wait, server's cost"
    costs = {key: _Idle(side) for key, side in sides.items()}
    metric = Metric("idle", name, "% of a core", higher_is_better=False)
    return Bench([metric], costs["ours"], costs.get("peer"), processes={})


@dataclass
class _Idle:
    """A round in which all consumers wait; what the server costs meanwhile."""

    side: _Side

    def __call__(self) -> Figures:
        side = self.side
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(lean.receive_once, side.wait, side.port, IDLE)
            time.sleep(SETTLE_S)
            began_s, cpu_s = time.monotonic(), side.server.cpu_s()
            time.sleep(IDLE_S)
            share = (side.server.cpu_s() - cpu_s) / (time.monotonic() - began_s)
            waiting.result()
        return {"idle": 100 * share}
