"""States that a broker may leave in a store directory, and what mqstore does with each.

``states`` is the one table: files, topics, groups, flags and properties. ``survey`` looks them up
in one directory, or in the tables of a leader; ``RecordSurvey`` in the records of a log.
An opening for writing refuses a store with a state that mqstore cannot serve, before anything has
changed; it logs the others that are not served, ``verify`` and ``store info`` show them. A file,
topic or attribute that the table does not have is shown too.
"""

from mqstore.storage.inventory.record_survey import RecordSurvey
from mqstore.storage.inventory.state import State, Subject, Verdict
from mqstore.storage.inventory.states import ALL
from mqstore.storage.inventory.survey import (
    GROUPS_MEMBER,
    TOPICS_MEMBER,
    Found,
    refuse,
    survey,
    survey_groups,
    survey_topics,
    with_verdict,
)

__all__ = [
    "ALL",
    "GROUPS_MEMBER",
    "TOPICS_MEMBER",
    "Found",
    "RecordSurvey",
    "State",
    "Subject",
    "Verdict",
    "refuse",
    "survey",
    "survey_groups",
    "survey_topics",
    "with_verdict",
]
