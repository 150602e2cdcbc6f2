"""The epochs of an open store's log: begun by a leader, taken over by a follower.

A store that led and now follows may have bytes that its leader lacks. Until both logs are compared,
readers see it up to where the newest epoch began.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from mqstore.storage._kernel import check_run
from mqstore.storage.dispatch.dispatcher import Dispatcher
from mqstore.storage.errors import StoreNotWritable
from mqstore.storage.log.commit_log import CommitLog
from mqstore.storage.metadata import truncation
from mqstore.storage.metadata.epochs import Epochs
from mqstore.storage.metadata.log_history import LogHistory
from mqstore.storage.metadata.state_page import StatePage
from mqstore.storage.metadata.truncation import Truncation
from mqstore.storage.paths import StorePaths
from mqstore.storage.seams import FileSystem


class LogEpochs:
    """Keeps ``epochs.json`` and the state page in step with the log. Thread-safe."""

    def __init__(
        self,
        epochs: Epochs,
        log: CommitLog,
        dispatcher: Dispatcher,
        state: StatePage,
        store_id: str,
        files: FileSystem,
        paths: StorePaths,
        require_writable: Callable[[], None],
    ) -> None:
        """``require_writable`` raises where the store takes no changes from clients."""
        self._epochs = epochs
        self._dispatcher = dispatcher
        self._files = files
        self._paths = paths
        self._log = log
        self._state = state
        self._store_id = store_id
        self._require_writable = require_writable
        self._opened_end = log.max_offset
        state.set_log_epoch(epochs.newest)

    @property
    def newest(self) -> int:
        """The number of the newest epoch; 0 before the first one was begun."""
        return self._epochs.newest

    @property
    def is_compared(self) -> bool:
        """See ``Epochs``."""
        return self._epochs.is_compared

    @property
    def led(self) -> bool:
        """See ``Epochs``."""
        return self._epochs.led

    @property
    def history(self) -> LogHistory:
        """The epochs and bounds of the log."""
        epochs, log = self._epochs, self._log
        return LogHistory(epochs.log_id, epochs.entries, log.min_offset, log.max_offset)

    def begin(self, epoch: int) -> None:
        """Begin an epoch at the log's end, before anything is put; durable at return.

        Raises EpochNotNewer, StoreNotWritable, OSError.
        """
        self._require_writable()
        end = self._log.max_offset
        if end != self._opened_end:
            raise StoreNotWritable(
                "late", "an epoch begins before anything is put; open the store with the epoch"
            )
        self._epochs.begin(epoch, end, self._log.min_offset, self._store_id)
        self._state.set_log_epoch(epoch)

    def adopt(self, leader: LogHistory) -> None:
        """Take over the epochs of the leader that this store follows; durable at return.

        The log must have no byte that the leader's lacks. Raises OSError.
        """
        if self._epochs.led:
            self._reveal()
        self._epochs.adopt(leader.log_id, leader.epochs)
        self._state.set_log_epoch(self._epochs.newest)

    def hide_uncompared(self) -> None:
        """Let readers see nothing that a later leader may lack, before the store is served."""
        if not self._epochs.led:
            return
        bound = max(self._log.min_offset, min(self._log.max_offset, self._epochs.entries[-1].start))
        with self._state.changing():
            self._dispatcher.show_up_to(bound)
            self._state.set_max(bound)

    def _reveal(self) -> None:
        with self._state.changing():
            self._state.set_max(self._log.max_offset)
            self._dispatcher.show_up_to(sys.maxsize)

    def cut_at_opening(self, offset: int, leader: str, epoch: int) -> Truncation:
        """Note that the log has bytes from ``offset`` on that the leader, of ``epoch``, lacks: the
        next opening cuts them. Durable at return; close the store then. Raises OSError."""
        found = Truncation(
            offset=offset,
            end=self._log.max_offset,
            records=self._count_records(offset),
            leader=leader,
            epoch=epoch,
        )
        truncation.save(self._files, self._paths, found)
        return found

    def _count_records(self, offset: int) -> int:
        """Number of readable records from ``offset`` on, up to damage in each segment."""
        count = 0
        for file in self._log.files.files:
            start, stop = max(0, offset - file.base_offset), file.wrote_position
            if start < stop:
                view = file.view
                found = check_run(
                    view, start, stop, file.base_offset, verify_body=False, max_records=stop
                )
                count += found[2]
        return count
