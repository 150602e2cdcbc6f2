"""``kubectl mqstore backup``: copies the store of a shard to a local directory, or takes a snapshot
of its volume.

Before it copies the first byte to a directory, the command pauses writes, syncs the log and sets a
pin, which keeps retention from deleting segments. The service still delivers delayed messages while
the files are copied, so the copy is like a store after a kill. The log is copied last: no file of
the copy refers to a record that the log of the copy does not have.
"""

from __future__ import annotations

import contextlib
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Annotated, Final

import typer

from mqstore.cli.exit_codes import EXIT_OK
from mqstore.cli.kube import snapshots
from mqstore.cli.kube.commands import OneShard, exit_of, shard_of
from mqstore.cli.kube.kubectl import KubeError
from mqstore.cli.kube.release import WRITER, Release, Shard
from mqstore.cli.output import size
from mqstore.cli.progress import show_progress
from mqstore.cli.session import DryRun
from mqstore.client import ClientError, ProblemError, Store

_PIN: Final = "kubectl-backup"
_PIN_S: Final = 6 * 3600
_LAST: Final = "commitlog"
OF_THE_RUNNING_SHARD: Final = ("mqstore/write-pause.json", "mqstore/pins.json")
"""Files of a store directory that describe the running shard; a copy does not get them."""
TAR: Final = (
    *("sh", "-c", 'tar "$@" || [ $? = 1 ]', "tar"),
    *("--warning=no-file-changed", "--warning=no-file-removed", "--create", "--sparse"),
)
"""tar may exit with 1: files of a running store change or vanish while tar reads them."""


def add(app: typer.Typer) -> None:
    """Register the command."""
    app.command("backup")(backup)


def backup(
    context: typer.Context,
    shard: OneShard,
    directory: Annotated[
        Path | None,
        typer.Argument(help="New or empty directory for the copy.", metavar="DIR"),
    ] = None,
    snapshot: Annotated[
        str | None,
        typer.Option(
            "--snapshot",
            help="Take a snapshot of the volume with this VolumeSnapshotClass instead of a copy.",
            metavar="CLASS",
        ),
    ] = None,
    dry_run: DryRun = False,
) -> None:
    """Copy the store of a shard to a local directory, or take a snapshot of its volume.

    During a copy the shard rejects messages and serves reads. A snapshot interrupts nothing.

    Exit code 0: done; 2: refused; 3: the shard does not answer.

    Examples:

    \b
        kubectl mqstore backup 0 /backup/shard-0 --dry-run
        kubectl mqstore backup 0 /backup/shard-0
        kubectl mqstore backup 0 --snapshot csi-snapshots
    """
    raise exit_of(
        context, lambda release: _backup(release, shard, directory, snapshot, dry_run=dry_run)
    )


def _backup(
    release: Release, number: int, directory: Path | None, snapshot: str | None, *, dry_run: bool
) -> int:
    if directory is not None and snapshot is None:
        return _to_directory(release, number, directory, dry_run=dry_run)
    if directory is None and snapshot is not None:
        return _to_snapshot(release, number, snapshot, dry_run=dry_run)
    raise KubeError("name a directory, or a VolumeSnapshotClass with --snapshot")


def _to_snapshot(release: Release, number: int, class_name: str, *, dry_run: bool) -> int:
    shard = shard_of(release, number)
    if dry_run:
        print(f"would take a snapshot of the volume of {shard.name} with the class {class_name}")
        return EXIT_OK
    name, end = snapshots.take(release, shard, class_name)
    print(f"{shard.name} is in {name}, its log up to offset {end} at least; put it back with:")
    print(f"  kubectl mqstore restore {number} --snapshot {name} --replace")
    return EXIT_OK


def _to_directory(release: Release, number: int, directory: Path, *, dry_run: bool) -> int:
    if directory.exists() and any(directory.iterdir()):
        raise KubeError(f"{directory} is not empty; name a directory that is, or that is not there")
    shard = shard_of(release, number)
    if dry_run:
        with release.client(shard) as client:
            store = client.store()
        log = size(store.max_offset - store.min_offset)
        print(f"would pause the writes of {shard.name}, and copy its log of {log} to {directory}")
        return EXIT_OK
    directory.mkdir(parents=True, exist_ok=True)
    with _quiet(release, shard) as store:
        _copy(release, shard, store, directory)
    print(f"{shard.name} is in {directory}; check it with: mqstore store verify {directory}")
    return EXIT_OK


@contextmanager
def _quiet(release: Release, shard: Shard) -> Iterator[Store]:
    """Pause writes, sync the log and pin it for the context; then restore the state before."""
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
    """Remove the pin and resume writes, on a new connection: the first one may have timed out."""
    try:
        with release.client(shard) as client:
            if resume:
                client.put_writes(paused=False)
            with contextlib.suppress(ProblemError):  # the backup may have failed before its pin
                client.remove_pin(_PIN)
    except (ClientError, KubeError) as error:
        still = f"; let writes go on with: kubectl mqstore resume --shard {shard.number}"
        raise KubeError(
            f"{shard.name} did not learn that the backup has ended ({error}){still}"
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
    with release.kubectl.streamed_out(*inside, *tar) as archive, show_progress() as show:
        done = 0
        for count in _unpacked(archive, directory):
            done += count
            show("copying", done, total)
    for name in OF_THE_RUNNING_SHARD:
        (directory / name).unlink(missing_ok=True)


def _unpacked(archive: IO[bytes], directory: Path) -> Iterator[int]:
    """Unpack an archive; yields the bytes of each file once it is written."""
    try:
        with tarfile.open(fileobj=archive, mode="r|") as members:
            for member in members:
                members.extract(member, directory, filter="data")
                yield member.size
    except tarfile.TarError as error:
        raise KubeError(f"the copy broke off ({error}); {directory} is of no use") from error
