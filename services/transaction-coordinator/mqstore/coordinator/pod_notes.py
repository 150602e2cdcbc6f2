"""What of a store's events an operator must know, in the words of Kubernetes' Events; and repeats
of one reason as one note with a count.

Everything goes by the events themselves and their own time: whoever reads the same events again, as
another leader does after a takeover, comes to the same notes of the same names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from mqstore.client import StoreEvent

WINDOW_MS: Final = 600_000
"""Repeats of a reason within this time of the first one of a process are counted with it."""
MESSAGE_MAX: Final = 1_000
"""Characters; the API server refuses more than 1024."""
_TOLD_ONCE: Final = frozenset({"IndexIncomplete"})
"""Repeats only say how far it is."""


class Severity(StrEnum):
    """An Event's ``type``."""

    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True)
class Note:
    """One Event: ``name`` is its own within the pod's; times are in Unix ms."""

    name: str
    reason: str
    severity: Severity
    message: str
    first_ms: int
    last_ms: int
    count: int = 1


class Notes:
    """The notes of one shard, from its events in their order."""

    def __init__(self) -> None:
        self._process = ""
        self._latest: dict[str, Note] = {}

    def take(self, event: StoreEvent) -> Note | None:
        """A new note, or an earlier one that now counts more; None where nothing is to be told."""
        if self._process != process_of(event):  # its events are all that a later leader will see
            self._process = process_of(event)
            self._latest.clear()
        saying = _SAYINGS.get(event.kind, _nothing)(event.data)
        if saying is None:
            return None
        reason, severity, message = saying
        at, message = event.at_ms, message[:MESSAGE_MAX]
        note = self._latest.get(reason)
        if note is None or at - note.first_ms > WINDOW_MS:
            note = Note(event.id, reason, severity, message, at, at)
        elif reason in _TOLD_ONCE:
            return None
        else:
            note = replace(
                note, severity=severity, message=message, last_ms=at, count=note.count + 1
            )
        self._latest[reason] = note
        return note


def process_of(event: StoreEvent) -> str:
    """Which process of store-writer told it."""
    return event.id.partition("-")[0]


Data = Mapping[str, Any]
Saying = tuple[str, Severity, str]


def _nothing(_: Data) -> None:
    return None


def _opened(data: Data) -> Saying:
    if data["readOnly"] is not None:
        return _read_only({"reason": data["readOnly"]})
    took = f"recovery finished in {data['durationMs'] / 1000:.1f} s"
    log = f"the log ends at {data['maxOffset']}"
    cut, damaged = data.get("cutBytes", 0), data.get("damaged", 0)
    if not cut and not damaged:
        return "RecoveryFinished", Severity.NORMAL, f"{took}: nothing was cut, {log}"
    found = f"{cut} bytes were cut from the log's end, {damaged} stretches cannot be read"
    where = "GET /v1/store/recovery says which; copies are in store/mqstore/quarantine"
    return "RecoveryCut", Severity.WARNING, f"{took}: {found}, {log}; {where}"


def _index(data: Data) -> Saying:
    done, total = data["done"], data["total"]
    if done >= total:
        return "IndexRebuilt", Severity.NORMAL, "the index is complete again"
    message = f"key queries answer complete: false until {total - done} bytes of log are indexed"
    return "IndexIncomplete", Severity.WARNING, message


def _index_trouble(data: Data) -> Saying:
    reason = data["reason"]
    if reason is None:
        return "IndexRebuilt", Severity.NORMAL, "the index needs no rebuild any more"
    return "IndexNeedsRebuild", Severity.WARNING, f"key queries answer complete: false: {reason}"


def _disk(data: Data) -> Saying:
    used = f"the volume is {data.get('usedPercent', 0):.1f} % full"
    if data["refuses"]:
        return "DiskFull", Severity.WARNING, f"puts are refused (507): {used}; make room or grow it"
    passed = data.get("abovePercent")
    if passed is not None:
        return "DiskFilling", Severity.WARNING, f"{used}, above {passed} %: retention makes room"
    return "DiskHasRoom", Severity.NORMAL, used


def _read_only(data: Data) -> Saying:
    reason = data["reason"]
    if reason is None:
        return "StoreWritable", Severity.NORMAL, "messages are taken again"
    return "StoreReadOnly", Severity.WARNING, f"the store may only be read: {reason}"


def _writes(data: Data) -> Saying:
    if data["paused"]:
        return "WritesPaused", Severity.NORMAL, f"an administrator paused writes: {data['reason']}"
    return "WritesResumed", Severity.NORMAL, "an administrator let writes go on"


def _damaged(data: Data) -> Saying:
    message = f"{data['stretches']} stretches of the log cannot be read; the log's lines say where"
    return "LogDamaged", Severity.WARNING, message


def _expiry(data: Data) -> Saying:
    first = f"most urgent: {data.get('group')} in {data.get('topic')}"
    lost = f"{data['messages']} messages go before somebody has come to them"
    return "UnconsumedAtRisk", Severity.WARNING, f"{lost}; {first}; GET /v1/reports/expiry"


def _deleted(data: Data) -> Saying | None:
    forced = data.get("forced", 0)
    if not forced:
        return None
    message = f"{forced} segments went before their time, as the volume is full"
    return "SegmentsForced", Severity.WARNING, message


def _failed(data: Data) -> Saying:
    return "StoreFailed", Severity.WARNING, f"the writer ends, as the disk failed: {data['reason']}"


_SAYINGS: Final[Mapping[str, Callable[[Data], Saying | None]]] = {
    "opened": _opened,
    "index": _index,
    "index-trouble": _index_trouble,
    "disk": _disk,
    "read-only": _read_only,
    "writes": _writes,
    "damaged": _damaged,
    "expiry": _expiry,
    "deleted": _deleted,
    "failed": _failed,
}
