"""``mqstore backup create``: backs up a store, also beside its running writer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mqstore.cli.backup_place import (
    BACKUP_COLUMNS,
    Url,
    backup_item,
    directory_of,
    open_repository,
    run_backup_command,
)
from mqstore.cli.exit_codes import EXIT_FINDINGS, EXIT_OK, refuse
from mqstore.cli.output import Output, size
from mqstore.cli.progress import show_progress
from mqstore.cli.session import DryRun, Form


def create(
    url: Url,
    store: Annotated[
        Path,
        typer.Option(
            help="The store directory. Variable: MQSTORE_STORE.",
            envvar="MQSTORE_STORE",
            show_envvar=False,
            metavar="DIR",
            readable=False,
        ),
    ],
    rate: Annotated[
        float | None,
        typer.Option(help="Read at most this many MiB of log a second.", min=0.001, metavar="MIB"),
    ] = None,
    dry_run: DryRun = False,
    output: Form = None,
) -> None:
    """Back up a store while its writer runs, or at rest. The store is only read.

    The backup has every message that was acknowledged before the command began, and ends behind one
    of them. Parts of the log that an earlier backup has are not copied again. Exit code 0: done; 1:
    done, and a part of the log did not match its checksums, or was not on disk; 2: refused.

    Examples:

    \b
        mqstore backup create /mnt/backups/shard-0 --store /data/store
        mqstore backup create s3://bucket/shard-0 --store /data/store --rate 50
        mqstore backup create /mnt/backups/shard-0 --store /data/store --dry-run
    """
    rate_of_bytes = None if rate is None else int(rate * (1 << 20))
    raise run_backup_command(
        lambda out: _create(out, url, store.absolute(), rate_of_bytes, dry_run=dry_run), output
    )


def _create(out: Output, url: str, store: Path, rate: int | None, *, dry_run: bool) -> int:
    from mqstore.storage.backup import Creation
    from mqstore.storage.host import production_seams

    _require_store(store, directory_of(url))
    repository = open_repository(url, is_new=True)
    with show_progress() as progress:
        creation = Creation(
            store, repository, production_seams(), bytes_per_s=rate, progress=progress
        )
        found = creation.run(dry_run=dry_run)
    backup = found.backup
    item = {
        **backup_item(backup),
        "dryRun": dry_run,
        "newObjects": found.new_parts,
        "reusedBytes": found.reused_bytes,
        "unsyncedBytes": found.unsynced_bytes,
    }
    done = "would copy" if dry_run else f"backup {backup.id} has copied"
    out.done(
        f"{done} {size(backup.copied_bytes)} in {found.new_parts} objects, with"
        f" {size(found.reused_bytes)} of log from earlier backups; it ends at offset {backup.end}",
        item,
        BACKUP_COLUMNS,
    )
    if backup.damaged_blocks:
        refuse(
            f"{backup.damaged_blocks} blocks of the log do not match their checksums; an earlier"
            " backup may have them whole; see mqstore store verify"
        )
    if found.unsynced_bytes:
        refuse(
            f"the last {found.unsynced_bytes} bytes of the log are not known to be on its disk and"
            " are not included: start store-writer once, and repeat the command"
        )
    is_whole = not backup.damaged_blocks and not found.unsynced_bytes
    return EXIT_OK if is_whole else EXIT_FINDINGS


def _require_store(store: Path, place: Path | None) -> None:
    if not store.is_dir():
        what = "is no directory" if store.exists() else "does not exist"
        raise ValueError(f"{store} {what}; name a store directory with --store")
    if place is not None and place.resolve().is_relative_to(store.resolve()):
        raise ValueError(f"{place} is in the store {store}: name a place outside of it")
