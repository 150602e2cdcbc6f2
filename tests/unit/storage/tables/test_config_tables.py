"""RocketMQ's config/*.json. Expected texts are those of real brokers."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import pytest

from mqstore.storage.errors import ConfigTableError, TopicUnknown
from mqstore.storage.layout import StoreFormat
from mqstore.storage.paths import StorePaths
from mqstore.storage.system.threads import production_seams
from mqstore.storage.tables.config_tables import (
    ConsumerOffsets,
    DelayOffsets,
    TopicConfig,
    TopicTable,
)
from mqstore.storage.tables.consumer_filters import ConsumerFilters
from mqstore.storage.tables.subscription_groups import SubscriptionGroups
from mqstore.storage.tables.table import Source, Table

T = TypeVar("T", bound=Table)
V4, V5 = StoreFormat.V4_9, StoreFormat.V5_X
TOPICS_4_9 = (
    '{"dataVersion":{"counter":3,"timestamp":1795273269654},"topicConfigTable":{"TxTopic":'
    '{"order":false,"perm":6,"readQueueNums":4,"topicFilterType":"SINGLE_TAG","topicName":'
    '"TxTopic","topicSysFlag":0,"writeQueueNums":8,"later":{"x":[1]}}},"new":true}'
)
DELAY_4_9 = '{\n\t"offsetTable":{1:20,2:20,3:20\n\t}\n}'


def load(kind: type[T], root: Path, store_format: StoreFormat = V4) -> T:
    return kind.load(StorePaths(root), store_format, production_seams())


def write(root: Path, name: str, text: str) -> Path:
    path = root / "config" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def test_a_brokers_topics_are_read(tmp_path: Path) -> None:
    write(tmp_path, "topics.json", TOPICS_4_9)

    topics = load(TopicTable, tmp_path)

    assert topics.all() == [TopicConfig("TxTopic", read_queues=4, write_queues=8)]
    assert (topics.source, topics.problem) == (Source.FILE, None)
    assert topics.get("other") is None


def test_fields_that_we_do_not_know_are_kept(tmp_path: Path) -> None:
    write(tmp_path, "topics.json", TOPICS_4_9)
    topics = load(TopicTable, tmp_path)

    topics.put(TopicConfig("TxTopic", read_queues=5, perm=4))
    topics.save()

    again = load(TopicTable, tmp_path)
    entry = again.entries["TxTopic"]
    assert entry["later"] == {"x": [1]}
    assert again.data["new"] is True
    assert (entry["readQueueNums"], entry["perm"]) == (5, 4)
    assert again.data["dataVersion"]["counter"] == 4


@pytest.mark.parametrize("store_format", [V4, V5])
def test_a_new_topic_is_written_as_the_format_does(
    tmp_path: Path, store_format: StoreFormat
) -> None:
    topics = load(TopicTable, tmp_path, store_format)
    topics.put(TopicConfig("a"))
    topics.data["dataVersion"]["timestamp"] = 7
    topics.save()

    state = '\n\t\t"stateVersion":0,' if store_format is V5 else ""
    attributes = '\n\t\t\t"attributes":{\n\t\t\t\t\n\t\t\t},' if store_format is V5 else ""
    assert topics.path.read_text() == (
        '{\n\t"dataVersion":{\n\t\t"counter":1,' + state + '\n\t\t"timestamp":7\n\t},\n'
        '\t"topicConfigTable":{\n\t\t"a":{' + attributes + '\n\t\t\t"order":false,\n'
        '\t\t\t"perm":6,\n\t\t\t"readQueueNums":4,\n\t\t\t"topicFilterType":"SINGLE_TAG",\n'
        '\t\t\t"topicName":"a",\n\t\t\t"topicSysFlag":0,\n\t\t\t"writeQueueNums":4\n\t\t}\n\t}\n}'
    )


def test_a_topic_is_read_from_its_entry_once_until_it_changes(tmp_path: Path) -> None:
    topics = load(TopicTable, tmp_path)
    topics.put(TopicConfig("T", read_queues=4))
    first = topics.get("T")
    assert topics.get("T") is first

    topics.put(TopicConfig("T", read_queues=5))
    assert topics.get("T") == TopicConfig("T", read_queues=5)
    topics.remove("T")
    assert topics.get("T") is None


def test_topics_are_removed_by_name(tmp_path: Path) -> None:
    topics = load(TopicTable, tmp_path)
    topics.put(TopicConfig("a"))
    topics.remove("a")

    assert topics.all() == []
    with pytest.raises(TopicUnknown):
        topics.remove("a")


def test_permissions_are_bits() -> None:
    assert TopicConfig("a").is_readable
    assert not TopicConfig("a", perm=2).is_readable
    assert not TopicConfig("a", perm=4).is_writable


def test_saving_keeps_the_content_before_as_bak(tmp_path: Path) -> None:
    path = write(tmp_path, "delayOffset.json", DELAY_4_9)
    delays = load(DelayOffsets, tmp_path)
    delays.put(18, 3)
    delays.save()

    assert path.with_name("delayOffset.json.bak").read_text() == DELAY_4_9
    assert path.read_text() == '{\n\t"offsetTable":{1:20,2:20,3:20,18:3\n\t}\n}'
    assert sorted(file.name for file in path.parent.iterdir()) == [
        "delayOffset.json",
        "delayOffset.json.bak",
    ]


@pytest.mark.parametrize("text", ["", '{"offsetTable":{1:2', "\x00" * 40])
def test_a_file_cut_in_half_falls_back_to_its_bak(tmp_path: Path, text: str) -> None:
    write(tmp_path, "delayOffset.json", text)
    write(tmp_path, "delayOffset.json.bak", DELAY_4_9)

    delays = load(DelayOffsets, tmp_path)

    assert delays.all() == {1: 20, 2: 20, 3: 20}
    assert delays.source is Source.BACKUP
    assert "delayOffset.json cannot be read" in (delays.problem or "")


def test_a_damaged_file_never_replaces_a_good_bak(tmp_path: Path) -> None:
    write(tmp_path, "delayOffset.json", "{")
    bak = write(tmp_path, "delayOffset.json.bak", DELAY_4_9)

    load(DelayOffsets, tmp_path).save()

    assert bak.read_text() == DELAY_4_9
    assert load(DelayOffsets, tmp_path).source is Source.FILE


def test_a_missing_file_with_a_bak_is_read_from_it(tmp_path: Path) -> None:
    write(tmp_path, "delayOffset.json.bak", DELAY_4_9)

    delays = load(DelayOffsets, tmp_path)

    assert (delays.get(2), delays.source, delays.problem) == (20, Source.BACKUP, None)


@pytest.mark.parametrize("bak", [None, "{", "\xff"])
def test_when_both_are_bad_the_table_is_refused(tmp_path: Path, bak: str | None) -> None:
    write(tmp_path, "topics.json", "{")
    if bak is not None:
        path = write(tmp_path, "topics.json.bak", "")
        path.write_bytes(bak.encode("latin-1"))

    with pytest.raises(ConfigTableError, match=r"topics.json cannot be read.*restore"):
        load(TopicTable, tmp_path)


def test_nothing_there_is_an_empty_table(tmp_path: Path) -> None:
    assert load(TopicTable, tmp_path).source is Source.NEW
    assert load(DelayOffsets, tmp_path).get(1) == 0
    assert load(ConsumerOffsets, tmp_path).get("g", "t", 0) is None
    assert load(SubscriptionGroups, tmp_path).text() == '{\n\t"subscriptionGroupTable":{}\n}'
    assert load(ConsumerFilters, tmp_path).text() == '{\n\t"filterDataByTopic":{}\n}'


def test_consumer_offsets_have_bare_queue_ids(tmp_path: Path) -> None:
    write(
        tmp_path,
        "consumerOffset.json",
        '{"offsetTable":{"RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS":{0:550}}}',
    )
    offsets = load(ConsumerOffsets, tmp_path)
    assert offsets.get("CID_RMQ_SYS_TRANS", "RMQ_SYS_TRANS_HALF_TOPIC", 0) == 550

    offsets.put("CID_RMQ_SYS_TRANS", "RMQ_SYS_TRANS_HALF_TOPIC", 0, 551)
    offsets.put("g", "t", 3, 9)

    assert offsets.text() == (
        '{\n\t"offsetTable":{\n\t\t"RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS":{0:551\n\t\t},\n'
        '\t\t"t@g":{3:9\n\t\t}\n\t}\n}'
    )
    assert offsets.of("g", "t") == {3: 9}


def test_quoted_queue_ids_are_the_same_queue(tmp_path: Path) -> None:
    write(tmp_path, "consumerOffset.json", '{"offsetTable":{"t@g":{"0":5,"1":6}}}')
    offsets = load(ConsumerOffsets, tmp_path)
    assert offsets.of("g", "t") == {0: 5, 1: 6}
    assert [offsets.get("g", "t", queue_id) for queue_id in (0, 1, 2)] == [5, 6, None]

    offsets.put("g", "t", 0, 7)

    assert offsets.of("g", "t") == {0: 7, 1: 6}
    assert [offsets.get("g", "t", queue_id) for queue_id in (0, 1)] == [7, 6]


def test_5_x_writes_the_groups_topics_and_all_levels(tmp_path: Path) -> None:
    offsets = load(ConsumerOffsets, tmp_path, V5)
    offsets.put("g", "t1", 0, 1)
    offsets.put("g", "t2", 0, 1)
    offsets.save()
    delays = load(DelayOffsets, tmp_path, V5)
    delays.put(2, 9)
    delays.save()

    again = load(ConsumerOffsets, tmp_path, V5)
    assert list(again.data) == ["dataVersion", "groupTopicMap", "offsetTable"]
    assert again.data["groupTopicMap"] == {"g": ["t1", "t2"]}
    assert load(DelayOffsets, tmp_path, V5).all() == {n: 9 * (n == 2) for n in range(1, 19)}


@pytest.mark.parametrize("text", ['{"topicConfigTable":[1]}', '{"topicConfigTable":{"a":5}}'])
def test_members_of_another_shape_are_refused(tmp_path: Path, text: str) -> None:
    """A broker does not read them either."""
    write(tmp_path, "topics.json", text)

    with pytest.raises(ConfigTableError, match="is no object"):
        load(TopicTable, tmp_path)
