"""Messages that a group sent back, filtered as a broker with filterSupportRetry does."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.storage.filter.expression import Filter, compile_expression
from mqstore.storage.layout import StoreFormat
from mqstore.storage.lookup.pull_filter import RetryFilter, TagFilter, parse_tags
from mqstore.storage.store_reader import StoreReader
from mqstore.storage.system.threads import production_seams
from mqstore.storage.tables.consumer_filters import ConsumerFilters
from tests.compat import ours
from tests.compat.examples import copy_of
from tests.compat.referee import Line, Referee
from tests.compat.scripts import Put, Script
from tests.compat.shapes import Shape

pytestmark = pytest.mark.referee

CONFIG = Shape().config
RETRY, GROUP = "%RETRY%g", "g"
TAGS = "t1 || t2"
COUNT = 60


def sent_back() -> list[Put]:
    """Messages of two topics, one of them subscribed by the group; a property may be missing."""
    return [
        Put(
            RETRY,
            body=b"body",
            properties=(
                ("TAGS", f"t{n % 4}"),
                ("RETRY_TOPIC", "TU"[n % 3 == 0]),
                *((("a", "x" if n % 17 == 0 else str(n % 10)),) if n % 7 else ()),
            ),
        )
        for n in range(COUNT)
    ]


@pytest.fixture
def store(referee: Referee, tmp_path: Path) -> Path:
    root = tmp_path / "store"
    referee.write(Script(CONFIG, sent_back()), root)
    requests = [
        {"group": GROUP, "topic": "T", "expression": "a > 5", "version": 7},
        {"group": "other", "topic": "U", "expression": "a = 1", "version": 7},
    ]
    (root / "config").mkdir(parents=True, exist_ok=True)
    (root / "config" / "consumerFilter.json").write_text(referee.subscribe(requests))
    return root


def theirs(referee: Referee, store: Path, kind: str, expression: str) -> list[int]:
    requests: Line = {"group": GROUP, "topic": RETRY, "queueId": 0}
    requests |= {"type": kind, "expression": expression}
    (line,) = referee.pull(copy_of(store), CONFIG, [requests])
    found: list[int] = line["offsets"]
    return found


def found_by_us(referee: Referee, store: Path, tags: TagFilter | None) -> list[int]:
    store_format, seams = StoreFormat(referee.format), production_seams()
    copy = copy_of(store)
    ours.append(Script(CONFIG, ()), copy, referee.format)
    with StoreReader.open(copy, seams) as reader:
        filters = ConsumerFilters.load(reader._paths, store_format, seams)

        def expression_of(topic: str) -> Filter | None:
            data = filters.get(topic, GROUP)
            return None if data is None else compile_expression(data.expression, store_format)

        wanted = RetryFilter(tags, expression_of)
        answer = reader.pulls.pull(RETRY, 0, 0, count=COUNT, max_bytes=1 << 20, wanted=wanted)
        assert answer.next_offset == COUNT
        return [each.queue_offset for each in answer.records]


def test_the_subscription_goes_instead_of_a_pulls_expression(referee: Referee, store: Path) -> None:
    found = found_by_us(referee, store, None)
    assert theirs(referee, store, "SQL92", "a = 3") == found
    assert 0 < len(found) < COUNT


@pytest.mark.slow
@pytest.mark.parametrize("expression", ["*", TAGS])
def test_pulls_by_tags_go_by_the_subscription_as_in_4_9(
    referee: Referee, store: Path, expression: str
) -> None:
    """5.4.0 looks at the tags only."""
    tags = parse_tags(expression)
    found = found_by_us(referee, store, tags)
    broker = theirs(referee, store, "TAG", expression)
    if StoreFormat(referee.format) is StoreFormat.V4_9:
        assert broker == found
    else:
        assert set(found) < set(broker)
        assert broker == [n for n in range(COUNT) if tags is None or n % 4 in (1, 2)]
