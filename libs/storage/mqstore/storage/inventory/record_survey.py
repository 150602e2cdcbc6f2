"""Counts the flags and properties of records that the table names, or lacks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final

from mqstore.storage.inventory import states
from mqstore.storage.inventory.record_states import FLAGS
from mqstore.storage.inventory.state import State, Subject, Verdict
from mqstore.storage.inventory.survey import Found

_RESERVED: Final = ("__RMQ.", "_SYS_")
"""Prefixes of properties that only RocketMQ gives."""
_KNOWN_BITS: Final = [(int(bits, 16), each) for each in FLAGS for bits in each.shown.split(", ")]


@dataclass(slots=True)
class _Seen:
    first: int
    """Physical offset."""
    count: int = 0


class RecordSurvey:
    """Takes the records of a log, each once."""

    def __init__(self) -> None:
        self._seen: dict[tuple[Subject, str, State | None], _Seen] = {}

    def note(self, offset: int, sys_flag: int, properties: Iterable[str]) -> None:
        """Note a record with its physical offset, SYSFLAG and names of properties."""
        for text, state in _flags_to_name(sys_flag):
            self._note(offset, Subject.RECORD_FLAG, text, state)
        for name in properties:
            is_named, state = _property_to_name(name)
            if is_named:
                self._note(offset, Subject.PROPERTY, name, state)

    def _note(self, offset: int, subject: Subject, text: str, state: State | None) -> None:
        self._seen.setdefault((subject, text, state), _Seen(offset)).count += 1

    def found(self) -> Iterator[tuple[int, Found]]:
        """Yield each flag and property that is named, with the offset of its first record."""
        for (subject, text, state), seen in self._seen.items():
            where = f"{subject} {text} of {seen.count} records"
            yield seen.first, Found(state, subject, where)


@cache
def _flags_to_name(sys_flag: int) -> tuple[tuple[str, State | None], ...]:
    """Return the bits of a SYSFLAG that are named, and those that the table lacks."""
    found: list[tuple[str, State | None]] = []
    left = sys_flag & 0xFFFF_FFFF
    for bits, state in _KNOWN_BITS:
        if left & bits and state.verdict is not Verdict.READ:
            found.append((hex(bits), state))
        left &= ~bits
    found += [(hex(1 << bit), None) for bit in range(32) if left >> bit & 1]
    return tuple(found)


def _property_to_name(name: str) -> tuple[bool, State | None]:
    """Return whether a property is named; all that are not RocketMQ's are of applications."""
    state = _NAMED.get(name)
    is_unknown = name.startswith(_RESERVED) and states.find(Subject.PROPERTY, name) is None
    return state is not None or is_unknown, state


_NAMED: Final = {
    name: each
    for each in states.ALL
    if each.subject is Subject.PROPERTY and each.verdict is not Verdict.READ
    for name in each.shown.split(", ")
}
