"""Events of a store become Events on its pod; duplicates are counted."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from mqstore.client import StoreEvent
from mqstore.coordinator.pod_notes import MESSAGE_MAX, WINDOW_MS, Note, Notes, Severity
from mqstore.coordinator.reporting import BURST, REFILL_S, Rate

PAGE = (Path(__file__).parents[3] / "docs" / "events.md").read_text(encoding="utf-8")
OPENED: dict[str, Any] = {"durationMs": 400, "minOffset": 0, "maxOffset": 900, "readOnly": None}
LOWERED = {"group": "g", "topic": "T", "queueId": 1, "before": 9, "after": 4}
FORCED: dict[str, Any] = {
    "segment": "00000000000000000000",
    "bytes": 1 << 30,
    "ageMs": 7_200_000,
    "volume": "commitlog",
    "usedBytes": 90,
    "unlinkedBytes": 2,
    "totalBytes": 100,
    "abovePercent": 85,
    "trigger": "forced",
}
LOST: dict[str, Any] = {"missingBytes": 900, "messages": 7, "logEnd": 900, "watermark": 1800}
REPORTED: list[tuple[str, dict[str, Any], str, str]] = [
    ("opened", OPENED | {"cutBytes": 0, "damaged": 0}, "RecoveryFinished", "nothing was cut"),
    ("opened", OPENED, "RecoveryFinished", "in 0.4 s"),  # of a writer of the release before
    ("opened", OPENED | {"cutBytes": 7, "damaged": 1}, "RecoveryCut", "7 bytes were cut"),
    ("opened", OPENED | {"readOnly": "a gap"}, "StoreReadOnly", "a gap"),
    ("read-only", {"reason": "the disk refuses"}, "StoreReadOnly", "the disk refuses"),
    ("read-only", {"reason": None}, "StoreWritable", "taken again"),
    ("disk", {"refuses": True, "abovePercent": 90, "usedPercent": 91.2}, "DiskFull", "91.2 %"),
    ("disk", {"refuses": False, "abovePercent": 75, "usedPercent": 76}, "DiskFilling", "75 %"),
    ("disk", {"refuses": False, "abovePercent": None, "usedPercent": 8}, "DiskHasRoom", "8.0 %"),
    ("index", {"done": 5, "total": 9}, "IndexIncomplete", "4 bytes"),
    ("index", {"done": 9, "total": 9}, "IndexRebuilt", "complete"),
    ("index-trouble", {"reason": "2 files are gone; rebuild it"}, "IndexNeedsRebuild", "2 files"),
    ("index-trouble", {"reason": None}, "IndexRebuilt", "no rebuild"),
    ("clock-step", {"stepMs": -90_000, "offset": 7}, "ClockStepped", "set back by 90.0 s"),
    ("offsets-lowered", {"count": 3, "offsets": [LOWERED]}, "OffsetsLowered", "g in T queue 1: 9"),
    ("data-missing", LOST, "DataMissing", "the log ends at 900, the durable watermark is 1800"),
    ("loss-accepted", LOST, "LossAccepted", "900 bytes with 7 messages"),
    ("writes", {"paused": True, "reason": "moving"}, "WritesPaused", "moving"),
    ("writes", {"paused": False, "reason": None}, "WritesResumed", "go on"),
    ("damaged", {"stretches": 2}, "LogDamaged", "2 stretches"),
    ("expiry", {"messages": 3, "group": "g", "topic": "t"}, "UnconsumedAtRisk", "g in t"),
    ("forced-deletion", FORCED, "SegmentsForced", "last written 7200 s ago"),
    ("forced-deletion", FORCED | {"segment": None, "ageMs": None}, "SegmentsForced", "no message"),
    ("forced-deletion", FORCED | {"trigger": "no-segment"}, "SegmentsForced", "no room for"),
    ("puts", {"refused": True, "reason": "disk-error", "detail": "EIO"}, "PutsRefused", "EIO"),
    ("puts", {"refused": False, "reason": None}, "PutsAccepted", "again"),
    ("space-not-freed", {"bytes": 4096, "seconds": 60.0}, "SpaceNotFreed", "4096 bytes"),
    (
        "replica",
        {"change": "joined", "replica": "b", "inSync": ["a", "b"]},
        "ReplicaInSync",
        "a, b",
    ),
    (
        "replica",
        {"change": "left", "replica": "b", "inSync": ["a"]},
        "ReplicaNotInSync",
        "b is not",
    ),
    ("failed", {"reason": "sync failed"}, "StoreFailed", "sync failed"),
]


def event(number: int, kind: str, at_ms: int = 1_000, **data: Any) -> StoreEvent:
    return StoreEvent(f"5f0c2a1e-{number}", kind, at_ms, data)


def taken(notes: Notes, happened: StoreEvent) -> Note:
    note = notes.take(happened)
    assert note is not None
    return note


@pytest.mark.parametrize(("kind", "data", "reason", "says"), REPORTED)
def test_each_note_has_a_reason_that_the_docs_list(
    kind: str, data: dict[str, Any], reason: str, says: str
) -> None:
    note = taken(Notes(), event(1, kind, **data))
    assert (note.reason, note.count, note.name) == (reason, 1, "5f0c2a1e-1")
    assert says in note.message
    listed = re.search(rf"`{reason}`[^|\n]*\| (\w+) \|", PAGE)
    assert listed is not None, reason
    assert listed[1] == note.severity


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("topic", {"topic": "t", "isDeleted": False}),
        ("opening", {"stage": "scan", "done": 1, "total": 2}),
        ("puts", {"refused": True, "reason": "disk-full", "detail": "91 % full"}),
        ("puts", {"refused": False, "reason": None, "ended": "paused"}),
        ("deleted", {"expired": 4, "forced": 1, "queueFiles": 1}),
        ("replica", {"change": "lost", "replica": "b", "inSync": ["a"]}),
        ("gap", {}),
        ("of-a-later-release", {}),
    ],
)
def test_an_event_that_operators_need_not_know_has_no_note(kind: str, data: dict[str, Any]) -> None:
    assert Notes().take(event(1, kind, **data)) is None


def test_repeats_within_the_window_are_one_event_that_counts() -> None:
    notes = Notes()
    first = taken(notes, event(1, "failed", 1_000, reason="a"))
    again = taken(notes, event(2, "failed", 1_000 + WINDOW_MS, reason="b"))
    assert (again.name, again.count) == (first.name, 2)
    assert (again.first_ms, again.last_ms) == (1_000, 1_000 + WINDOW_MS)
    assert "b" in again.message
    later = taken(notes, event(3, "failed", 1_001 + WINDOW_MS, reason="c"))
    assert (later.name, later.count) == ("5f0c2a1e-3", 1)


def test_another_process_of_the_writer_begins_anew() -> None:
    notes = Notes()
    assert taken(notes, event(1, "opened", **OPENED)).count == 1
    again = taken(notes, StoreEvent("00000000-1", "opened", 1_000, OPENED))
    assert (again.name, again.count) == ("00000000-1", 1)


def test_the_same_events_make_the_same_notes() -> None:
    happened = [
        event(number, "writes", number * WINDOW_MS // 3, paused=number % 2 == 0, reason="r")
        for number in range(1, 30)
    ]
    first, second = Notes(), Notes()
    assert [first.take(each) for each in happened] == [second.take(each) for each in happened]


def test_how_far_an_index_is_makes_one_event_and_its_end_another() -> None:
    notes = Notes()
    made = [notes.take(event(n, "index", n, done=n, total=50)) for n in range(51)]
    assert [note.reason for note in made if note] == ["IndexIncomplete", "IndexRebuilt"]


def test_a_long_reason_is_cut_to_what_the_api_server_takes() -> None:
    note = taken(Notes(), event(1, "failed", reason="x" * 5_000))
    assert (len(note.message), note.severity) == (MESSAGE_MAX, Severity.WARNING)


def test_a_burst_is_written_and_then_no_more_than_the_rate() -> None:
    now = [0.0]
    rate = Rate(lambda: now[0])
    assert sum(rate.allows() for _ in range(3 * BURST)) == BURST
    now[0] += REFILL_S
    assert [rate.allows() for _ in range(2)] == [True, False]
