"""``kubectl mqstore backup``: a shard's store as a directory here, a store at rest like any other,
or a snapshot of its volume.

For a directory writes are paused and the log is on disk before the first byte is copied, and a pin
keeps retention from it. What still goes on meanwhile (delayed messages are delivered) makes the
copy one that a kill left: the log is copied last, so an opening finds nothing that the log does not
have.
"""

from __future__ import annotations

import contextlib
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Annotated, Final

import typer

from mqstore.cli.ending import EXIT_FINE
from mqstore.cli.kube import snapshots
from mqstore.cli.kube.commands import OneShard, ended, shard_of
from mqstore.cli.kube.kubectl import KubeError
from mqstore.cli.kube.release import WRITER, Release, Shard
from mqstore.cli.progress import shown_progress
from mqstore.client import ClientError, ProblemError, Store

_PIN: Final = "kubectl-backup"
_PIN_S: Final = 6 * 3600
_LAST: Final = "commitlog"
OF_THE_RUNNING_SHARD: Final = ("mqstore/write-pause.json", "mqstore/pins.json")
"""Files of a store directory that do not belong into a copy of it."""
TAR: Final = (
    *("sh", "-c", 'tar "$@" || [ $? = 1 ]', "tar"),
    *("--warning=no-file-changed", "--warning=no-file-removed", "--create", "--sparse"),
)
"""It ends with 1 where files changed or went while it read them, as those of a running store do."""


def add(app: typer.Typer) -> None:
    app.command("backup")(backup)


def backup(
    context: typer.Context,
    shard: OneShard,
    directory: Annotated[
        Path | None,
        typer.Argument(help="Made, or empty: the store directory of the copy.", metavar="DIR"),
    ] = None,
    snapshot: Annotated[
        str | None,
        typer.Option(
            "--snapshot",
            help="Instead of a copy: a snapshot of the volume, by this VolumeSnapshotClass.",
            metavar="CLASS",
        ),
    ] = None,
) -> None:
    """Copy a shard's store here: it takes no messages meanwhile, and reads go on. Or have the
    storage take a snapshot of its volume: nothing waits for that.

    Exit code 0: done; 2: refused; 3: the shard does not answer.
    """
    raise ended(context, lambda release: _backup(release, shard, directory, snapshot))


def _backup(release: Release, number: int, directory: Path | None, snapshot: str | None) -> int:
    if directory is not None and snapshot is None:
        return _to_directory(release, number, directory)
    if directory is None and snapshot is not None:
        return _to_snapshot(release, number, snapshot)
    raise KubeError("name a directory, or a VolumeSnapshotClass with --snapshot")


def _to_snapshot(release: Release, number: int, class_name: str) -> int:
    shard = shard_of(release, number)
    name = snapshots.take(release, shard, class_name)
    print(f"{shard.name} is in {name}; put it back with:")
    print(f"  kubectl mqstore restore {number} --snapshot {name} --replace")
    return EXIT_FINE


def _to_directory(release: Release, number: int, directory: Path) -> int:
    directory.mkdir(parents=True, exist_ok=True)
    if any(directory.iterdir()):
        raise KubeError(f"{directory} is not empty; name a directory that is, or that is not there")
    shard = shard_of(release, number)
    with _quiet(release, shard) as store:
        _copy(release, shard, store, directory)
    print(f"{shard.name} is in {directory}; check it with: mqstore store verify {directory}")
    return EXIT_FINE


@contextmanager
def _quiet(release: Release, shard: Shard) -> Iterator[Store]:
    """Writes paused, all on disk and kept there; afterwards as it was."""
    with release.client(shard) as client:
        was_paused = client.writes().paused
        if not was_paused:
            client.put_writes(paused=True, reason="a backup is being made")
    try:
        with release.client(shard) as client:
            client.flush()
            store = client.store()
            client.put_pin(_PIN, store.min_offset, lease_s=_PIN_S, why="kubectl mqstore backup")
        yield store
    finally:
        _end(release, shard, resume=not was_paused)


def _end(release: Release, shard: Shard, *, resume: bool) -> None:
    """By a connection of its own: the first one may not have lived as long as the copying."""
    try:
        with release.client(shard) as client:
            if resume:
                client.put_writes(paused=False)
            with contextlib.suppress(ProblemError):  # it may not have come to a pin
                client.remove_pin(_PIN)
    except (ClientError, KubeError) as error:
        still = f"; let writes go on with: kubectl mqstore resume --shard {shard.number}"
        raise KubeError(
            f"the backup's end was not told to {shard.name} ({error}){still}"
        ) from error


def _copy(release: Release, shard: Shard, store: Store, directory: Path) -> None:
    if not store.commit_log.startswith(f"{store.root}/"):
        raise KubeError(f"{store.commit_log} is no part of {store.root}: copy its volume instead")
    inside = ("exec", shard.name, "-c", WRITER, "--")
    names = release.kubectl.run(*inside, "ls", "-A", store.root).split()
    ordered = sorted(names, key=lambda name: (name == _LAST, name))
    du = ("sh", "-c", 'du --summarize --bytes "$1" 2>/dev/null || true', "du", store.root)
    total = int(release.kubectl.run(*inside, *du).split()[0])  # files go while it counts, too
    tar = (*TAR, "--file=-", f"--directory={store.root}", "--", *ordered)
    with release.kubectl.streamed_out(*inside, *tar) as archive, shown_progress() as show:
        done = 0
        for size in _unpacked(archive, directory):
            done += size
            show("copying", done, total)
    for name in OF_THE_RUNNING_SHARD:
        (directory / name).unlink(missing_ok=True)


def _unpacked(archive: IO[bytes], directory: Path) -> Iterator[int]:
    """Bytes of each file, once it is there."""
    try:
        with tarfile.open(fileobj=archive, mode="r|") as members:
            for member in members:
                members.extract(member, directory, filter="data")
                yield member.size
    except tarfile.TarError as error:
        raise KubeError(f"the copy broke off ({error}); {directory} is of no use") from error
