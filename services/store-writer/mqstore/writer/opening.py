"""Opening the store: for writing, or only to look at it while the disk refuses."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from mqstore.service.settings import Settings
from mqstore.storage.errors import DiskRefuses, StorageError
from mqstore.storage.message_store import MessageStore, Progress, StoreOptions
from mqstore.storage.seams import Seams

PAUSE_FIRST_S: Final = 1.0
PAUSE_MAX_S: Final = 60.0
"""Between two attempts; each pause is twice the one before."""


class Opening:
    """How this process opens its store, and when it tries again. One attempt at a time."""

    def __init__(
        self,
        settings: Settings,
        seams: Seams,
        on_progress: Callable[[Progress], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self.refused = 0
        """Attempts that the disk refused."""
        self._settings = settings
        self._seams = seams
        self._pause_s = PAUSE_FIRST_S
        self._next_at = 0.0
        self._options = StoreOptions(
            store_host=settings.store_host,
            shard=str(settings.shard),
            store_id=settings.store_id,
            store_path_commit_log=settings.store_path_commit_log,
            format=settings.store_format,
            scrubs=True,
            waits_for_files=False,
            on_progress=on_progress,
            on_failure=on_failure,
        )

    @property
    def next_attempt_s(self) -> int:
        """Seconds until the next attempt, 1 or more."""
        return max(1, math.ceil(self._next_at - time.monotonic()))

    def open(self) -> MessageStore:
        """Blocks. Raises DiskRefuses (try again), StorageError."""
        try:
            return self._open(self._options)
        except DiskRefuses:
            self.refused += 1
            raise

    def look_at_it(self, refusal: DiskRefuses) -> MessageStore:
        """The store on an overlay: nothing is written. Raises the refusal where there is none."""
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

    async def pause(self, ending: asyncio.Event) -> bool:
        """Until the next attempt is due; True when the service ends instead."""
        self._next_at = time.monotonic() + self._pause_s
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ending.wait(), self._pause_s)
        self._pause_s = min(2 * self._pause_s, PAUSE_MAX_S)
        return ending.is_set()

    def _open(self, options: StoreOptions) -> MessageStore:
        root = self._settings.store.absolute()
        store = MessageStore.open(root, self._settings.store_config, self._seams, options)
        if store.once is not None:
            store.once.prepare()  # here, as the event loop would stand still for it
        return store
