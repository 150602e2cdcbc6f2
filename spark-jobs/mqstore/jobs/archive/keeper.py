"""Records the archive's mark with the store: through its writer, or directly at rest."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from mqstore.client import Client
from mqstore.jobs.errors import WrongUsage
from mqstore.jobs.shard_place import ShardPlace
from mqstore.storage.directory import StorePaths, load_format, take_lock
from mqstore.storage.errors import StoreLocked
from mqstore.storage.host import production_seams
from mqstore.storage.retention import Archive


class Keeper(Protocol):
    """Reads and advances the archive's mark of a store.

    Its methods raise JobError, ClientError, StorageError, OSError.
    """

    def archived(self) -> int | None:
        """The physical offset below which the log is archived at this place; None without a mark
        for it."""

    def advance(self, offset: int) -> None:
        """Record that the log below ``offset`` is archived; retention keeps the log above it."""


@dataclass(frozen=True, slots=True)
class WriterKeeper:
    """The keeper for a store that has a writer."""

    client: Client
    place: str

    def archived(self) -> int | None:
        """See Keeper. Raises ClientError."""
        mark = self.client.archive().archive
        return None if mark is None or mark.place != self.place else mark.offset

    def advance(self, offset: int) -> None:
        """See Keeper. Raises ClientError."""
        self.client.put_archive(offset, self.place)


@dataclass(frozen=True, slots=True)
class LockKeeper:
    """The keeper for a store at rest, whose lock the job holds."""

    archive: Archive
    place: str
    end: int

    def archived(self) -> int | None:
        """See Keeper."""
        mark = self.archive.mark
        return None if mark is None or mark.place != self.place else mark.offset

    def advance(self, offset: int) -> None:
        """See Keeper. Raises StorageError, OSError."""
        self.archive.advance(offset, self.place, max_offset=self.end)


@contextmanager
def keeper_of(shard: ShardPlace, place: str, end: int) -> Iterator[Keeper]:
    """The keeper of a shard, for the context; ``end`` is the physical end offset of the log.

    Holds the lock of a store at rest, so that no writer starts meanwhile. Raises WrongUsage if a
    writer runs that the shard does not name, and for a broker's store; and the errors of Keeper.
    """
    if shard.writer_url is not None:
        with shard.client() as client:
            yield WriterKeeper(client, place)
        return
    seams, paths = production_seams(), StorePaths(Path(shard.where).absolute())
    if load_format(seams.files, paths) is None:
        raise WrongUsage(
            f"{shard.where} is a broker's store, whose retention waits for no archive: run a"
            " store-writer over it, or copy the store"
        )
    try:
        lock = take_lock(seams.files, paths, create=False)
    except StoreLocked as error:
        raise WrongUsage(
            f"{shard.where} has a writer, which has to know of the archive: name it,"
            f" {shard.where},http://WRITER:8081"
        ) from error
    try:
        yield LockKeeper(Archive(paths, seams, end), place, end)
    finally:
        lock.release()
