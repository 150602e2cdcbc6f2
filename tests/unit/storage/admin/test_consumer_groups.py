from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from mqstore.storage.admin.group_offsets import Commit
from mqstore.storage.errors import GroupNameError, GroupUnknown, LimitReached
from mqstore.storage.message_store import MessageStore
from mqstore.storage.tables.subscription_groups import GroupConfig
from tests.unit.storage.stores import CONFIG, open_store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with open_store(tmp_path / "store") as opened:
        opened.create_topic("T", queues=1)
        yield opened


def test_groups_are_those_with_a_config_and_those_with_offsets(store: MessageStore) -> None:
    store.groups.put("configured", lambda known: replace(known, retry_times_max=3))
    store.offsets.commit("consuming", [Commit("T", 0, 0)])

    configured, consuming = store.groups.all()

    assert configured.config == GroupConfig("configured", retry_times_max=3)
    assert (configured.is_configured, configured.topics) == (True, ())
    assert (consuming.config, consuming.is_configured) == (GroupConfig("consuming"), False)
    assert consuming.topics == ("T",)


def test_a_group_is_changed_from_what_it_is_and_kept(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        store.groups.put("g", lambda known: replace(known, consume_enable=False))
        store.groups.put("g", lambda known: replace(known, retry_queues=2))
    with open_store(tmp_path / "store") as store:
        assert store.groups.get("g").config == GroupConfig(
            "g", consume_enable=False, retry_queues=2
        )


@pytest.mark.parametrize("with_offsets", [True, False])
def test_a_group_is_deleted_with_its_offsets_or_without(
    store: MessageStore, with_offsets: bool
) -> None:
    store.groups.put("g", lambda known: known)
    store.offsets.commit("g", [Commit("T", 0, 0)])

    store.groups.delete("g", with_offsets=with_offsets)

    assert store.offsets.groups() == ({} if with_offsets else {"g": ["T"]})
    if with_offsets:
        with pytest.raises(GroupUnknown):
            store.groups.get("g")


def test_an_unknown_group_is_neither_returned_nor_deleted(store: MessageStore) -> None:
    with pytest.raises(GroupUnknown):
        store.groups.get("g")
    with pytest.raises(GroupUnknown):
        store.groups.delete("g", with_offsets=True)


@pytest.mark.parametrize("name", ["CID_RMQ_SYS_TRANS", "TOOLS_CONSUMER", "CID_ONSAPI_PULL"])
def test_groups_of_rocketmq_itself_are_safe(store: MessageStore, name: str) -> None:
    with pytest.raises(GroupNameError, match="RocketMQ's own"):
        store.groups.put(name, lambda known: known)
    with pytest.raises(GroupNameError, match="RocketMQ's own"):
        store.groups.delete(name, with_offsets=True)


def test_a_group_may_be_made_by_its_use_within_the_limit(tmp_path: Path) -> None:
    config = CONFIG.model_copy(update={"max_groups": 3})
    with open_store(tmp_path / "store", config) as store:
        store.create_topic("T", queues=1)
        store.groups.put("configured", lambda known: known)
        store.offsets.commit("consuming", [Commit("T", 0, 0)])
        assert store.groups.use("new") == GroupConfig("new")
        store.subscriptions.put("subscribed", "T", "a > 1")
        assert store.groups.count() == 3

        for refused in (
            lambda: store.groups.use("new"),
            lambda: store.groups.put("new", lambda known: known),
            lambda: store.subscriptions.put("new", "T", "a > 1"),
        ):
            with pytest.raises(LimitReached, match="maxGroups allows 3") as error:
                refused()
            assert (error.value.setting, error.value.limit) == ("maxGroups", 3)
        assert store.subscriptions.of("new") == []
        for known in ("configured", "consuming", "subscribed"):
            assert store.groups.use(known).name == known
        store.groups.delete("configured", with_offsets=True)
        assert store.groups.use("new").name == "new"


def test_without_auto_creation_only_an_administrator_makes_groups(tmp_path: Path) -> None:
    config = CONFIG.model_copy(update={"auto_create_subscription_group": False})
    with open_store(tmp_path / "store", config) as store:
        store.create_topic("T", queues=1)
        store.offsets.commit("consuming", [Commit("T", 0, 0)])  # from before
        for refused in (
            lambda: store.groups.use("new"),
            lambda: store.subscriptions.put("new", "T", "a > 1"),
        ):
            with pytest.raises(GroupUnknown, match="autoCreateSubscriptionGroup is false"):
                refused()
        store.groups.put("new", lambda known: known)
        assert [store.groups.use(each).name for each in ("new", "consuming")] == [
            "new",
            "consuming",
        ]
        assert store.groups.use("CID_RMQ_SYS_TRANS").name == "CID_RMQ_SYS_TRANS"
