"""Config files that we write, read by RocketMQ's own managers, and the other way round."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from mqstore.storage.admin.group_offsets import Commit
from mqstore.storage.admin.topics import TopicChange
from mqstore.storage.layout import StoreFormat
from mqstore.storage.message_store import MessageStore
from mqstore.storage.tables import java_json, table_text
from tests.compat.referee import Referee, RefereeError
from tests.unit.storage.stores import CONFIG, open_store
from tests.unit.storage.tables.test_table_text import OFFSETS, REFUSED, RELAXED

pytestmark = pytest.mark.referee

EXPECTED = CONFIG.model_copy(update={"expect_consumer_num_use_filter": 64})
"""As ConsumerFilterManager has it where there is no broker around it."""
EXPRESSION = "price > 5 AND region IN ('eu', 'us')"


def opened(path: Path, referee: Referee) -> MessageStore:
    return open_store(path / "store", EXPECTED, format=StoreFormat(referee.format))


def text_of(store: MessageStore, name: str) -> str:
    return (store.paths.config / name).read_text()


@pytest.fixture
def written(referee: Referee, tmp_path: Path) -> MessageStore:
    """A closed store with a topic, a group and offsets."""
    with opened(tmp_path, referee) as store:
        change = TopicChange(8, 2, 4, order=True, filter_type="MULTI_TAG")
        store.put_topic("T", change)
        store.groups.put("G", lambda known: replace(known, retry_times_max=3, retry_queues=2))
        store.offsets.commit("G", [Commit("T", 0, 0), Commit("T", 7, 0)])
    return store


@pytest.mark.parametrize("name", ["topics.json", "consumerOffset.json"])
def test_a_table_is_read_as_it_was_meant(
    referee: Referee, written: MessageStore, name: str
) -> None:
    ours = text_of(written, name)
    assert java_json.parse(referee.recode(name, ours)) == java_json.parse(ours)


def test_groups_are_read_as_they_were_meant(referee: Referee, written: MessageStore) -> None:
    """Beside those that each broker makes for itself; 4.9.7 reads no dataVersion here."""
    ours = java_json.parse(text_of(written, "subscriptionGroup.json"))
    theirs = java_json.parse(
        referee.recode("subscriptionGroup.json", text_of(written, "subscriptionGroup.json"))
    )
    table = theirs["subscriptionGroupTable"]
    assert table["G"] == ours["subscriptionGroupTable"]["G"]
    assert list(table["G"]) == list(ours["subscriptionGroupTable"]["G"])
    assert theirs.keys() == ours.keys()


def test_a_broker_reads_our_subscriptions(referee: Referee, tmp_path: Path) -> None:
    with opened(tmp_path, referee) as store:
        store.create_topic("T")
        store.subscriptions.put("G", "T", EXPRESSION)
    ours = text_of(store, "consumerFilter.json")
    theirs = java_json.parse(referee.recode("consumerFilter.json", ours))
    (data,) = theirs["filterDataByTopic"]["T"]["groupFilterData"].values()
    # It takes every consumer for dead when it starts.
    assert data.pop("deadTime") >= data["bornTime"]
    assert data.pop("dead") is True
    expected = java_json.parse(ours)["filterDataByTopic"]["T"]["groupFilterData"]["G"]
    assert data == {k: v for k, v in expected.items() if k not in ("dead", "deadTime")}


def test_we_read_a_brokers_subscriptions_and_write_the_same(
    referee: Referee, tmp_path: Path
) -> None:
    requests = [
        {"group": group, "topic": topic, "expression": EXPRESSION, "version": 7}
        for group, topic in (("G", "T"), ("H", "T"), ("G", "U"))
    ]
    theirs = referee.subscribe(requests)
    path = tmp_path / "store" / "config" / "consumerFilter.json"
    path.parent.mkdir(parents=True)
    path.write_text(theirs)
    with opened(tmp_path, referee) as store:
        found = [*store.subscriptions.of("G"), *store.subscriptions.of("H")]
        assert [(each.group, each.topic) for each in found] == [("G", "T"), ("G", "U"), ("H", "T")]
        for each in found:
            assert (each.expression, each.client_version) == (EXPRESSION, 7)
            place = f"{each.group}#{each.topic}"
            assert each.positions == store.subscriptions.bloom.positions(place)
            store.subscriptions._table.put(each)
        written = store.subscriptions._table.text()
    assert lines_of(written, store.format) == lines_of(theirs, store.format)


@pytest.mark.slow
@pytest.mark.parametrize("text", [OFFSETS, *RELAXED])
def test_a_file_edited_by_hand_is_read_as_a_broker_reads_it(referee: Referee, text: str) -> None:
    """4.9.7 reads them all, 5.4.0 those without names that have no quotes."""
    name = "consumerOffset.json"
    try:
        theirs = table_text.parse(name, referee.recode(name, text))
    except RefereeError:
        assert referee.version.startswith("5")
        return
    ours = table_text.parse(name, text)
    assert offsets_of(ours) == offsets_of(theirs) == {"T@g": {0: 7}}


@pytest.mark.slow
@pytest.mark.parametrize("text", [text for text, _ in REFUSED])
def test_a_file_that_we_refuse_is_refused_by_a_broker(referee: Referee, text: str) -> None:
    """Or is read wrongly: 5.4.0 takes true for an offset of 1, and wraps 64 bits around."""
    try:
        theirs = offsets_of(java_json.parse(referee.recode("consumerOffset.json", text)))
    except RefereeError:
        return
    assert referee.version.startswith("5")
    assert "true" in text or "5808" in text
    assert theirs in ({"T@g": {0: 1}}, {"T@g": {0: -(1 << 63)}})


def offsets_of(data: table_text.JsonObject) -> dict[str, dict[int, int]]:
    table = data["offsetTable"]
    return {key: {int(queue): at for queue, at in of.items()} for key, of in table.items()}


def lines_of(text: str, store_format: StoreFormat) -> list[str]:
    """A text with its members in alphabetical order, as Java's maps have none."""
    members = json.loads(json.dumps(java_json.parse(text), sort_keys=True))
    return java_json.dump(members, store_format).splitlines()
