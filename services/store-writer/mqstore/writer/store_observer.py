"""Observes a store and publishes its changes as events and operations.

Recovery reports its progress (``Progress``). All other changes are found by comparing successive
snapshots of the store, so that the engine needs no code for events.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from mqstore.service import logs
from mqstore.service.events import Events
from mqstore.storage import MessageStore
from mqstore.storage.puts import PutRefusal
from mqstore.storage.rebuild import RebuildEnded, RebuildView
from mqstore.storage.status import ClockStep, Loss, Progress

INTERVAL_S: Final = 1.0
"""Seconds between two snapshots of the store."""
LOWERED_LISTED_MAX: Final = 20
"""Maximum number of lowered offsets in one event; its count and the recovery report cover all."""
LISTED_MAX: Final = 100
"""Maximum number of segments, and of queue ranges, in one event; GET /v1/store/recovery has all."""
OPENING: Final = "opening"
INDEX: Final = "index"

log = logs.get(__name__)


@dataclass(slots=True)
class Operation:
    """A long operation with its progress: ``done`` of ``total`` bytes of its stage."""

    name: str
    stage: str
    done: int
    total: int
    started_ms: int
    ended_ms: int | None = None

    @property
    def percent(self) -> int:
        """Progress in percent, 100 once the operation ended."""
        if self.ended_ms is not None:
            return 100
        return 100 * self.done // self.total if self.total else 0


@dataclass(frozen=True, slots=True)
class _Snapshot:
    deleted: dict[str, int]
    disk: tuple[bool, int | None]
    """Whether the disk refuses puts, and the highest level in percent that a volume exceeds."""
    used_percent: float
    refusal: PutRefusal | None
    read_only: str | None
    paused: str | None
    damaged: int
    findings: int
    """Number of findings of the scrub."""
    repairs: tuple[int, int]
    """Number of repaired places of the log, and of those where a message is lost."""
    index_trouble: str | None
    rebuild: RebuildView | None
    rebuilt: RebuildEnded | None
    noted: int
    """Number of notes in the journal of retention."""
    clock_steps: int
    clock_step: ClockStep | None


class StoreObserver:
    """Publishes the events of the open store, and lists its long operations.

    Used on the event loop, except ``note_progress``, which another thread may call.
    """

    def __init__(
        self,
        events: Events,
        store: Callable[[], MessageStore | None],
        election_lease: str | None = None,
    ) -> None:
        """With an ``election_lease`` another replica leads when this process stands still."""
        self._events = events
        self._store = store
        self._is_elected = election_lease is not None
        self._operations: dict[str, Operation] = {}
        self._before: _Snapshot | None = None

    def operations(self) -> list[Operation]:
        """Return running operations and the last ended one of each name, newest first."""
        return sorted(self._operations.values(), key=lambda each: -each.started_ms)

    def note_progress(self, progress: Progress) -> None:
        """Publish the progress of recovery. Called from the thread that opens the store."""
        changed = self._advance(OPENING, progress.stage, progress.done, progress.total)
        if changed:
            self._events.publish_from_thread(
                OPENING, stage=progress.stage, done=progress.done, total=progress.total
            )

    def note_opened(self, store: MessageStore) -> None:
        """Publish the opening of a store, and observe it from now on."""
        snapshot = self._begin(store)
        self._end(OPENING)
        report = store.recovery
        self._events.publish(
            "opened",
            durationMs=report.duration_ms,
            minOffset=store.log.min_offset,
            maxOffset=store.log.max_offset,
            readOnly=store.read_only_reason,
            path=report.plan.path,
            cutBytes=report.plan.cut_bytes,
            damaged=report.plan.damaged_count,
        )
        if snapshot.clock_step is not None:
            self._events.publish("clock-step", **snapshot.clock_step.model_dump(by_alias=True))
        if report.lowered_offset_count:
            self._events.publish(
                "offsets-lowered",
                count=report.lowered_offset_count,
                offsets=[
                    each.model_dump(by_alias=True)
                    for each in report.lowered_offsets[:LOWERED_LISTED_MAX]
                ],
            )
        if report.accepted_loss is not None:
            self._events.publish("loss-accepted", **_of_loss(report.accepted_loss))
        if snapshot.index_trouble is not None:
            self._events.publish("index-trouble", reason=snapshot.index_trouble)

    def note_view(self, store: MessageStore) -> None:
        """Publish why a store is open for reads only, and observe it from now on."""
        self._begin(store)
        if store.read_only_reason is not None:
            self._events.publish("read-only", reason=store.read_only_reason)
        if (loss := store.recovery.plan.loss) is not None:
            self._events.publish("data-missing", **_of_loss(loss))

    def note_closing(self, store: MessageStore) -> None:
        """Publish damage of the closing store, before the streams of events end."""
        progress = store.scrub.progress
        if store.read_only_reason is None and progress.finding_count:
            first = min((each.offset for each in progress.findings), default=None)
            self._events.publish(
                "closing-damaged", findings=progress.finding_count, firstOffset=first
            )

    async def run(self) -> None:
        """Compare snapshots, and show readers that the event loop runs, until the task is
        cancelled."""
        while True:
            store = self._store()
            if store is not None:
                self._beat(store)
                try:
                    self._compare(store)
                except Exception:  # a missed event must not prevent later ones
                    log.exception("snapshot of the store failed")
            await asyncio.sleep(INTERVAL_S)

    def _begin(self, store: MessageStore) -> _Snapshot:
        self._beat(store)
        self._before = _take_snapshot(store)
        return self._before

    def _beat(self, store: MessageStore) -> None:
        store.state.beat(elected=self._is_elected)

    def _compare(self, store: MessageStore) -> None:
        now, before = _take_snapshot(store), self._before
        self._before = now
        self._follow_index(store)
        if before is None:  # a store is noted when it is opened
            return
        for kind, data in _differences(before, now):
            self._events.publish(kind, **data)
        for note in store.retention.journal.after(before.noted):
            self._events.publish(note.kind, **note.figures)

    def _follow_index(self, store: MessageStore) -> None:
        """Publish the progress of the writer's index builds; a needed rebuild is another event."""
        index, begin = store.dispatcher.catch_up, store.log.min_offset
        done, total = index.position - begin, store.log.max_offset - begin
        if index.complete:
            done, is_news = total, self._end(INDEX)
        else:
            is_news = index.has_work and self._advance(INDEX, "rebuild", done, total)
        if is_news:
            self._events.publish(INDEX, done=done, total=total)

    def _advance(self, name: str, stage: str, done: int, total: int) -> bool:
        """Update an operation. Return whether its percentage or its stage changed."""
        known = self._operations.get(name)
        if known is None or known.ended_ms is not None:
            self._operations[name] = Operation(name, stage, done, total, _now_ms())
            return True
        before = known.stage, known.percent
        known.stage, known.done, known.total = stage, done, total
        return before != (stage, known.percent)

    def _end(self, name: str) -> bool:
        known = self._operations.get(name)
        if known is None or known.ended_ms is not None:
            return False
        known.ended_ms = _now_ms()
        return True


