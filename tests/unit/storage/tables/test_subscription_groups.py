"""subscriptionGroup.json. Expected texts are those of real brokers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mqstore.storage.errors import GroupUnknown
from mqstore.storage.layout import StoreFormat
from mqstore.storage.paths import StorePaths
from mqstore.storage.system.threads import production_seams
from mqstore.storage.tables import java_json
from mqstore.storage.tables.subscription_groups import GroupConfig, SubscriptionGroups

V4, V5 = StoreFormat.V4_9, StoreFormat.V5_X
GROUP_4_9 = (
    '{"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":true,"consumeFromMinEnable":true,'
    '"groupName":"G","notifyConsumerIdsChangedEnable":true,"retryMaxTimes":16,"retryQueueNums":1,'
    '"whichBrokerWhenConsumeSlowly":1}'
)
GROUP_5_X = (
    '{"attributes":{},"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":true,'
    '"consumeFromMinEnable":true,"consumeMessageOrderly":false,"consumeTimeoutMinute":15,'
    '"groupName":"G","groupRetryPolicy":{"type":"CUSTOMIZED"},"groupSysFlag":0,'
    '"notifyConsumerIdsChangedEnable":true,"retryMaxTimes":16,"retryQueueNums":1,'
    '"whichBrokerWhenConsumeSlowly":1}'
)


def load(root: Path, store_format: StoreFormat = V4) -> SubscriptionGroups:
    return SubscriptionGroups.load(StorePaths(root), store_format, production_seams())


@pytest.mark.parametrize(("store_format", "text"), [(V4, GROUP_4_9), (V5, GROUP_5_X)])
def test_a_new_group_has_the_fields_of_its_format(
    tmp_path: Path, store_format: StoreFormat, text: str
) -> None:
    groups = load(tmp_path, store_format)
    groups.put(GroupConfig("G"))

    assert list(groups.entries["G"].items()) == list(java_json.parse(text).items())
    assert ("forbiddenTable" in java_json.parse(groups.text())) == (store_format is V5)


def test_a_changed_group_keeps_what_we_do_not_know(tmp_path: Path) -> None:
    path = tmp_path / "config" / "subscriptionGroup.json"
    path.parent.mkdir()
    exponential = GROUP_5_X.replace('{"type":"CUSTOMIZED"}', '{"type":"EXPONENTIAL"}')
    table = '"subscriptionGroupTable":{"G":' + exponential + "}}"
    path.write_text('{"forbiddenTable":{"G":{"T":3}},' + table)
    groups = load(tmp_path, V5)
    found = groups.get("G")
    assert found == GroupConfig("G")

    groups.put(replace(found, retry_times_max=2, attributes={"a": "b"}))
    groups.save()

    again = load(tmp_path, V5)
    assert again.entries["G"]["groupRetryPolicy"] == {"type": "EXPONENTIAL"}
    assert again.data["forbiddenTable"] == {"G": {"T": 3}}
    assert again.all() == [GroupConfig("G", retry_times_max=2, attributes={"a": "b"})]


def test_members_of_another_kind_are_at_their_defaults(tmp_path: Path) -> None:
    groups = load(tmp_path)
    groups.entries["G"] = {"consumeEnable": "no", "retryMaxTimes": True, "attributes": [1]}
    groups.entries["H"] = 5

    assert groups.all() == [GroupConfig("G")]


def test_groups_are_removed_by_name(tmp_path: Path) -> None:
    groups = load(tmp_path)
    groups.put(GroupConfig("G"))
    groups.remove("G")
    assert groups.get("G") is None
    with pytest.raises(GroupUnknown):
        groups.remove("G")
