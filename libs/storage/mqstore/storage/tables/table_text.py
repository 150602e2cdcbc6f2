"""Parses the text of a file of ``config/``, with its values as a broker reads them.

A broker takes ``"8"`` and ``8.0`` for the integer 8, and 1 or ``"true"`` for true. A value that it
cannot convert makes the file unreadable, as for the broker, which then reads the ``.bak``. Source:
fastjson 1.2.69 and fastjson2, through the managers of 4.9.7 and 5.4.0; tests/compat/test_tables.py
compares.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from mqstore.storage.seams import FileSystem
from mqstore.storage.tables import java_json

_BACKUP_SUFFIX: Final = ".bak"
_INT_BITS: Final = 31
_LONG_BITS: Final = 63
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}")
_BOOLEANS: Final = {"true": True, "false": False, "1": True, "0": False}
_OFFSETS: Final = {
    "consumerOffset.json": ("offsetTable",),
    "lmqConsumerOffset.json": ("offsetTable", "lmqOffsetTable"),
    "delayOffset.json": ("offsetTable",),
}
"""Members with offsets, by file."""
_TOPIC: Final = dict.fromkeys(("perm", "readQueueNums", "topicSysFlag", "writeQueueNums"), int)
_GROUP: Final = dict.fromkeys(
    (
        *("brokerId", "consumeTimeoutMinute", "groupSysFlag", "retryMaxTimes", "retryQueueNums"),
        "whichBrokerWhenConsumeSlowly",
    ),
    int,
) | dict.fromkeys(
    (
        *("consumeBroadcastEnable", "consumeEnable", "consumeFromMinEnable"),
        *("consumeMessageOrderly", "notifyConsumerIdsChangedEnable"),
    ),
    bool,
)
_ENTRIES: Final[Mapping[str, tuple[str, Mapping[str, type]]]] = {
    "topics.json": ("topicConfigTable", _TOPIC | {"order": bool}),
    "subscriptionGroup.json": ("subscriptionGroupTable", _GROUP),
}
"""Member with the entries, and the type of their fields, by file."""

JsonObject = dict[str | int, Any]


def parse(name: str, text: str) -> JsonObject:
    """Parse a file, or its ``.bak``. Raises ValueError for what a broker does not read."""
    found = java_json.parse(text)
    name = name.removesuffix(_BACKUP_SUFFIX)
    for member in _OFFSETS.get(name, ()):
        if member in found:
            found[member] = _offsets(member, found[member])
    if name in _ENTRIES:
        member, kinds = _ENTRIES[name]
        if member in found:
            entries = _object(member, found[member])
            found[member] = {
                key: dict(_fields(f"{member} {key!r}", entry, kinds))
                for key, entry in entries.items()
            }
    return found


def load(files: FileSystem, path: Path) -> JsonObject | None:
    """Load a file; None where there is none. Raises ValueError as ``parse``, and OSError."""
    stat = files.stat(path)
    if stat is None or stat.is_directory:
        return None
    return parse(path.name, files.read(path).decode())


def _offsets(place: str, value: Any) -> JsonObject:
    """Convert the offsets in an object, or in the objects in it."""
    return {
        key: _offsets(f"{place} {key!r}", offset)
        if isinstance(offset, dict)
        else _integer(f"{place} {key!r}", offset, _LONG_BITS)
        for key, offset in _object(place, value).items()
    }


def _fields(place: str, entry: Any, kinds: Mapping[str, type]) -> Iterator[tuple[str | int, Any]]:
    spelled = {name.lower(): name for name in kinds}
    for given, value in _object(place, entry).items():
        name = spelled.get(str(given).lower(), given)
        kind = kinds.get(str(name))
        if kind is bool:
            value = _boolean(f"{place} {name}", value)
        elif kind is int:
            bits = _LONG_BITS if name == "brokerId" else _INT_BITS
            value = _integer(f"{place} {name}", value, bits)
        yield name, value


def _object(place: str, value: Any) -> JsonObject:
    if not isinstance(value, dict):
        raise ValueError(f"{place} is no object")
    return value


def _integer(place: str, value: Any, bits: int) -> int:
    is_whole = isinstance(value, float) and abs(value) < 2.0**bits
    if is_whole or (isinstance(value, str) and _INTEGER.fullmatch(value)):
        value = int(value)
    bound = 1 << bits
    if isinstance(value, bool) or not isinstance(value, int) or not -bound <= value < bound:
        raise ValueError(f"{place} is {value!r}, no integer of {bits + 1} bits")
    return value


def _boolean(place: str, value: Any) -> bool:
    found = _BOOLEANS.get(str(value).lower())
    if found is None:
        raise ValueError(f"{place} is {value!r}, neither true nor false")
    return found