def _of_loss(loss: Loss) -> dict[str, object]:
    """Return the fields of an event about missing durable data."""
    queues = [
        {"topic": each.topic, "queueId": each.queue_id, "from": each.first, "to": each.end}
        for each in loss.queues[:LISTED_MAX]
    ]
    return {
        "watermark": loss.watermark,
        "logEnd": loss.log_end,
        "missingBytes": loss.missing_bytes,
        "segments": loss.segments[:LISTED_MAX],
        "messages": loss.messages,
        "queues": queues,
    }


def _take_snapshot(store: MessageStore) -> _Snapshot:
    retention, config = store.retention, store.config
    disks = retention.disks
    levels = (
        config.disk_max_used_space_ratio,
        config.disk_space_clean_forcibly_ratio,
        config.disk_space_warning_level_ratio,
    )
    pause, refusal = store.write_pause.current, store.put_refusal
    is_for_room = refusal is not None and refusal.is_for_room
    deleted = {why.value: count for why, count in retention.deleted.items()}
    deleted["queueFiles"] = retention.removal.queue_files
    deleted["indexFiles"] = retention.removal.index_files
    return _Snapshot(
        deleted,
        (is_for_room, max(filter(disks.shows_above, levels), default=None)),
        disks.fullest().used_percent if disks.volumes else 0.0,
        refusal,
        store.read_only_reason,
        None if pause is None else pause.reason,
        store.dispatcher.counts.defects,
        store.scrub.progress.finding_count,
        (store.scrub.progress.repair_count, store.scrub.progress.tombstone_count),
        store.index_trouble,
        store.rebuilds.running,
        store.rebuilds.last,
        retention.journal.count,
        store.clock.seen,
        store.clock.last,
    )


def _differences(before: _Snapshot, now: _Snapshot) -> Iterator[tuple[str, dict[str, object]]]:
    gone = {
        what: count - before.deleted.get(what, 0)
        for what, count in now.deleted.items()
        if count != before.deleted.get(what, 0)
    }
    if gone:
        yield "deleted", dict(gone)
    if now.disk != before.disk:
        refuses, above = now.disk
        used = now.used_percent
        yield "disk", {"refuses": refuses, "abovePercent": above, "usedPercent": used}
    if _reason(now.refusal) != _reason(before.refusal):
        yield "puts", _puts(now.refusal) | {"ended": _reason(before.refusal)}
    if now.read_only != before.read_only:
        yield "read-only", {"reason": now.read_only}
    if now.paused != before.paused:
        yield "writes", {"paused": now.paused is not None, "reason": now.paused}
    if now.damaged != before.damaged:
        yield "damaged", {"stretches": now.damaged}
    if now.findings != before.findings:
        yield "scrub-findings", {"findings": now.findings}
    if now.repairs != before.repairs:
        done, lost = (
            after - known for after, known in zip(now.repairs, before.repairs, strict=True)
        )
        yield "log-repaired", {"restored": done - lost, "tombstones": lost}
    if now.index_trouble != before.index_trouble:
        yield "index-trouble", {"reason": now.index_trouble}
    if now.clock_steps != before.clock_steps and now.clock_step is not None:
        yield "clock-step", now.clock_step.model_dump(by_alias=True)
    yield from _rebuilds(before, now)


def _reason(refusal: PutRefusal | None) -> str | None:
    return None if refusal is None else refusal.reason


def _puts(refusal: PutRefusal | None) -> dict[str, object]:
    if refusal is None:
        return {"refused": False, "reason": None, "detail": None, "figures": {}}
    figures = dict(refusal.figures)
    return {
        "refused": True,
        "reason": refusal.reason,
        "detail": refusal.detail,
        "figures": figures,
    }


def _rebuilds(before: _Snapshot, now: _Snapshot) -> Iterator[tuple[str, dict[str, object]]]:
    begun, ended = now.rebuild, now.rebuilt
    if begun is not None and (before.rebuild is None or before.rebuild.id != begun.id):
        yield "index-rebuild", {"id": begun.id, "owner": begun.owner, "bytes": begun.length}
    if ended is not None and ended != before.rebuilt:
        kind = "index-rebuilt" if ended.outcome == "published" else "index-rebuild-ended"
        names = {"id", "owner", "outcome", "seconds", "items", "files", "bytes"}
        yield kind, ended.model_dump(include=names)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
