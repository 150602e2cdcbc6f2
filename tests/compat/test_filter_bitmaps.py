"""ConsumeQueueExt both ways: what one side writes, the other goes by."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mqstore.storage.filter.expression import compile_expression
from mqstore.storage.layout import StoreFormat
from mqstore.storage.lookup.pull_filter import PullFilter, SqlFilter, SubscriptionBits, parse_tags
from mqstore.storage.store_reader import StoreReader
from mqstore.storage.system.threads import production_seams
from mqstore.storage.tables.consumer_filters import ConsumerFilters
from tests.compat import ours
from tests.compat.examples import copy_of
from tests.compat.referee import Line, Referee
from tests.compat.scripts import Put, Script
from tests.compat.shapes import Shape
from tests.compat.versions import mainly
from tests.unit.storage.test_subscribed_pulls import Counting

pytestmark = [pytest.mark.referee, pytest.mark.slow]

CONFIG: dict[str, Any] = Shape().config | {
    "enableConsumeQueueExt": True,
    "enableCalcFilterBitMap": True,
    "mappedFileSizeConsumeQueueExt": 2048,
    "expectConsumerNumUseFilter": 64,
}
"""The referee's filter manager expects 64 subscriptions."""
SUBSCRIBED = {
    "above": "a > 5",
    "three": "a = 3 AND b IS NOT NULL",
    "some": "a IN ('x', '4') OR b > 170",
}
TAGS = "t1 || t2"


