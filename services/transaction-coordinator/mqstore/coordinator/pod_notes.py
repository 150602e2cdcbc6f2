"""Turns the store events that an operator must know into notes, each of which becomes an Event of
Kubernetes. Repeats of one reason are one note with a count.

Notes follow from the events and their times alone: two coordinators that read the same events make
the same notes under the same names.
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
_REPORTED_ONCE: Final = frozenset({"IndexIncomplete"})
"""Reasons whose repeats report progress only."""


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
        """A new note, or an earlier one with a higher count; None for an event that operators need
        not know."""
        if self._process != process_of(event):  # its events are all that another coordinator sees
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
        elif reason in _REPORTED_ONCE:
            return None
        else:
            note = replace(
                note, severity=severity, message=message, last_ms=at, count=note.count + 1
            )
        self._latest[reason] = note
        return note


def process_of(event: StoreEvent) -> str:
    """The process of store-writer that published an event."""
    return event.id.partition("-")[0]


Data = Mapping[str, Any]
Saying = tuple[str, Severity, str]


_SAID_OTHERWISE: Final = frozenset({"disk-full", "no-room", "read-only", "failed", "paused"})
"""Reasons of refused puts that have an event of their own."""


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


def _offsets_lowered(data: Data) -> Saying:
    first = data["offsets"][0]
    who = f"group {first['group']}" if first["group"] else "delivery of delayed messages"
    message = (
        f"{data['count']} offsets were behind their queue's end and are lowered to it, first {who} "
        f"in {first['topic']} queue {first['queueId']}: {first['before']} to {first['after']}; "
        "GET /v1/store/recovery lists them"
    )
    return "OffsetsLowered", Severity.WARNING, message


def _clock_step(data: Data) -> Saying:
    size = abs(data["stepMs"]) / 1000
    where = f"messages from offset {data['offset']} on are stamped by it"
    way = "back" if data["stepMs"] < 0 else "forward"
    message = f"the clock was set {way} by {size:.1f} s; {where}"
    return "ClockStepped", Severity.WARNING, message


def _disk(data: Data) -> Saying:
    used = f"the volume is {data.get('usedPercent', 0):.1f} % full"
    if data["refuses"]:
        return "DiskFull", Severity.WARNING, f"puts are refused (507): {used}; make room or grow it"
    passed = data.get("abovePercent")
    if passed is not None:
        return "DiskFilling", Severity.WARNING, f"{used}, above {passed} %: retention makes room"
    return "DiskHasRoom", Severity.NORMAL, used


def _puts(data: Data) -> Saying | None:
    if not data["refused"]:
        if data.get("ended") in _SAID_OTHERWISE:
            return None
        return "PutsAccepted", Severity.NORMAL, "messages are accepted again"
    if data["reason"] in _SAID_OTHERWISE:
        return None
    return "PutsRefused", Severity.WARNING, f"messages are refused: {data['detail']}"


def _read_only(data: Data) -> Saying:
    reason = data["reason"]
    if reason is None:
        return "StoreWritable", Severity.NORMAL, "messages are taken again"
    return "StoreReadOnly", Severity.WARNING, f"the store may only be read: {reason}"


def _data_missing(data: Data) -> Saying:
    lost = f"{data['missingBytes']} durable bytes with {data['messages']} messages are missing"
    where = f"the log ends at {data['logEnd']}, the durable watermark is {data['watermark']}"
    how = "put the log's files back, or see `mqstore store accept-loss --dry-run`"
    return "DataMissing", Severity.WARNING, f"{lost}: {where}; {how}"


def _loss_accepted(data: Data) -> Saying:
    lost = f"{data['missingBytes']} bytes with {data['messages']} messages"
    return "LossAccepted", Severity.WARNING, f"an operator accepted the loss of {lost}"


def _writes(data: Data) -> Saying:
    if data["paused"]:
        return "WritesPaused", Severity.NORMAL, f"an administrator paused writes: {data['reason']}"
    return "WritesResumed", Severity.NORMAL, "an administrator let writes go on"


def _damaged(data: Data) -> Saying:
    message = f"{data['stretches']} stretches of the log cannot be read; the log's lines say where"
    return "LogDamaged", Severity.WARNING, message


def _expiry(data: Data) -> Saying:
    first = f"most urgent: {data.get('group')} in {data.get('topic')}"
    lost = f"{data['messages']} messages expire before a reader has consumed them"
    return "UnconsumedAtRisk", Severity.WARNING, f"{lost}; {first}; GET /v1/reports/expiry"


def _forced_deletion(data: Data) -> Saying:
    what = f"the segment made ahead ({data['bytes']} bytes, no message)"
    if data.get("segment") is not None:
        age_s = data["ageMs"] // 1000
        what = f"segment {data['segment']} ({data['bytes']} bytes, last written {age_s} s ago)"
    used = f"{data['usedBytes'] - data['unlinkedBytes']} of {data['totalBytes']} bytes"
    above = f"is above {data['abovePercent']} %"
    if data["trigger"] == "no-segment":
        above = "has no room for the next segment"
    why = f"the volume of {data['volume']} {above} ({used} in use)"
    return "SegmentsForced", Severity.WARNING, f"{what} was deleted before its time: {why}"


def _space_not_freed(data: Data) -> Saying:
    what = f"{data['bytes']} bytes of deleted files are in use after {data['seconds']:.0f} s"
    message = f"{what}: a process keeps them open, and retention waits; lsof +L1 shows which"
    return "SpaceNotFreed", Severity.WARNING, message


def _replica(data: Data) -> Saying | None:
    names = ", ".join(data["inSync"])
    if data["change"] == "joined":
        return "ReplicaInSync", Severity.NORMAL, f"{data['replica']} is in sync; in sync: {names}"
    if data["change"] == "left":
        message = f"{data['replica']} is not in sync any more; in sync: {names}"
        return "ReplicaNotInSync", Severity.WARNING, message
    return None


def _failed(data: Data) -> Saying:
    return "StoreFailed", Severity.WARNING, f"the writer ends, as the disk failed: {data['reason']}"


_SAYINGS: Final[Mapping[str, Callable[[Data], Saying | None]]] = {
    "opened": _opened,
    "index": _index,
    "index-trouble": _index_trouble,
    "offsets-lowered": _offsets_lowered,
    "clock-step": _clock_step,
    "disk": _disk,
    "puts": _puts,
    "read-only": _read_only,
    "data-missing": _data_missing,
    "loss-accepted": _loss_accepted,
    "writes": _writes,
    "damaged": _damaged,
    "expiry": _expiry,
    "forced-deletion": _forced_deletion,
    "space-not-freed": _space_not_freed,
    "replica": _replica,
    "failed": _failed,
}
