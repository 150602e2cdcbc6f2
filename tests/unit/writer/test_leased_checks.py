"""Due checks for coordinators: a request waits until there is one, and producers come with it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from typing import Any, cast

from mqstore.service.transaction_structs import (
    CheckReport,
    LeaseChecks,
    LeasedCheck,
    ProducerCall,
    SentCheck,
)
from mqstore.storage.errors import TransactionUnknown
from mqstore.storage.transactions import CheckSent, State, TransactionEngine, TransactionSnapshot
from mqstore.writer.transactions.checks import Checks
from mqstore.writer.transactions.producers import Producer, Producers, Target

LONG_S = 30.0


def snapshot(key: str, group: str, checks: int = 0) -> TransactionSnapshot:
    return TransactionSnapshot(key, State.PENDING, group, 1, 0, checks, (), None, "", ())


class Engine:
    """In a ``TransactionEngine``'s place: keys that are due, by group."""

    def __init__(self) -> None:
        self.due: dict[str, list[str]] = {}
        self.counted: list[tuple[str, str, str | None]] = []
        self.gone: set[str] = set()
        self.released: list[str] = []
        self.looked = asyncio.Event()
        """Set once a lease was requested."""
        self._loop = asyncio.get_running_loop()
        self.on_due: Callable[[], None] = lambda: None

    def lease(
        self, groups: Collection[str] | None, count: int, seconds: float | None = None
    ) -> list[TransactionSnapshot]:
        found = [
            snapshot(key, group)
            for group, keys in self.due.items()
            if groups is None or group in groups
            for key in keys
        ][:count]
        for each in found:
            self.due[each.group].remove(each.key)
        self._loop.call_soon_threadsafe(self.looked.set)
        return found

    def due_groups(self) -> list[str]:
        return [group for group, keys in self.due.items() if keys]

    def count_checks(self, checks: Sequence[CheckSent]) -> list[str]:
        counted = [each for each in checks if each.key not in self.gone]
        self.counted += [(each.key, each.by, each.answer) for each in counted]
        return [each.key for each in counted]

    def find(self, key: str) -> TransactionSnapshot:
        if key == "forgotten":
            raise TransactionUnknown(key)
        return snapshot(key, "g", checks=1)

    def release(self, keys: Iterable[str]) -> None:
        self.released += keys


class Bench:
    """Checks with an engine, producers and their clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.engine = Engine()
        self.producers = Producers(lambda: self.now)
        self.checks = Checks(cast(TransactionEngine, self.engine), 3, self.producers)

    def register(self, name: str, group: str = "g") -> Producer:
        return self.producers.register(group, name, Target("https://a", "1.2.3.4", "a"), "s", 90)

    def start(self, **terms: Any) -> asyncio.Task[list[LeasedCheck]]:
        return asyncio.get_running_loop().create_task(self.checks.lease(LeaseChecks(**terms)))


def live(act: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        await act(Bench())

    asyncio.run(asyncio.wait_for(run(), 60))


def ids(found: list[LeasedCheck]) -> list[str]:
    return [each.transaction.transaction_id for each in found]


def test_what_is_due_is_leased_at_once_of_one_group_or_of_all() -> None:
    async def act(bench: Bench) -> None:
        bench.engine.due = {"g": ["a", "b"], "h": ["c"]}
        assert ids(await bench.start(group="g", max=1)) == ["3-a"]
        found = await bench.start(wait=LONG_S)
        assert ids(found) == ["3-b", "3-c"]
        assert [each.producers for each in found] == [(), ()]
        assert await bench.start() == []

    live(act)


def test_a_request_waits_until_a_check_becomes_due() -> None:
    async def act(bench: Bench) -> None:
        waits = bench.start(wait=LONG_S)
        await bench.engine.looked.wait()
        bench.engine.due = {"g": ["a"]}
        thread = threading.Thread(target=bench.engine.on_due)
        thread.start()
        assert ids(await waits) == ["3-a"]
        thread.join()

    live(act)


def test_checks_for_registered_producers_wait_for_one() -> None:
    async def act(bench: Bench) -> None:
        bench.engine.due = {"g": ["a"], "h": ["b"]}
        waits = bench.start(registered=True, wait=LONG_S)
        await asyncio.sleep(0)
        one, _ = bench.register("one"), bench.register("two")
        bench.producers.answered(one)
        bench.checks.bell.ring()
        (found,) = await waits
        assert found.transaction.transaction_id == "3-a"
        assert [each.name for each in found.producers] == ["two", "one"]
        assert bench.engine.due["h"] == ["b"]

    live(act)


def test_checks_wait_until_a_producer_has_rested() -> None:
    async def act(bench: Bench) -> None:
        bench.engine.due = {"g": ["a"]}
        one = bench.register("one")
        bench.producers.failed(one, "refused")
        one.resting_until = 0.01  # of a clock that has come there when the wait is over
        waits = bench.start(registered=True, wait=LONG_S)
        await asyncio.sleep(0)
        bench.now = 0.01
        assert ids(await waits) == ["3-a"]

    live(act)


def test_a_caller_that_has_disconnected_leases_nothing() -> None:
    async def act(bench: Bench) -> None:
        request = LeaseChecks(wait=LONG_S)
        waits = asyncio.ensure_future(bench.checks.lease(request, lambda: True))
        await bench.engine.looked.wait()
        bench.engine.due = {"g": ["a"]}
        bench.engine.on_due()
        assert await waits == []
        assert bench.engine.due == {"g": ["a"]}

    live(act)


def test_at_the_end_no_request_waits() -> None:
    async def act(bench: Bench) -> None:
        waits = bench.start(wait=LONG_S)
        await bench.engine.looked.wait()
        bench.checks.end()
        assert await waits == []
        assert await bench.start(wait=LONG_S) == []

    live(act)


def test_checks_that_are_polled_count_when_they_are_answered() -> None:
    async def act(bench: Bench) -> None:
        bench.engine.due = {"g": ["a", "gone", "forgotten"]}
        bench.engine.gone = {"gone"}
        found = await bench.start(by="poll")
        assert ids(found) == ["3-a"]
        assert found[0].transaction.checks_sent == 1
        assert bench.engine.counted == [("a", "poll", None), ("forgotten", "poll", None)]

    live(act)


def test_a_report_counts_releases_and_says_how_calls_went() -> None:
    async def act(bench: Bench) -> None:
        one, two = bench.register("one"), bench.register("two")
        bench.producers.failed(two, "refused")
        bench.engine.gone = {"b"}
        report = CheckReport(
            checks=[
                SentCheck(transaction_id="3-a", by="one", answer="commit"),
                SentCheck(transaction_id="3-b", by="one"),
            ],
            released=["3-c"],
            producers=[
                ProducerCall(group="g", name="one", failure="no answer"),
                ProducerCall(group="g", name="two"),
                ProducerCall(group="g", name="x"),
            ],
        )
        keys = {"3-a": "a", "3-b": "b", "3-c": "c"}
        assert await bench.checks.report(report, keys) == ["3-a"]
        assert bench.engine.counted == [("a", "one", "commit")]
        assert bench.engine.released == ["c"]
        assert (one.trouble, two.trouble) == ("no answer", None)
        assert bench.producers.able("g") == [two]

    live(act)
