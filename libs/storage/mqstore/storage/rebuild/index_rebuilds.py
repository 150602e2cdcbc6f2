"""Index rebuilds beside the writer: one at a time, under a lease, until the files are published.

A rebuild ends where a new live index file begins: items of records from there on are the writer's,
all below are the job's. The job reads the log, sends the files that it makes (the plan) and the
items by ranges of slots (parts), and requests publication. A failure or a lapsed lease before the
journal leaves the index as it was; from the journal on the rebuild is rolled forward, by the next
opening too.
"""

from __future__ import annotations

import logging
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Final

from mqstore.storage.errors import (
    IndexRebuildRefused,
    IndexRebuildRunning,
    IndexRebuildUnknown,
    PinRefused,
    PinUnknown,
    StagingFull,
)
from mqstore.storage.index.build import (
    BuildPlan,
    PartBuilder,
    finish_files,
    make_files,
    refuse_full_disk,
)
from mqstore.storage.index.plan import Layout
from mqstore.storage.index.publication import discard
from mqstore.storage.layout import StoreFormat
from mqstore.storage.metadata import index_loss
from mqstore.storage.rebuild import plan_check
from mqstore.storage.rebuild.part_upload import PartUpload
from mqstore.storage.rebuild.values import (
    PartSums,
    Published,
    RebuildEnded,
    RebuildView,
    SegmentRange,
)
from mqstore.storage.retention.cleaner import Retention
from mqstore.storage.seams import Seams

if TYPE_CHECKING:
    from mqstore.storage.config import StoreConfig
    from mqstore.storage.index.catch_up import IndexCatchUp
    from mqstore.storage.index.service import IndexService
    from mqstore.storage.log.commit_log import CommitLog
    from mqstore.storage.metadata.format_file import FormatFile
    from mqstore.storage.paths import StorePaths

