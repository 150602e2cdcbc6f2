"""Opens the store for writing, or read-only while the disk refuses or data is missing."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from mqstore.service import logs
from mqstore.service.settings import Settings
from mqstore.storage import MessageStore, StoreOptions
from mqstore.storage.directory import StorePaths
from mqstore.storage.errors import DataMissing, DiskRefuses, StorageError
from mqstore.storage.host import Seams
from mqstore.storage.repair import Fetch, make_room
from mqstore.storage.retention import SHOWN_WITHIN_S
from mqstore.storage.status import NEXT_EPOCH, Progress

PAUSE_FIRST_S: Final = 1.0
PAUSE_MAX_S: Final = 60.0
"""Seconds between two attempts: the first pause, doubled at each attempt up to the maximum."""
CHECK_INTERVAL_S: Final = 1.0
"""Seconds between two checks whether missing data was restored, or its loss accepted."""

log = logs.get(__name__)


class Opening:
    """Opens the store of this process and schedules the attempts. One attempt at a time."""

    def __init__(
        self,
        settings: Settings,
        seams: Seams,
        on_progress: Callable[[Progress], None],
        on_failure: Callable[[BaseException], None],
        fetch: Fetch,
    ) -> None:
        self.refused = 0
        """Number of attempts that the disk refused."""
        self.refusal: DiskRefuses | DataMissing | None = None
        """Why the last attempt failed."""
        self.room_made: Mapping[str, int | float | str | None] | None = None
        """Figures of the forced deletion by which the last attempt made room; None without one."""
        self._settings = settings
        self._seams = seams
        self._pause_s = PAUSE_FIRST_S
        self._next_at = 0.0
        self._next_room_at = -math.inf
        self._seen_files: tuple[object, ...] = ()
        self._options = StoreOptions(
            store_host=settings.store_host,
            shard=str(settings.shard),
            store_id=settings.store_id,
            store_path_commit_log=settings.store_path_commit_log,
            format=settings.store_format,
            all_settings=settings.config_file is not None,
            deletes=settings.retention,
            leader=_leader(settings),
            bounds_reads=settings.read_up_to_confirmed_offset,
            scrubs=True,
            fetch=fetch,
            waits_for_files=False,
            on_progress=on_progress,
            on_failure=on_failure,
        )

    @property
    def next_attempt_s(self) -> int:
        """Seconds until the next attempt, at least 1."""
        return max(1, math.ceil(self._next_at - time.monotonic()))

    def lead(self, epoch: int = NEXT_EPOCH) -> None:
        """Open the store without a leader from now on, and begin an epoch."""
        self._options = replace(self._options, leader=None, epoch=epoch)

    def open(self) -> MessageStore:
        """Open the store for writing. Blocks while the store recovers.

        Raises DiskRefuses and DataMissing (retry after ``pause``), StorageError.
        """
        self._seen_files = self._list_files()
        self.room_made = self._make_room()
        try:
            return self._open(replace(self._options, epoch=self._epoch()))
        except (DiskRefuses, DataMissing) as error:
            self.refused += isinstance(error, DiskRefuses)
            self.refusal = error
            traceback.clear_frames(error.__traceback__)  # they keep maps of the store
            raise

    def _epoch(self) -> int | None:
        """The epoch to begin: a leader whose log has copies, or may get some, begins one each time.

        A crash may have taken bytes from its log that a copy has."""
        if self._options.follows or self._options.epoch is not None:
            return self._options.epoch
        files, paths = self._seams.files, StorePaths(self._settings.store.absolute())
        try:
            is_copied = any(
                files.stat(each) is not None for each in (paths.epochs, paths.follower_note)
            )
        except OSError:  # the opening meets it too, and reports it; otherwise an epoch is safe
            is_copied = True
        return NEXT_EPOCH if is_copied or self._settings.admits_copies else None

    def _make_room(self) -> Mapping[str, int | float | str | None] | None:
        """Delete files if the disk is full, at most once per ``SHOWN_WITHIN_S``. Return figures.

        The interval gives readers time to close deleted files, which keep their blocks.
        """
        if time.monotonic() < self._next_room_at:
            return None
        root = self._settings.store.absolute()
        try:
            made = make_room(root, self._settings.store_config, self._seams, self._options)
        except (OSError, StorageError) as error:  # the opening meets it too, and reports it
            log.info("no room can be made before the opening", error=str(error))
            return None
        if made is not None:
            self._next_room_at = time.monotonic() + SHOWN_WITHIN_S
        return made

    def open_read_only_view(self, refusal: DiskRefuses | DataMissing) -> MessageStore:
        """Open the store on an overlay, which writes nothing. Raises the refusal if that fails."""
        why = f"the disk refuses: {refusal}; it is tried again, at least every {PAUSE_MAX_S:g} s"
        options = replace(
            self._options,
            create=False,
            in_place=False,
            services=False,
            why_no_services=why,
            on_failure=None,
        )
        try:
            return self._open(options)
        except StorageError as error:
            raise refusal from error

    async def pause(self, shutdown: asyncio.Event) -> bool:
        """Wait until the next attempt is due. Return True if the service shuts down instead."""
        if isinstance(self.refusal, DataMissing):
            return await self._pause_until_changed(shutdown)
        self._next_at = time.monotonic() + self._pause_s
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(shutdown.wait(), self._pause_s)
        self._pause_s = min(2 * self._pause_s, PAUSE_MAX_S)
        return shutdown.is_set()

    async def _pause_until_changed(self, shutdown: asyncio.Event) -> bool:
        """Wait until files change, because missing data does not return otherwise."""
        while (
            not shutdown.is_set() and await asyncio.to_thread(self._list_files) == self._seen_files
        ):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(shutdown.wait(), CHECK_INTERVAL_S)
        return shutdown.is_set()

    def _list_files(self) -> tuple[object, ...]:
        """Return the state of the log's files, and of the acceptance of a loss."""
        files, paths = self._seams.files, StorePaths(self._settings.store.absolute())
        directories = {paths.commit_log}
        if (setting := self._settings.store_path_commit_log) is not None:
            directories.add(Path(setting))
        try:
            names = [path / name for path in sorted(directories) for name in files.list(path)]
            names += [paths.accepted_loss, paths.format, paths.lock]
            return tuple((str(path), files.stat(path)) for path in names)
        except OSError as error:  # the opening itself meets it too, and reports it
            return (error.errno, error.filename)

    def _open(self, options: StoreOptions) -> MessageStore:
        root = self._settings.store.absolute()
        store = MessageStore.open(root, self._settings.store_config, self._seams, options)
        if store.dedup is not None:
            store.dedup.prepare()  # here, as the event loop would stand still for it
        return store


def _leader(settings: Settings) -> str | None:
    """Return what a follower names as its leader; None for a store that leads from the start."""
    if settings.election_lease is not None:
        return f"elected by {settings.election_lease}"
    return settings.ha_master_address if settings.follows else None
