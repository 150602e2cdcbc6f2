"""States that a broker may leave in a store directory, and what mqstore does with each.

``states`` is the one table: files, topics, attributes. ``survey`` looks them up in one directory.
An opening for writing refuses a store with a state that mqstore cannot serve, before anything has
changed; it logs the others that are not served, ``verify`` and ``store info`` show them. A file,
topic or attribute that the table does not have is shown too.
"""

from mqstore.storage.inventory.states import ALL, State, Subject, Verdict
from mqstore.storage.inventory.survey import Found, refuse, survey, survey_topics, with_verdict

__all__ = [
    "ALL",
    "Found",
    "State",
    "Subject",
    "Verdict",
    "refuse",
    "survey",
    "survey_topics",
    "with_verdict",
]
