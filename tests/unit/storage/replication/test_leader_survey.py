"""The tables and settings of a broker, judged before they are copied."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path

import pytest

from mqstore.storage.errors import LeaderLogRefused
from mqstore.storage.replication.leader_survey import LeaderSurvey
from mqstore.storage.replication.table_feed import TableName
from tests.unit.storage.stores import open_store

BATCHES = {"topicName": "B", "attributes": {"queue.type": "BatchCQ"}}


def topics(*entries: Mapping[str, object], **more: object) -> str:
    return json.dumps(
        {"topicConfigTable": {str(each["topicName"]): each for each in entries}} | more
    )


def groups(**fields: object) -> str:
    return json.dumps({"subscriptionGroupTable": {"g": {"groupName": "g", **fields}}})


@pytest.mark.parametrize(
    ("table", "text", "why"),
    [
        (TableName.TOPICS, topics(BATCHES), "batch-topic"),
        (
            TableName.TOPICS,
            topics({"topicName": "C", "attributes": {"cleanup.policy": "COMPACTION"}}),
            "compacted-topic",
        ),
        (TableName.TOPICS, topics(topicQueueMappingDetailMap={"S": {}}), "its topics S are mapped"),
    ],
)
def test_a_leader_with_what_mqstore_cannot_serve_is_refused(
    table: TableName, text: str, why: str
) -> None:
    with pytest.raises(LeaderLogRefused, match=why):
        LeaderSurvey().take_table(table, text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("transRocksDBEnable=true", "half messages are in RocksDB"),
        ("timerRocksDBEnable=true\n", "messages with a time are in RocksDB"),
        ("popConsumerKVServiceEnable=true", "exportPopRecord"),
        ("messageStorePlugIn=a.b.TieredMessageStore", "tiered storage"),
    ],
)
def test_a_leader_whose_settings_keep_state_outside_the_log_is_refused(text: str, why: str) -> None:
    with pytest.raises(LeaderLogRefused, match=why):
        LeaderSurvey().take_settings(text)


def test_settings_of_files_that_are_not_copied_are_none_of_a_followers() -> None:
    LeaderSurvey().take_settings("storeType=defaultRocksDB\nbrokerRole=SYNC_MASTER\nno line\n")


def test_what_is_done_without_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    survey = LeaderSurvey()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            survey.take_table(TableName.GROUPS, groups(groupName="a" * 121))
            survey.take_table(TableName.TOPICS, topics({"topicName": "rmq_sys_UNHEARD"}))
            survey.take_settings("aclEnable=true")
            survey.take_table(TableName.TOPICS, "no JSON")
    logged = [each.getMessage() for each in caplog.records]
    assert len(logged) == 3
    assert "odd-group-name" in logged[0]
    assert "rmq_sys_UNHEARD" in logged[1]
    assert "aclEnable=true" in logged[2]


def test_a_refused_table_changes_nothing(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", leader="leader:10912") as store:
        copies = store.table_copies
        assert copies is not None
        copies.take_whole(TableName.TOPICS, topics({"topicName": "T"}))
        with pytest.raises(LeaderLogRefused):
            copies.take_whole(TableName.TOPICS, topics({"topicName": "U"}, BATCHES))
        assert [each.name for each in store.topics()] == ["T"]
