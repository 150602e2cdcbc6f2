"""The table of what brokers of 4.9.7 and 5.4.0 leave in a store directory."""

from __future__ import annotations

from typing import Final

from mqstore.storage.inventory.file_states import FILES
from mqstore.storage.inventory.record_states import FLAGS, PROPERTIES
from mqstore.storage.inventory.state import State, Subject
from mqstore.storage.inventory.table_states import ATTRIBUTES, GROUPS, TOPIC_FIELDS, TOPICS

ALL: Final[tuple[State, ...]] = (
    *FILES,
    *TOPICS,
    *TOPIC_FIELDS,
    *ATTRIBUTES,
    *GROUPS,
    *FLAGS,
    *PROPERTIES,
)
"""Every state. The first one of its subject that matches counts."""
_BY_SUBJECT: Final = {
    subject: [each for each in ALL if each.subject is subject] for subject in Subject
}


def find(subject: Subject, text: str) -> State | None:
    """Return the state of a name or a ``name=value``; None for one that the table lacks."""
    return next((each for each in _BY_SUBJECT[subject] if each.matches(text)), None)
