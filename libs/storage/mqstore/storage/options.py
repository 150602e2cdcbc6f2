"""How a store is opened: what is no setting of RocketMQ's MessageStoreConfig."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

from mqstore.storage.config import StoreConfig
from mqstore.storage.layout import StoreFormat
from mqstore.storage.paths import StorePaths

NEXT_EPOCH: Final = 0
"""The epoch after the newest one that a store knows; as a number that of no epoch that begins."""


Fetch = Callable[[int, int, Callable[[bytes], bool]], tuple[str, bytes] | None]
"""Returns the name of a replica and so many bytes of its log at a physical offset, for which a
predicate holds; None where no replica has them. Raises RepairRefused where one may have them."""


def fetch_nothing(_: int, __: int, ___: Callable[[bytes], bool]) -> None:
    """Return None: there are no replicas."""


class Durability(StrEnum):
    """Durability of a message at its acknowledgement."""

    SYNC = "sync"
    """On disk before the reply (group commit)."""
    ASYNC = "async"
    """In the page cache: survives the process, not the machine."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far recovery is: bytes of log looked at, of how many."""

    stage: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class RecoveredLog:
    """A log that is whole and durable, while its queues may still end before it."""

    paths: StorePaths
    config: StoreConfig
    """As opened: sizes are those of the files."""
    format: StoreFormat
    segments: tuple[tuple[Path, int, int], ...]
    """Path, first physical offset and size of each file."""
    min_offset: int
    max_offset: int
    dispatched: int
    """Physical offset up to which the queues are complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """How a directory is opened."""

    store_host: str = "127.0.0.1:10911"
    """``address:port`` written into every record as STOREHOST; stable and unique per shard."""
    shard: str = "0"
    store_id: str | None = None
    """Refuse the directory unless it is this store's (StoreOfAnother)."""
    store_path_commit_log: str | None = None
    """storePathCommitLog: another directory for the log; several are refused."""
    format: StoreFormat | None = None
    """Format of a store that is made new; an existing one keeps its own."""
    create: bool = True
    """Make the store when the directory is empty or missing; else DirectoryNotUsable."""
    in_place: bool = True
    """False: on a copy-on-write overlay; nothing is written and no lock is needed."""
    all_settings: bool = False
    """True: the given settings are all that an operator set (a settings file), so what they leave
    out has RocketMQ's default. False: what they leave out is the store's own."""
    deletes: bool = True
    """False: retention deletes no segment, whatever the store's settings are."""
    services: bool = True
    """False: nothing runs in the background and nothing may be put (dump, verify, dry runs)."""
    why_no_services: str = "the store was opened to look at it only"
    """Why puts are rejected by a store without services."""
    replaces_index: bool = False
    """True: the index is about to be made anew. Dispatch leaves it alone, and index files that are
    not to be trusted stay where they are."""
    indexes_all: bool = False
    """True: the opening's index catches up whatever it lacks, beyond indexCatchUpSize too."""
    leader: str | None = None
    """Address of the leader whose log this store receives (``MessageStore.receiver``): nothing
    else writes to the log then, and puts are rejected. None for a store that leads."""
    bounds_reads: bool = False
    """True: readers, of other processes too, see nothing beyond ``MessageStore.confirm``."""
    epoch: int | None = None
    """Begin this epoch of the log before anything is put, ``NEXT_EPOCH``: the one after the newest.
    None: go on in the newest one. For a store that leads."""
    deliver_delayed: bool = True
    """False: delayed messages are stored, and none is delivered."""
    scrubs: bool = False
    """True: the log is compared with its block checksums, slowly and again and again."""
    fetch: Fetch = fetch_nothing
    """Fetches records that a repair of the log would lose from a replica."""
    waits_for_files: bool = True
    """False: a put that needs a file that is not made yet raises FilePending."""
    on_progress: Callable[[Progress], None] | None = None
    on_log: Callable[[RecoveredLog], None] | None = None
    """Called once by the opening thread, before it completes the queues. It must not raise."""
    on_failure: Callable[[BaseException], None] | None = None
    """Called once, from any thread, when the store fails (StoreFailed): end the process."""
    boot_id: str | None = None
    """The machine start, a UUID; by default the kernel's."""
    pid: int = field(default_factory=os.getpid)
    """Written into ``abort`` as 5.x does, and into format.json."""

    @property
    def follows(self) -> bool:
        """Whether the store's log comes from a leader."""
        return self.leader is not None
