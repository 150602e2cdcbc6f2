"""A store's life between a real broker and us: what each side does to it, and an account of what
was sent and who has consumed it."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from mqstore.client import Client, LeasedMessage, NewMessage, ReceiptStatus
from tests.compat import ours
from tests.compat.referee import Referee, StatesBroker
from tests.services.service_processes import running

Kind = Literal["push", "pull", "pop", "order"]
"""``order`` is POP that holds a queue until it has acknowledged all that it took of it."""
KINDS: Final[tuple[Kind, ...]] = ("push", "pull", "pop", "order")
KINDS_OF_4: Final[tuple[Kind, ...]] = ("push", "pull")
NOT_OURS: Final = {"enableControllerMode"}
"""Settings of a broker.conf that mqstore refuses, with the line to remove."""
PATIENCE_S: Final = 120
LEVELS: Final = "1s 1s 1s 2s"
"""A message that is sent back waits level 3 first."""
QUEUES: Final = 3
PRODUCERS: Final = "states"
"""The producer group of States.java."""
POP_INVISIBLE_MS: Final = 5_000
POP_ROUNDS: Final = 3
"""Requests of a group that consumes a part."""


@dataclass
class Group:
    """One consumer group of one topic."""

    name: str
    kind: Kind
    settled: set[str] = field(default_factory=set)
    """Bodies that it has consumed, and its broker or store-writer knows it."""
    unsure: set[str] = field(default_factory=set)
    """Bodies that a kill may have left to be delivered again."""
    seen: Counter[str] = field(default_factory=Counter)


@dataclass
class Account:
    """The messages of one topic, and its consumers."""

    topic: str
    sent: list[str] = field(default_factory=list)
    """Bodies that consumers are to see, some of them after a delay."""
    hidden: set[str] = field(default_factory=set)
    """Bodies of transactions that are not committed."""
    delayed: set[str] = field(default_factory=set)
    """Bodies that a timer or a delay level delivers."""
    groups: dict[str, Group] = field(default_factory=dict)
    _number: int = 0

    def new(self, kind: str, count: int) -> list[str]:
        """Return bodies that no other message has."""
        self._number += count
        return [f"{kind}-{number}" for number in range(self._number - count, self._number)]

    def due(self, group: Group) -> list[str]:
        """Return the bodies that the group must still consume."""
        return [body for body in self.sent if body not in group.settled]

    def note(self, group: Group, seen: Iterable[str], settled: Iterable[str]) -> None:
        """Note deliveries. A body that was not sent, or one that was settled, is an error."""
        deliveries = list(seen)
        known = set(self.sent)
        again = group.settled - group.unsure
        assert not set(deliveries) - known, f"{group.name} got what was not to be seen"
        twice = set(deliveries) & again
        assert not twice, f"{group.name} got again what it had settled: {twice}"
        group.seen.update(deliveries)
        group.settled.update(settled)

    def note_kill(self) -> None:
        """After a kill, what a group has taken may be there twice: where it was, as the group's
        offset is lost, and as a copy that is delivered again. A delayed message may be in its
        queue twice before any group has taken it: the timer repeats what it did after its last
        checkpoint."""
        for group in self.groups.values():
            group.unsure.update(group.seen, self.delayed)


class BrokerSide:
    """A broker's part of a store's life."""

    def __init__(self, broker: StatesBroker, account: Account, rng: random.Random) -> None:
        self.broker, self.account, self.rng = broker, account, rng

    def send(self, count: int, **how: Any) -> None:
        """Send messages; ``level`` or ``delayMs`` delays them."""
        bodies = self.account.new("broker", count)
        self.broker.do("send", topic=self.account.topic, bodies=bodies, **how)
        self.account.sent += bodies
        if how.keys() & {"level", "delayMs"}:
            self.account.delayed.update(bodies)

    def transact(self, committed: int, rolled_back: int, pending: int, visible: int) -> None:
        """``visible``: messages that are in the topic's queues, without these."""
        account = self.account
        bodies = account.new("transaction", committed + rolled_back + pending)
        says = ["commit"] * committed + ["rollback"] * rolled_back + ["unknown"] * pending
        sends = dict(zip(bodies, says, strict=True))
        self.broker.do("transact", topic=account.topic, sends=sends, visible=visible + committed)
        account.sent += bodies[:committed]
        account.hidden.update(bodies[committed:])

    def fan_out(self, count: int, queue: Account) -> None:
        """Send messages that are in a light queue (LMQ) too, which is an account of its own."""
        bodies = self.account.new("fanned", count)
        self.broker.do(
            "send",
            topic=self.account.topic,
            bodies=bodies,
            properties={"INNER_MULTI_DISPATCH": f"{queue.topic},%LMQ%other"},
        )
        self.account.sent += bodies
        queue.sent += bodies

    def consume_light(self, queue: Account, *, part: bool) -> None:
        """Let each group of a light queue read some of it, or all."""
        for group in queue.groups.values():
            count = self.rng.randint(1, 4) if part else 1 << 16
            seen = self.broker.do("pull", group=group.name, topic=queue.topic, count=count)
            queue.note(group, seen, seen)

    def consume(self, group: Group, *, part: bool) -> None:
        """Let a group consume all that is due, or a part of it."""
        account, topic = self.account, self.account.topic
        due = account.due(group)
        if group.kind == "push":
            fails = self.rng.sample(due, min(len(due), 1)) if part else []
            seen = self.broker.do("push", group=group.name, topic=topic, bodies=due, fails=fails)
            again = {body for body in fails if seen.count(body) < 2}
            account.note(group, seen, set(due) - again)
        elif group.kind == "pull":
            count = self.rng.randint(1, 4) if part else 1 << 16
            seen = self.broker.do("pull", group=group.name, topic=topic, count=count)
            if not part:
                self._pull_rest(group, seen)
            account.note(group, seen, seen)
        else:
            chosen = due if not part else self.rng.sample(due, len(due) // 2)
            if part and group.kind == "order":
                chosen = []  # a queue that is not acknowledged is held
            how: dict[str, Any] = {"order": True} if group.kind == "order" else {}
            how |= {"rounds": POP_ROUNDS} if part else {}
            seen = self.broker.do(
                "pop",
                group=group.name,
                topic=topic,
                bodies=due,
                ack=chosen if part else account.sent,  # what comes again after a kill too
                invisibleMs=POP_INVISIBLE_MS,
                **how,
            )
            account.note(group, seen, set(chosen) & set(seen))

    def _pull_rest(self, group: Group, seen: list[str]) -> None:
        """Pull until what is delayed has come."""
        deadline = time.monotonic() + PATIENCE_S
        while missing := set(self.account.due(group)) - set(seen):
            assert time.monotonic() < deadline, f"{group.name} never got {missing}"
            seen += self.broker.do(
                "pull", group=group.name, topic=self.account.topic, count=1 << 16
            )


class OurSide:
    """Our part of a store's life."""

    def __init__(self, client: Client, account: Account, rng: random.Random) -> None:
        self.client, self.account, self.rng = client, account, rng

    def send(self, count: int, **how: Any) -> None:
        """Produce messages; ``delay_level`` or ``delay_s`` delays them."""
        bodies = self.account.new("ours", count)
        self.client.produce(self.account.topic, [NewMessage(body=body, **how) for body in bodies])
        self.account.sent += bodies
        if how.keys() & {"delay_level", "delay_s"}:
            self.account.delayed.update(bodies)

    def transact(self, committed: int, rolled_back: int, pending: int) -> None:
        """Begin transactions of one message each, and decide some."""
        account = self.account
        bodies = account.new("transaction", committed + rolled_back + pending)
        for number, body in enumerate(bodies):
            begun = self.client.begin(PRODUCERS, account.topic, [NewMessage(body=body)])
            if number < committed:
                self.client.commit_transaction(begun.transaction_id)
                account.sent.append(body)
            else:
                account.hidden.add(body)
                if number < committed + rolled_back:
                    self.client.rollback_transaction(begun.transaction_id)

    def consume(self, group: Group, *, part: bool) -> None:
        """Let a group consume all that is due, or the first messages of its queues."""
        account = self.account
        deadline = time.monotonic() + PATIENCE_S
        while due := set(account.due(group)):
            assert time.monotonic() < deadline, f"{group.name} never got {due}"
            found = self.client.receive(
                group.name, account.topic, max_messages=1 << 8, wait_s=1, invisible_s=PATIENCE_S
            ).messages
            if part:
                found = tuple(self._first_of_queues(found))
            if found:
                results = self.client.acknowledge(group.name, found).results
                assert {each.status for each in results} == {ReceiptStatus.OK}
            bodies = [each.body or "" for each in found]
            account.note(group, bodies, bodies)
            if part:
                break

    def _first_of_queues(self, found: Iterable[LeasedMessage]) -> Iterator[LeasedMessage]:
        """Some first messages of each queue: a broker knows one offset of a queue."""
        kept: dict[tuple[str, int], int] = {}
        for each in sorted(found, key=lambda one: (one.topic, one.queue_id, one.queue_offset)):
            queue = each.topic, each.queue_id
            if queue not in kept:
                kept[queue] = self.rng.randint(0, 4)
            if kept[queue] > 0:
                kept[queue] -= 1
                yield each


@dataclass
class Life:
    """One store, handed from one side to the other."""

    store: Path
    config: dict[str, Any]
    """A broker's settings by its names; ours are its broker.conf."""
    account: Account
    rng: random.Random
    ours: dict[str, Any] = field(default_factory=dict)
    """Settings of ours alone."""
    light: Account | None = None
    """The account of a light queue."""

    @contextmanager
    def at_broker(self, referee: Referee, *, killed: bool = False) -> Iterator[BrokerSide]:
        """A broker has the store; ended or killed afterwards."""
        with referee.states(self.store, self.config) as broker:
            if not self.account.sent:
                broker.do("topic", name=self.account.topic, queues=QUEUES)
            yield BrokerSide(broker, self.account, self.rng)
            if killed:
                broker.kill()
            else:
                broker.end()
        if killed:
            self._note_kill()

    @contextmanager
    def at_ours(self, *, killed: bool = False) -> Iterator[OurSide]:
        """Our services have the store; ended or killed afterwards. Then a broker would start."""
        file = self.store.with_name("broker.conf")
        lines = [f"{name}={_java(self.config[name])}" for name in self.config.keys() - NOT_OURS]
        file.write_text("\n".join(lines))
        running_here = running(self.store, coordinator=True, config_file=file, **self.ours)
        with running_here as run, run.client() as client:
            if self.account.topic not in {each.topic for each in client.topics().topics}:
                client.create_topic(self.account.topic, queues=QUEUES)
            yield OurSide(client, self.account, self.rng)
            if killed:
                run.stop(signal.SIGKILL)
            else:
                assert run.stop()[0] == 0
        if killed:
            self._note_kill()
        findings, summary = ours.verify(self.store, self.config)
        assert summary["brokerStarts"], findings
        if not killed:
            found = [each for each in findings if each["level"] == "finding"]
            assert not found, found

    def _note_kill(self) -> None:
        for account in (self.account, self.light):
            if account is not None:
                account.note_kill()


def _java(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
