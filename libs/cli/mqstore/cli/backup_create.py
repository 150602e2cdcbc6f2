"""``mqstore backup create``: backs up a store, also beside its running writer."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mqstore.cli.access import Access
from mqstore.cli.backup_place import (
    BACKUP_COLUMNS,
    Url,
    backup_item,
    directory_of,
    open_repository,
)
from mqstore.cli.backup_report import Outcome, Report, access_of, run_reported
from mqstore.cli.exit_codes import EXIT_FINDINGS, EXIT_OK, refuse
from mqstore.cli.output import Output, size
from mqstore.cli.progress import show_progress
from mqstore.cli.session import Ca, ContextName, DryRun, Form, Token, TokenFile, WriterUrl
from mqstore.wire.environment import WRITER_URL_VARIABLE

if TYPE_CHECKING:
    from mqstore.storage.backup import Created


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
    report: Report = False,
    context: ContextName = None,
    writer_url: WriterUrl = None,
    token: Token = None,
    token_file: TokenFile = None,
    ca: Ca = None,
    output: Form = None,
) -> None:
    """Back up a store while its writer runs, or at rest. The store is only read.

    The backup has every message that was acknowledged before the command began, and ends behind one
    of them or a later one: it waits for the writer's sync, and requests it where the address of the
    writer is given. Parts of the log that an earlier backup has are not copied again.

    Exit code 0: done; 1: done, and a part of the log did not match its checksums, or a writer that
    has ended left it unsynced; 2: refused. A report that fails is printed, and does not change the
    exit code.

    Examples:

    \b
        mqstore backup create /mnt/backups/shard-0 --store /data/store
        mqstore backup create s3://bucket/shard-0 --store /data/store --rate 50
        mqstore backup create /mnt/backups/shard-0 --store /data/store --dry-run
        mqstore backup create /mnt/backups/shard-0 --store /data/store --report
    """
    access = partial(access_of, writer_url, token, token_file, ca, context)
    is_named = report or writer_url is not None or WRITER_URL_VARIABLE in os.environ
    options: dict[str, Any] = {
        "bytes_per_s": None if rate is None else int(rate * (1 << 20)),
        "request_sync": partial(_request_sync, access if is_named and not dry_run else None),
    }
    raise run_reported(
        lambda out, outcome: _create(out, outcome, url, store.absolute(), options, dry_run=dry_run),
        output,
        "create",
        url,
        access if report and not dry_run else None,
    )


def _create(
    out: Output,
    outcome: Outcome,
    url: str,
    store: Path,
    options: dict[str, Any],
    *,
    dry_run: bool,
) -> int:
    from mqstore.storage.backup import Creation
    from mqstore.storage.host import production_seams

    _require_store(store, directory_of(url))
    repository = open_repository(url, is_new=True)
    with show_progress() as progress:
        creation = Creation(store, repository, production_seams(), progress=progress, **options)
        created = creation.run(dry_run=dry_run)
    backup, found = created.backup, list(_flaws(created))
    outcome.backup, outcome.end_offset = backup.id, backup.end
    outcome.copied_bytes = backup.copied_bytes
    outcome.error = "; ".join(found)
    item = {
        **backup_item(backup),
        "dryRun": dry_run,
        "newObjects": created.new_parts,
        "reusedBytes": created.reused_bytes,
        "unsyncedBytes": created.unsynced_bytes,
    }
    done = "would copy" if dry_run else f"backup {backup.id} has copied"
    out.done(
        f"{done} {size(backup.copied_bytes)} in {created.new_parts} objects, with"
        f" {size(created.reused_bytes)} of log from earlier backups; it ends at offset"
        f" {backup.end}",
        item,
        BACKUP_COLUMNS,
    )
    for each in found:
        refuse(each)
    return EXIT_FINDINGS if found else EXIT_OK


def _request_sync(access: Callable[[], Access] | None) -> None:
    """Let the store-writer of a known address sync its log; without one it does so by itself,
    after its ``flushIntervalCommitLog``."""
    if access is None:
        return
    from mqstore.client import ClientError

    with suppress(ClientError, ValueError, OSError), access().client() as client:
        client.flush()


def _flaws(created: Created) -> Iterator[str]:
    """Why a backup does not have the whole log."""
    if created.backup.damaged_blocks:
        yield (
            f"{created.backup.damaged_blocks} blocks of the log do not match their checksums; an"
            " earlier backup may have them whole; see mqstore store verify"
        )
    if created.unsynced_bytes:
        yield (
            f"the last {created.unsynced_bytes} bytes of the log, which its writer left when it"
            " ended, are not known to be on its disk and are not included: start store-writer once,"
            " and repeat the command"
        )


def _require_store(store: Path, place: Path | None) -> None:
    if not store.is_dir():
        what = "is no directory" if store.exists() else "does not exist"
        raise ValueError(f"{store} {what}; name a store directory with --store")
    if place is not None and place.resolve().is_relative_to(store.resolve()):
        raise ValueError(f"{place} is in the store {store}: name a place outside of it")