def puts(count: int, topics: str = "TU") -> list[Put]:
    """Numbers that are none and properties that are not there, among others."""
    return [
        Put(
            topics[n % len(topics)],
            body=b"body",
            properties=(
                ("TAGS", f"t{n % 4}"),
                ("a", "x" if n % 17 == 0 else str(n // 2 % 10)),
                *((("b", str(n)),) if n % 3 else ()),
            ),
        )
        for n in range(count)
    ]


def subscribe(referee: Referee, store: Path) -> None:
    """As a broker does, in the topic T; what follows is stored in a later millisecond."""
    requests = [
        {"group": group, "topic": "T", "expression": text, "version": 7}
        for group, text in SUBSCRIBED.items()
    ]
    (store / "config").mkdir(parents=True, exist_ok=True)
    (store / "config" / "consumerFilter.json").write_text(referee.subscribe(requests))
    time.sleep(0.002)


@pytest.fixture
def of_a_broker(referee: Referee, tmp_path: Path) -> Iterator[Path]:
    store = tmp_path / "store"
    referee.write(Script(CONFIG, puts(60)), store)
    subscribe(referee, store)
    referee.append(Script(CONFIG, puts(240)), store)
    yield store


def theirs(referee: Referee, store: Path) -> list[Line]:
    requests: list[Line] = [
        {"group": group, "topic": "T", "queueId": 0, "type": "SQL92", "expression": text}
        for group, text in SUBSCRIBED.items()
    ]
    requests.append({"group": "g", "topic": "T", "queueId": 0, "type": "TAG", "expression": TAGS})
    return referee.pull(copy_of(store), CONFIG, requests)


def pulled(reader: StoreReader, inner: PullFilter) -> Line:
    wanted, at, found = Counting(inner), 0, []
    while at < reader.lookups.queue_range("T", 0).max_offset:
        answer = reader.pulls.pull("T", 0, at, count=1, max_bytes=1 << 20, wanted=wanted)
        found += [each.queue_offset for each in answer.records]
        at = answer.next_offset
    return {"t": "pulled", "offsets": found, "looked": wanted.looked}


def found_by_us(referee: Referee, store: Path) -> list[Line]:
    store_format, seams = StoreFormat(referee.format), production_seams()
    tags = parse_tags(TAGS)
    assert tags is not None
    with StoreReader.open(store, seams) as reader:
        filters = ConsumerFilters.load(reader._paths, store_format, seams)
        answers = []
        for group, text in SUBSCRIBED.items():
            data = filters.get("T", group)
            assert data is not None
            known = SubscriptionBits(data.bits, data.positions, data.born_ms)
            expression = compile_expression(text, store_format)
            answers.append(pulled(reader, SqlFilter(expression, known)))
            plain = pulled(reader, SqlFilter(expression))
            assert plain["offsets"] == answers[-1]["offsets"]
            assert plain["looked"] == reader.lookups.queue_range("T", 0).max_offset
        return [*answers, pulled(reader, tags)]


def opened(referee: Referee, store: Path, *more: Put) -> Path:
    """A copy that mqstore opened, appended to and closed."""
    copy = copy_of(store)
    ours.append(Script(CONFIG, more), copy, referee.format)
    return copy


def files_below(store: Path, name: str) -> dict[str, bytes]:
    root = store / name
    return {str(f.relative_to(root)): f.read_bytes() for f in root.rglob("*") if f.is_file()}


def test_by_a_brokers_bitmaps_we_find_and_look_at_what_it_does(
    referee: Referee, of_a_broker: Path
) -> None:
    expected = theirs(referee, of_a_broker)
    copy = opened(referee, of_a_broker)
    assert found_by_us(referee, copy) == expected
    assert all(line["looked"] < 120 for line in expected), "of 150 messages"
    assert files_below(copy, "consumequeue_ext") == files_below(of_a_broker, "consumequeue_ext")
    assert files_below(copy, "consumequeue") == files_below(of_a_broker, "consumequeue")


@mainly("4.9.7")
def test_a_broker_goes_by_what_we_wrote_behind_its_own(referee: Referee, of_a_broker: Path) -> None:
    grown = opened(referee, of_a_broker, *puts(200))
    expected = found_by_us(referee, grown)
    assert theirs(referee, grown) == expected
    assert all(line["looked"] < 200 for line in expected), "of 250 messages"

    referee.append(Script(CONFIG, puts(100)), grown)
    assert theirs(referee, grown) == found_by_us(referee, opened(referee, grown))


def test_the_same_messages_have_the_same_units(referee: Referee, tmp_path: Path) -> None:
    """But for their store times, and those of topics without subscriptions."""
    written = {}
    for name in ("theirs", "ours"):
        store = tmp_path / name
        subscribe(referee, store)
        if name == "theirs":
            referee.write(Script(CONFIG, puts(200, "T")), store)
        else:
            ours.write(Script(CONFIG, puts(200, "T")), store, referee.format)
        written[name] = [
            files_below(store, "consumequeue"),
            {
                file: without_times(data)
                for file, data in files_below(store, "consumequeue_ext").items()
            },
        ]
    assert written["theirs"] == written["ours"]
    assert len(written["ours"][1]) > 3


def without_times(units: bytes) -> bytes:
    """Each unit has 20 bytes and a bitmap of 27."""
    data, at = bytearray(units), 0
    while data[at : at + 2] == b"\0\x2f":
        data[at + 10 : at + 18] = bytes(8)
        at += 47
    return bytes(data)


@mainly("5.4.0")
def test_units_of_a_halted_broker_are_true_here(referee: Referee, of_a_broker: Path) -> None:
    """A broker that is killed, and one that then loses what was not yet on the disk."""
    referee.append(Script(CONFIG, puts(100)).ending("halt"), of_a_broker)
    expected = [line["offsets"] for line in theirs(referee, of_a_broker)]
    for lost in (0, 1_000, 100_000):
        copy = copy_of(of_a_broker)
        *_, last = sorted((copy / "consumequeue_ext/T/0").iterdir())
        data = last.read_bytes()
        end = data.rstrip(b"\0\xff")
        last.write_bytes(data[: max(0, len(end) - lost)].ljust(len(data), b"\0"))
        ours.append(Script(CONFIG, puts(10)), copy, referee.format)
        found = [line["offsets"] for line in found_by_us(referee, copy)]
        assert [[n for n in each if n < 200] for each in found] == expected
        findings, _ = ours.verify(copy, CONFIG)
        assert [f["kind"] for f in findings if "unit" in f["kind"]] == []


def test_a_broker_without_the_setting_finds_the_same(referee: Referee, of_a_broker: Path) -> None:
    grown = opened(referee, of_a_broker, *puts(100))
    expected = [line["offsets"] for line in found_by_us(referee, grown)]
    plain = CONFIG | {"enableConsumeQueueExt": False, "enableCalcFilterBitMap": False}
    requests: list[Line] = [
        {"group": group, "topic": "T", "queueId": 0, "type": "SQL92", "expression": text}
        for group, text in SUBSCRIBED.items()
    ]
    answers = referee.pull(copy_of(grown), plain, requests)
    assert [line["offsets"] for line in answers] == expected[:-1]
