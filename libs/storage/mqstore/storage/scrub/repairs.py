"""Repairs damage below the durable watermark in an open store.

A broker that opens the store afterwards cuts its log at the first record that it cannot read. A
plan is made of the named segments, or of the whole log; the damaged bytes are quarantined; then the
log is changed under a new epoch and synced. A crash at any point leaves the damage, or the repair,
or bytes that the next plan finds damaged.

Called from ``service``, which repairs by itself with ``damageRepair=automatic``, and by commands.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from threading import Lock
from typing import Final

from mqstore.storage.codec.record import Blank, Record, scan
from mqstore.storage.errors import RecordError, RepairRefused, StoreFailed
from mqstore.storage.log.block_cover import BlockCover
from mqstore.storage.log_lines import bounded_json
from mqstore.storage.mapped.mapped_file_queue import MappedFileQueue
from mqstore.storage.metadata.state_page import StatePage
from mqstore.storage.options import Fetch
from mqstore.storage.recovery import Applier
from mqstore.storage.recovery.repair_plan import plan_repairs
from mqstore.storage.recovery.report import (
    FetchBytes,
    Repair,
    RepairPlan,
    RepairReport,
    RestoreBytes,
)
from mqstore.storage.recovery.view import Segment, Segments, StoreView

AUTOMATIC_BYTES_MAX: Final = 16 << 20
"""Maximum bytes of tombstones that one automatic repair may place.

More is not bit rot but a lost disk area: an operator decides whether a copy of the store has the
bytes.
"""

log = logging.getLogger(__name__)


class LogRepairs:
    """Repairs the log of one open store. Thread-safe."""

    def __init__(
        self,
        view: StoreView,
        log_files: MappedFileQueue,
        state: StatePage,
        applier: Applier,
        cover: BlockCover | None,
        on_failure: Callable[[BaseException], None],
        fetch: Fetch,
    ) -> None:
        """Without ``cover`` the store may only be read. ``fetch`` as of ``StoreOptions``."""
        self._view = view
        self._log = log_files
        self._state = state
        self._applier = applier
        self._cover = cover
        self._on_failure = on_failure
        self._running = Lock()
        self.fetch = fetch

    def plan(
        self,
        bases: Collection[int] | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> RepairPlan:
        """Plan a repair of the segments with these first offsets, or of all; reads them.

        ``progress`` is called with (bytes done, of total).
        """
        end = self._state.flushed_offset
        found = [
            Segment(file.path, file.base_offset, file.size)
            for file in self._log.files
            if file.base_offset < end and not file.is_removed
            if bases is None or file.base_offset in bases
        ]
        segments = Segments(tuple(found), (), ())
        view = replace(self._view, segments=segments)
        return plan_repairs(view, end, progress)

    def run(
        self,
        bases: Collection[int] | None = None,
        progress: Callable[[int, int], None] | None = None,
        *,
        bytes_max: int | None = None,
    ) -> RepairReport:
        """Repair the damage that ``plan`` finds; durable at return. A record that would be lost is
        taken from a replica that has it whole.

        Nothing is done where the tombstones would take more than ``bytes_max`` bytes. Raises
        RepairRefused where the damaged bytes cannot be kept, or a replica did not reply (nothing
        was changed), StoreFailed where the log cannot be changed.
        """
        with self._running:
            try:
                plan = self.plan(bases, progress)
            except FileNotFoundError as error:
                raise RepairRefused(f"a segment went while it was read: {error}") from error
            if self._cover is not None:
                plan = plan.model_copy(update={"actions": tuple(map(self._fetched, plan.actions))})
            is_too_much = bytes_max is not None and plan.tombstone_bytes > bytes_max
            if not plan.actions or is_too_much or self._cover is None:
                return RepairReport(plan=plan, done=False)
            return self._apply(plan, self._cover)

    def _fetched(self, action: Repair) -> Repair:
        """Return the restoration of a record from a replica in place of its loss, if one has it."""
        if isinstance(action, RestoreBytes):
            return action
        offset, length = action.offset, action.length
        found = self.fetch(offset, length, lambda data: _is_whole(data, offset, length))
        if found is None:
            return action
        replica, data = found
        return FetchBytes(
            offset=offset,
            length=length,
            content=data.hex(),
            record_offset=offset,
            replica=replica,
        )

    def replace(self, actions: Sequence[Repair]) -> RepairReport:
        """Replace records that are whole and cannot stay; durable at return. Raises as ``run``."""
        with self._running:
            plan = RepairPlan(start=0, stop=0, scanned_bytes=0, records=0, actions=tuple(actions))
            if not actions or self._cover is None:
                return RepairReport(plan=plan, done=False)
            return self._apply(plan, self._cover)

    def _apply(self, plan: RepairPlan, cover: BlockCover) -> RepairReport:
        # The checksum of a restored word is already right.
        ranges = [
            (each.offset, each.offset + each.length)
            for each in plan.actions
            if not isinstance(each, RestoreBytes)
        ]
        with cover.pause_for_repair(ranges):
            try:
                kept = self._applier.prepare_repairs(plan.actions)
            except OSError as error:
                raise RepairRefused(
                    f"the damaged bytes cannot be kept in quarantine ({error}); make room, or "
                    "repair the disk, then repair again: nothing was changed"
                ) from error
            try:
                self._applier.apply_repairs(plan.actions)
            except OSError as error:
                failure = StoreFailed(f"a repair of the log failed: {error}")
                self._on_failure(failure)
                raise failure from error
        log.warning("repaired the log: %s", bounded_json(plan))
        return RepairReport(plan=plan, done=True, quarantined=tuple(kept))


def _is_whole(data: bytes, offset: int, length: int) -> bool:
    """Whether bytes at a physical offset are whole records, with their CRCs, maybe with the blank
    record of a segment's end behind them. Tombstones are none: another replica may have the
    record."""

    def is_right(found: Record | Blank | RecordError) -> bool:
        if isinstance(found, Blank):
            return found.offset + found.size == offset + length
        return isinstance(found, Record) and not found.is_tombstone

    return len(data) == length and all(map(is_right, scan(data, 0, length, offset)))
