"""``mqstore backup verify``: reads backups and compares their checksums."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Annotated, Final

import typer

from mqstore.cli.backup_place import BackupId, Url, open_repository
from mqstore.cli.backup_report import Outcome, Report, access_of, run_reported
from mqstore.cli.exit_codes import EXIT_FINDINGS, EXIT_OK, refuse
from mqstore.cli.output import Column, Output, size
from mqstore.cli.progress import show_progress
from mqstore.cli.session import Ca, ContextName, Form, Token, TokenFile, WriterUrl

_COLUMNS: Final = (
    Column("object", lambda each: each["name"]),
    Column("finding", lambda each: each["why"]),
    Column("backups", lambda each: each["backups"], " ".join),
)


def verify(
    url: Url,
    backup_id: BackupId = None,
    every: Annotated[
        bool, typer.Option("--all", help="Verify all backups; shared objects are read once.")
    ] = False,
    report: Report = False,
    context: ContextName = None,
    writer_url: WriterUrl = None,
    token: Token = None,
    token_file: TokenFile = None,
    ca: Ca = None,
    output: Form = None,
) -> None:
    """Read all objects of a backup, compare sizes and CRC-32C with its manifest, and open a store
    with its small files in memory, as a restore does.

    Prints the damaged objects and the backups that need them. Exit code 0: the backup is whole; 1:
    something is damaged; 2: refused.

    Examples:

    \b
        mqstore backup verify /mnt/backups/shard-0
        mqstore backup verify s3://bucket/shard-0 --all -o json
    """
    if every and backup_id is not None:
        raise typer.BadParameter("give --all or --backup, not both")
    raise run_reported(
        lambda out, outcome: _verify(out, outcome, url, backup_id, every=every),
        output,
        "verify",
        url,
        partial(access_of, writer_url, token, token_file, ca, context) if report else None,
    )


def _verify(out: Output, outcome: Outcome, url: str, backup_id: str | None, *, every: bool) -> int:
    from mqstore.storage.backup import BackupUnknown, flaws_of
    from mqstore.storage.host import production_seams

    repository = open_repository(url)
    unreadable = []
    if every:
        listed = repository.listed()
        if not listed:
            raise BackupUnknown(f"{repository.objects.place} has no backup")
        unreadable = [each for each in listed if each.backup is None]
        backups = [each.backup for each in listed if each.backup is not None]
    else:
        backups = [repository.get(backup_id)]
    if backups:
        outcome.backup, outcome.end_offset = backups[-1].id, backups[-1].end
    with show_progress() as progress:
        found = list(flaws_of(repository, backups, production_seams(), progress))
    outcome.error = ""
    if found or unreadable:
        first = found[0].name if found else unreadable[0].id
        outcome.error = f"{len(found)} objects and {len(unreadable)} manifests are damaged: {first}"
    for each in unreadable:
        refuse(f"backup {each.id}: {each.why}")
    if found or not out.is_table:
        out.items(map(asdict, found), _COLUMNS)
    elif backups:
        read = {part.name: part.size for each in backups for part in each.objects()}
        ids = f"{len(backups)} backups are" if every else f"backup {backups[0].id} is"
        out.line(f"{ids} whole: {len(read)} objects, {size(sum(read.values()))}")
    return EXIT_FINDINGS if found or unreadable else EXIT_OK
