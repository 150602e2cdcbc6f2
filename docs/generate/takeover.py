"""States of a broker's store: what a broker may leave, and how mqstore takes it over."""

from __future__ import annotations

from docs.generate.markdown import code, table
from mqstore.storage.settings import BROKER_SETTINGS
from mqstore.storage.verify import STATES, Subject


def takeover_settings() -> str:
    """A table of the settings of a broker's file that are refused or named."""
    rows = [
        (
            code(each.name),
            ", ".join(code(value) for value in each.harmless if value) or "",
            "refused" if each.is_refused else "named",
            each.why,
        )
        for each in BROKER_SETTINGS
    ]
    return table(("setting", "accepted values", "verdict of others", "why"), rows)


def takeover(subject: str) -> str:
    """A table of the states that are found in a ``Subject``."""
    rows = [
        (code(state.shown), state.versions, state.holds, state.verdict.value, state.action)
        for state in STATES
        if state.subject is Subject[subject]
    ]
    return table(("found", "RocketMQ", "holds", "verdict", "what is done"), rows)
