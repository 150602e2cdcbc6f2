"""``subscriptionGroup.json``: the config of each consumer group.

Fields and defaults are those of SubscriptionGroupConfig of 4.9.7 and 5.4.0; the names of RocketMQ's
own groups are in MixAll and SubscriptionGroupManager.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from mqstore.storage.errors import GroupDisabled, GroupUnknown
from mqstore.storage.layout import StoreFormat
from mqstore.storage.tables.journaled_table import JournaledTable
from mqstore.storage.tables.table import integer
from mqstore.storage.tables.table_text import JsonObject


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """One group of ``subscriptionGroup.json``."""

    name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    """5.x only."""
    retry_queues: int = 1
    retry_times_max: int = 16
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    consume_timeout_minutes: int = 15
    """5.x only."""
    sys_flag: int = 0
    """5.x only."""
    attributes: Mapping[str, str] = field(default_factory=dict)
    """5.x only."""


_FIELDS: Final = {
    "brokerId": "broker_id",
    "consumeBroadcastEnable": "consume_broadcast_enable",
    "consumeEnable": "consume_enable",
    "consumeFromMinEnable": "consume_from_min_enable",
    "groupName": "name",
    "notifyConsumerIdsChangedEnable": "notify_consumer_ids_changed_enable",
    "retryMaxTimes": "retry_times_max",
    "retryQueueNums": "retry_queues",
    "whichBrokerWhenConsumeSlowly": "which_broker_when_consume_slowly",
}
_FIELDS_5_X: Final = {
    "attributes": "attributes",
    "consumeMessageOrderly": "consume_message_orderly",
    "consumeTimeoutMinute": "consume_timeout_minutes",
    "groupSysFlag": "sys_flag",
}
_FORBIDDEN: Final = "forbiddenTable"
"""5.x: bits by group and topic."""
_FORBIDDEN_READ: Final = 1 << 2
_RETRY_POLICY: Final = {"groupRetryPolicy": {"type": "CUSTOMIZED"}}
"""5.x: the policy of a group that names none."""


class SubscriptionGroups(JournaledTable):
    """GroupConfigs by name; unknown fields are kept."""

    file_name = "subscriptionGroup.json"
    table_name = "subscriptionGroupTable"

    def get(self, name: str) -> GroupConfig | None:
        """The group of this name, or None."""
        with self._lock:
            return self._value(name, _group_from)

    def all(self) -> list[GroupConfig]:
        """Every group, by name."""
        with self._lock:
            return [
                _group_from(str(name), found)
                for name, found in sorted(self.entries.items(), key=lambda entry: str(entry[0]))
                if isinstance(found, dict)
            ]

    def put(self, group: GroupConfig) -> None:
        """Add or replace a group."""
        with self._lock:
            known = self.entries.get(group.name)
            merged = {**(known if isinstance(known, dict) else {}), **self._group_to(group)}
            if self._format is StoreFormat.V5_X:
                merged = {**_RETRY_POLICY, **merged}
            self._put(group.name, dict(sorted(merged.items())))
            self.touch()

    def remove(self, name: str) -> None:
        """Remove a group, and what it is forbidden. Raises GroupUnknown."""
        with self._lock:
            if not self._pop(name):
                raise GroupUnknown(f"there is no group {name}")
            forbidden = self.data.get(_FORBIDDEN)
            if isinstance(forbidden, dict):
                forbidden.pop(name, None)
            self.touch()

    def require_consuming(self, name: str, topics: Sequence[str]) -> None:
        """Raise GroupDisabled where a group may not consume, or not one of these topics.

        As a broker does at a pull: consumeEnable, and what an administrator of 5.x has forbidden
        (SubscriptionGroupManager.getForbidden).
        """
        config = self.get(name)
        if config is not None and not config.consume_enable:
            raise GroupDisabled(
                f"group {name} may not consume: its consumeEnable is false; set it to true"
            )
        with self._lock:
            forbidden = self.data.get(_FORBIDDEN)
            of_group = forbidden.get(name) if isinstance(forbidden, dict) else None
            bits = of_group if isinstance(of_group, dict) else {}
            refused = [each for each in topics if _is_read_forbidden(bits.get(each))]
        if refused:
            raise GroupDisabled(
                f"group {name} may not consume {', '.join(refused)}: an administrator of a broker "
                "has forbidden it (forbiddenTable of subscriptionGroup.json); use another group, "
                "or delete this one and create it again"
            )

    def _group_to(self, group: GroupConfig) -> JsonObject:
        fields = _FIELDS | (_FIELDS_5_X if self._format is StoreFormat.V5_X else {})
        values: JsonObject = {name: getattr(group, ours) for name, ours in fields.items()}
        if "attributes" in values:
            values["attributes"] = dict(group.attributes)
        return values

    def _tree_to_save(self) -> JsonObject:
        if self._format is StoreFormat.V5_X:
            self.data.setdefault(_FORBIDDEN, {})
        return super()._tree_to_save()


def _group_from(name: str, found: JsonObject) -> GroupConfig:
    default = GroupConfig(name)
    values = {
        ours: _as(getattr(default, ours), found.get(theirs))
        for theirs, ours in (_FIELDS | _FIELDS_5_X).items()
        if theirs != "groupName"
    }
    return GroupConfig(name, **values)


def _is_read_forbidden(bits: object) -> bool:
    number = integer(bits, 0)
    return number > 0 and bool(number & _FORBIDDEN_READ)


def _as(default: Any, found: Any) -> Any:
    """``found`` when it has the default's type, else the default."""
    if isinstance(default, bool):
        return found if isinstance(found, bool) else default
    if isinstance(default, int):
        return integer(found, default)
    if isinstance(found, dict):
        return {str(key): str(value) for key, value in found.items()}
    return default
