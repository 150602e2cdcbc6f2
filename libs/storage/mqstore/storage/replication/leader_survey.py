"""Looks the tables and settings of a broker up in the inventory, before they are copied."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping

from mqstore.storage import broker_settings, inventory
from mqstore.storage.errors import LeaderLogRefused
from mqstore.storage.inventory import Verdict
from mqstore.storage.replication.table_feed import TableName
from mqstore.storage.tables import java_json

log = logging.getLogger(__name__)

_MAPPINGS = ("topicQueueMappingInfoMap", "topicQueueMappingDetailMap")
_STATIC_TOPICS = (
    "its topics {names} are mapped over brokers (static topics): make them anew as ordinary ones"
)
_Entries = Mapping[str | int, object]


class LeaderSurvey:
    """Refuses a broker with what mqstore cannot serve, and logs once what is done without.

    Each method raises LeaderLogRefused. Thread-safe.
    """

    def __init__(self) -> None:
        self._named: dict[str, None] = {}

    def take_table(self, table: TableName, text: str) -> None:
        """Look at a table of the broker; one that is no JSON is left to those that adopt it."""
        try:
            content = java_json.parse(text)
        except ValueError:
            return
        if table is TableName.TOPICS:
            mapped = {str(name) for member in _MAPPINGS for name in _entries(content, member)}
            static = [_STATIC_TOPICS.format(names=", ".join(sorted(mapped)))] if mapped else []
            self._judge(content, inventory.TOPICS_MEMBER, inventory.survey_topics, static)
        elif table is TableName.GROUPS:
            self._judge(content, inventory.GROUPS_MEMBER, inventory.survey_groups)

    def take_settings(self, text: str) -> None:
        """Look at the settings of the broker, a ``name=value`` a line."""
        lines = (line.partition("=") for line in text.splitlines())
        self._settle(*broker_settings.of_leader({name: value for name, _, value in lines}))

    def _judge(
        self,
        content: Mapping[str | int, object],
        member: str,
        survey: Callable[[_Entries], list[inventory.Found]],
        refused: Iterable[str] = (),
    ) -> None:
        found = survey(_entries(content, member))
        self._settle(
            [*refused, *map(str, inventory.with_verdict(found, Verdict.REFUSED))],
            map(str, inventory.with_verdict(found, Verdict.NAMED)),
        )

    def _settle(self, refused: Iterable[str], named: Iterable[str]) -> None:
        for each in named:
            if each not in self._named:
                self._named[each] = None
                log.warning("the leader: %s", each)
        if refused := list(refused):
            raise LeaderLogRefused(
                "states",
                f"the leader has what mqstore cannot serve, and is not followed: "
                f"{'. '.join(refused)}",
            )


def _entries(content: Mapping[str | int, object], member: str) -> _Entries:
    found = content.get(member)
    return found if isinstance(found, dict) else {}