PIN: Final = "index-rebuild"
LEASE_MAX_S: Final = 3_600
"""Maximum length of a lease in seconds."""
POLL_S: Final = 1.0
"""Longest delay until a lapsed lease is noticed."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _RunningRebuild:
    view: RebuildView
    plan: BuildPlan | None = None
    parts: int = 0
    uploads: dict[int, PartUpload] = field(default_factory=dict)
    """By part, the current upload."""
    whole: dict[int, PartUpload] = field(default_factory=dict)
    began: set[int] = field(default_factory=set)
    """Parts whose slots may contain items."""

    @property
    def items(self) -> int:
        return sum(each.items for each in tuple(self.whole.values()))


class IndexRebuilds:
    """A ``BackgroundService`` that runs rebuilds, and ends lapsed leases. Thread-safe."""

    name = "index-rebuild"

    def __init__(
        self,
        config: StoreConfig,
        content: FormatFile,
        paths: StorePaths,
        log: CommitLog,
        index: IndexService,
        catch_up: IndexCatchUp,
        retention: Retention,
        seams: Seams,
    ) -> None:
        """``content`` is format.json of this opening."""
        self.ended: Counter[str] = Counter()
        """Number of rebuilds since the opening, by outcome."""
        self.last: RebuildEnded | None = None
        self._config = config
        self._format = content
        self._paths = paths
        self._log = log
        self._index = index
        self._catch_up = catch_up
        self._retention = retention
        self._seams = seams
        self._lock = Lock()
        """Held to change the running rebuild; no longer than the write of a pin."""
        self._work = Lock()
        """Held while files are made or published. Taken before ``_lock``."""
        self._running: _RunningRebuild | None = None
        self._published: Published | None = None

    # the lease ----------------------------------------------------------------------------

    @property
    def running(self) -> RebuildView | None:
        """The running rebuild, or None. Never blocks, so an event loop may read it."""
        running = self._running
        return None if running is None else self._view(running)

    def begin(
        self,
        owner: str,
        *,
        lease_s: int,
        store_format: StoreFormat | None = None,
        hash_slots: int | None = None,
        index_num: int | None = None,
        disk_ratio: int | None = None,
    ) -> RebuildView:
        """Begin a rebuild of the whole log as it is dispatched now, which is on disk at return.

        Raises IndexRebuildRunning, IndexRebuildRefused (sizes or a format that only a store at rest
        can get), StoreFailed, OSError.
        """
        self._require_same(store_format, hash_slots, index_num)
        self._require_none()
        with self._work:
            self._lapse()
            self._require_none()
            discard(self._seams.files, self._paths)
            start = self._pin(self._log.min_offset, None, lease_s, owner)
            try:
                end = self._catch_up.begin_rebuild(start)
                self._log.flush.flush_all()
                view = self._new_running(owner, start, end, lease_s, disk_ratio)
                self._pin(start, end, lease_s, owner)
            except BaseException:
                self._let_go()
                raise
            with self._lock:
                self._running = _RunningRebuild(view)
                log.info("index rebuild %s of %s begins: %d to %d", view.id, owner, start, end)
                return view

    def heartbeat(self, rebuild_id: str, lease_s: int) -> RebuildView:
        """Renew the lease: it then ends ``lease_s`` seconds from now.

        Raises IndexRebuildUnknown.
        """
        with self._lock:
            running = self._require(rebuild_id)
            view = running.view
            self._pin(view.from_offset, view.to_offset, lease_s, view.owner)
            running.view = view.model_copy(update={"expires_ms": self._expiry(lease_s)})
            return self._view(running)

    def give_up(self, rebuild_id: str) -> None:
        """Discard a rebuild.

        Raises IndexRebuildUnknown, IndexRebuildRefused from its journal on, OSError.
        """
        with self._work:
            with self._lock:
                self._require(rebuild_id)
            if self._index.is_publishing:
                raise IndexRebuildRefused("the new index is being published; retry the request")
            self._end("given-up")

    def step(self, now: float) -> float:
        """End a lapsed lease; retry a publication that the disk interrupted."""
        if self._work.acquire(blocking=False):
            try:
                self._go_on()
                self._check_index_files()
            finally:
                self._work.release()
        return now + POLL_S

    def _go_on(self) -> None:
        """Retry a publication; called with ``_work`` held."""
        try:
            self._lapse()
            if self._running is not None and self._index.is_publishing:
                self._publish_now(self._running)
        except OSError as error:
            log.error("an index rebuild cannot be ended, tried again: %s", error)

    def _check_index_files(self) -> None:
        """Detect files that were removed while the store is open.

        Called with ``_work`` held: a publication must not replace lost files before their loss is
        noted.
        """
        known, found = self._catch_up.lost, self._index.missing()
        gone = tuple(sorted({*known, *found}))  # a file that reappears may have other content
        if gone == known or not self._config.message_index_enable:
            return
        self._catch_up.note_lost(gone)
        log.error(
            "%d files of the index are gone or damaged: %s; keys may be missed until it is rebuilt",
            *(len(gone), ", ".join(gone[:10])),
        )
        self._note_loss()

    def _note_loss(self) -> None:
        gone = self._catch_up.lost
        try:
            if gone:
                index_loss.put(self._seams.files, self._paths, gone)
        except OSError as error:
            log.error("that index files are gone cannot be noted: %s", error)

    def close(self) -> None:
        """End the rebuild before the store closes; waits for a running publication.

        Raises OSError.
        """
        with self._work:
            if self._running is not None and not self._index.is_publishing:
                self._end("closed")
            self._check_index_files()

    # the work -----------------------------------------------------------------------------

    def plan(self, rebuild_id: str, plan: BuildPlan, parts: int) -> RebuildView:
        """Make the staged files, empty; the same plan again changes nothing.

        Raises IndexRebuildUnknown, IndexRebuildInvalid, IndexRebuildRefused, StagingFull, OSError.
        """
        with self._work:
            with self._lock:
                running = self._require(rebuild_id)
                if running.plan is not None:
                    if (running.plan, running.parts) != (plan, parts):
                        raise IndexRebuildRefused(
                            "it has another plan already; give it up and begin again"
                        )
                    return self._view(running)
            view = running.view
            plan_check.check(plan, parts, view.from_offset, view.to_offset)
            refuse_full_disk(
                self._seams.files, self._paths.ours, plan.staged_bytes, view.disk_ratio
            )
            self._make_files(plan)
            with self._lock:
                running.plan, running.parts = plan, parts
                return self._view(running)

    def begin_part(self, rebuild_id: str, number: int) -> PartUpload:
        """Begin the upload of a part's items from the first one on; an earlier upload of it is
        discarded.

        Raises IndexRebuildUnknown, IndexRebuildRefused, IndexRebuildInvalid, OSError.
        """
        with self._lock:
            running = self._require(rebuild_id)
            plan = running.plan
            if plan is None:
                raise IndexRebuildRefused("there is no plan yet; send it before its parts")
            if not 0 <= number < running.parts:
                raise IndexRebuildRefused(f"the plan has the parts 0 to {running.parts - 1}")
            earlier = running.uploads.get(number)
            is_first = number not in running.began
            slots = plan.layout.slots_of(number, running.parts)
            files, directory = self._seams.files, self._paths.index_staging
            builder = PartBuilder(files, directory, plan, slots, running.view.to_offset)
            running.uploads[number] = upload = PartUpload(number, builder)
            running.whole.pop(number, None)
            running.began.add(number)
        if earlier is not None:
            earlier.stop()
        if not is_first:
            upload.clear()
        return upload

    def finish_part(self, rebuild_id: str, upload: PartUpload, items: int) -> PartSums:
        """Finish a part that was sent completely.

        Raises IndexRebuildUnknown, IndexRebuildInvalid.
        """
        sums = upload.finish(items)
        with self._lock:
            running = self._require(rebuild_id)
            if running.uploads.get(upload.number) is not upload:
                raise IndexRebuildUnknown(f"part {upload.number} is sent once more")
            del running.uploads[upload.number]
            running.whole[upload.number] = upload
            return sums

    def publish(self, rebuild_id: str) -> Published:
        """Publish the new files; a repeated call returns the same result.

        Raises IndexRebuildUnknown, IndexRebuildRefused (parts are missing), StagingDamaged, OSError
        (retry).
        """
        with self._work:
            if self._published is not None and self._published.id == rebuild_id:
                return self._published
            with self._lock:
                running = self._require(rebuild_id)
            return self._publish_now(running)

    def _publish_now(self, running: _RunningRebuild) -> Published:
        """Publish; called with ``_work`` held."""
        plan = self._require_whole(running)
        try:
            published = self._publish(running, plan)
        except BaseException:
            if not self._index.is_publishing:
                self._end("failed")
            raise
        self._published = published
        self._note_loss()
        self._end("published", published)
        return published

    def _publish(self, running: _RunningRebuild, plan: BuildPlan) -> Published:
        view, layout, staged = running.view, plan.layout, []
        if not self._index.is_publishing:
            built = [each.built for each in running.whole.values()]
            staged = finish_files(self._seams.files, self._paths.index_staging, plan, built)
            self._catch_up.hold()
        end_ms = plan.files[-1].end[1] if plan.files else 0
        journal = self._index.publish(
            staged,
            layout.slots,
            layout.index_num,
            view.store_id,
            end_ms,
            self._catch_up.adopt_rebuild(view.to_offset),
        )
        return Published(
            id=view.id,
            published=journal.names,
            replaced=journal.replaced,
            items=plan.firsts[-1],
            bytes=sum(each.used for each in journal.files),
        )

    def _make_files(self, plan: BuildPlan) -> None:
        try:
            make_files(self._seams.files, self._paths.index_staging, plan)
        except OSError as error:
            discard(self._seams.files, self._paths)
            raise StagingFull(
                f"the staged files cannot be made: {error}; make room, then send the plan again"
            ) from error

    # conditions ---------------------------------------------------------------------------

    @property
    def layout(self) -> Layout:
        """The layout of the present files and of those that are made."""
        index = self._index
        return Layout(index.slots, index.index_num, index.indexes_tags)

    def _require_same(
        self, store_format: StoreFormat | None, hash_slots: int | None, index_num: int | None
    ) -> None:
        if not self._config.message_index_enable:
            raise IndexRebuildRefused("messageIndexEnable is off: nothing is indexed here")
        layout, own = self.layout, self._format.rocketmq_format
        for what, given, there in (
            ("the format", store_format, own),
            ("hash slots", hash_slots, layout.slots),
            ("index entries", index_num, layout.index_num),
        ):
            if given is not None and given != there:
                raise IndexRebuildRefused(
                    f"{what} {given} instead of {there}: that is for a store at rest only, since"
                    " the live index file goes on as it is; stop the writer, or leave it out"
                )

    def _require_none(self) -> None:
        running = self._running
        if running is None or self._has_lapsed(running):
            return
        view = running.view
        raise IndexRebuildRunning(
            f"the index is being rebuilt by {view.owner} already ({view.id}); wait for its end, or"
            f" until its lease lapses",
            {
                "id": view.id,
                "owner": view.owner,
                "sinceMs": view.since_ms,
                "expiresMs": view.expires_ms,
            },
        )

    def _require(self, rebuild_id: str) -> _RunningRebuild:
        """The running rebuild; called with ``_lock`` held. A lapsed lease counts as ended."""
        running = self._running
        if running is None or running.view.id != rebuild_id or self._has_lapsed(running):
            raise IndexRebuildUnknown(
                f"there is no index rebuild {rebuild_id[:100]}: it has ended, or its lease lapsed"
            )
        return running

    def _require_whole(self, running: _RunningRebuild) -> BuildPlan:
        plan = running.plan
        if plan is None:
            raise IndexRebuildRefused("there is no plan yet; send it, then its parts")
        missing = [part for part in range(running.parts) if part not in running.whole]
        if missing:
            raise IndexRebuildRefused(
                f"{len(missing)} of {running.parts} parts are missing, the first is {missing[0]}"
            )
        found = Counter[int]()
        for each in running.whole.values():
            found.update(each.built.items)
        for number, planned in enumerate(plan.files):
            if found[number] != planned.items:
                raise IndexRebuildRefused(
                    f"file {number} got {found[number]} of {planned.items} items; send all parts"
                    " again"
                )
        return plan

    # begin and end ------------------------------------------------------------------------

    def _new_running(
        self, owner: str, start: int, end: int, lease_s: int, disk_ratio: int | None
    ) -> RebuildView:
        layout, first_ratio = self.layout, self._config.disk_max_used_space_ratio
        return RebuildView(
            id=f"{self._seams.random.getrandbits(64):016x}",
            owner=owner,
            shard=self._format.shard,
            store_id=self._format.store_id,
            format=self._format.rocketmq_format.value,
            tags=layout.tags,
            hash_slots=layout.slots,
            index_num=layout.index_num,
            from_offset=start,
            to_offset=end,
            segments=tuple(self._segments(start, end)),
            since_ms=self._seams.clock.now_ms(),
            expires_ms=self._expiry(lease_s),
            disk_ratio=min(first_ratio, disk_ratio or first_ratio),
        )

    def _segments(self, start: int, end: int) -> list[SegmentRange]:
        found = []
        for file in self._log.files.files:
            first, stop = max(file.base_offset, start), min(file.end_offset, end)
            if first < stop:
                found.append(SegmentRange(name=file.path.name, start=first, end=stop))
        return found

    def _view(self, running: _RunningRebuild) -> RebuildView:
        progress = {
            "items": running.items,
            "parts": len(running.whole),
            "parts_planned": running.parts,
        }
        return running.view.model_copy(update=progress)

    def _expiry(self, lease_s: int) -> int:
        return self._seams.clock.now_ms() + lease_s * 1000

    def _pin(self, start: int, end: int | None, lease_s: int, owner: str) -> int:
        """Pin the log from ``start`` on, or its remaining part; returns its start.

        Raises OSError.
        """
        while end is None or start < end:
            try:
                self._retention.put_pin(PIN, start, end, lease_s=lease_s, why=owner)
                break
            except PinRefused:
                if start >= self._log.min_offset:
                    raise
                start = self._log.min_offset
        return start

    def _has_lapsed(self, running: _RunningRebuild) -> bool:
        return (
            self._seams.clock.now_ms() >= running.view.expires_ms and not self._index.is_publishing
        )

    def _lapse(self) -> None:
        """End a lapsed lease; called with ``_work`` held."""
        running = self._running
        if running is not None and self._has_lapsed(running):
            self._end("lapsed")

    def _end(self, outcome: str, published: Published | None = None) -> None:
        """End the rebuild; called with ``_work`` held."""
        with self._lock:
            running, self._running = self._running, None
            if running is None:
                return
            for upload in running.uploads.values():
                upload.stop()
            view, ended_ms = running.view, self._seams.clock.now_ms()
            self.last = RebuildEnded(
                id=view.id,
                owner=view.owner,
                outcome=outcome,
                since_ms=view.since_ms,
                ended_ms=ended_ms,
                seconds=(ended_ms - view.since_ms) / 1000,
                items=running.items,
                files=0 if published is None else len(published.published),
                bytes=0 if published is None else published.bytes,
            )
            self.ended[outcome] += 1
        level = logging.INFO if outcome in ("published", "given-up") else logging.WARNING
        log.log(level, "index rebuild %s of %s: %s", view.id, view.owner, outcome)
        self._let_go()

    def _let_go(self) -> None:
        self._catch_up.end_rebuild()
        with suppress(PinUnknown):  # the pin has expired
            self._retention.remove_pin(PIN)
        discard(self._seams.files, self._paths)
