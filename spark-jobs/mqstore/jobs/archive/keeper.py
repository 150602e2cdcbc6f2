"""Who records with the store how far its archive is: its writer, or we where there is none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from mqstore.client import Client
from mqstore.jobs.errors import WrongUsage
from mqstore.jobs.shard_place import ShardPlace
from mqstore.storage.errors import StoreLocked
from mqstore.storage.own import format_file, store_lock
from mqstore.storage.paths import StorePaths
from mqstore.storage.retention.archive import Archive
from mqstore.storage.system.threads import production_seams


class Keeper(Protocol):
    """Its methods raise JobError, ClientError, StorageError, OSError."""

    def archived(self) -> int | None:
        """Up to where the log is archived at this place; None where nothing was said of any."""

    def advance(self, offset: int) -> None:
        """All below is archived; what lies behind is kept from now on."""


@dataclass(frozen=True, slots=True)
class WriterKeeper:
    client: Client
    place: str

    def archived(self) -> int | None:
        mark = self.client.archive().archive
        return None if mark is None or mark.place != self.place else mark.offset

    def advance(self, offset: int) -> None:
        self.client.put_archive(offset, self.place)


@dataclass(frozen=True, slots=True)
class LockKeeper:
    """Of a store at rest, whose lock is held."""

    archive: Archive
    place: str
    end: int

    def archived(self) -> int | None:
        mark = self.archive.mark
        return None if mark is None or mark.place != self.place else mark.offset

    def advance(self, offset: int) -> None:
        self.archive.advance(offset, self.place, max_offset=self.end)


@contextmanager
def keeper_of(shard: ShardPlace, place: str, end: int) -> Iterator[Keeper]:
    """``end`` is where the log ends. Holds the lock of a store at rest, so that no writer comes
    meanwhile. Raises WrongUsage where one is there and was not named, and for a store that no
    writer of ours ever had; and as Keeper does."""
    if shard.writer_url is not None:
        with shard.client() as client:
            yield WriterKeeper(client, place)
        return
    seams, paths = production_seams(), StorePaths(Path(shard.where).absolute())
    if format_file.load(seams.files, paths) is None:
        raise WrongUsage(
            f"{shard.where} is a broker's store, whose retention waits for no archive: run a"
            " store-writer over it, or copy the store"
        )
    try:
        lock = store_lock.take(seams.files, paths, create=False)
    except StoreLocked as error:
        raise WrongUsage(
            f"{shard.where} has a writer, which has to know of the archive: name it,"
            f" {shard.where},http://WRITER:8081"
        ) from error
    try:
        yield LockKeeper(Archive(paths, seams, end), place, end)
    finally:
        lock.release()
