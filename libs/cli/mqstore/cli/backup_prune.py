"""``mqstore backup prune``: removes old backups, and what only they need."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from mqstore.cli.backup_place import Url, open_repository, run_backup_command
from mqstore.cli.exit_codes import EXIT_OK
from mqstore.cli.output import Column, Output, size
from mqstore.cli.progress import show_progress
from mqstore.cli.session import DryRun, Form, Yes, confirm
from mqstore.cli.times import parse_duration

if TYPE_CHECKING:
    from mqstore.storage.backup import PrunePlan, Rule

_COLUMNS = (
    Column("removed", lambda each: each["removed"], " ".join),
    Column("kept", lambda each: each["kept"], " ".join),
    Column("objects", lambda each: each["objects"]),
    Column("bytes", lambda each: each["bytes"], size),
)


def prune(
    url: Url,
    keep: Annotated[
        int | None, typer.Option(help="Number of newest backups to keep.", min=1)
    ] = None,
    keep_within: Annotated[
        str | None,
        typer.Option(help="Keep backups that are not older, as 30d.", metavar="DURATION"),
    ] = None,
    drop_unreadable: Annotated[
        bool,
        typer.Option("--drop-unreadable", help="Remove backups whose manifest cannot be read."),
    ] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    output: Form = None,
) -> None:
    """Remove the backups that neither --keep nor --keep-within keeps; the newest one always stays.

    Objects that a remaining backup needs stay. Objects of interrupted backups are removed too. Exit
    code 0: done; 2: refused.

    Examples:

    \b
        mqstore backup prune /mnt/backups/shard-0 --keep 14 --dry-run
        mqstore backup prune s3://bucket/shard-0 --keep 3 --keep-within 30d --yes
    """
    if keep is None and keep_within is None:
        raise typer.BadParameter("give --keep, --keep-within or both")
    raise run_backup_command(
        lambda out: _prune(
            out,
            url,
            _rule(keep, keep_within, drop_unreadable=drop_unreadable),
            yes=yes,
            dry_run=dry_run,
        ),
        output,
    )


def _rule(keep: int | None, within: str | None, *, drop_unreadable: bool) -> Rule:
    from mqstore.storage.backup import Rule

    now_ms = time.time_ns() // 1_000_000
    since_ms = None if within is None else now_ms - parse_duration(within)
    return Rule(keep or 1, since_ms, drop_unreadable)


def _prune(out: Output, url: str, rule: Rule, *, yes: bool, dry_run: bool) -> int:
    from mqstore.storage import backup

    repository = open_repository(url)
    found = backup.plan_prune(repository, rule)
    if not dry_run and (found.removed or found.objects):
        confirm(f"Remove {_text(found)} from {repository.objects.place}?", yes=yes)
        with show_progress() as progress:
            found = backup.prune(repository, rule, progress)
    item = {
        "removed": found.removed,
        "kept": found.kept,
        "objects": len(found.objects),
        "bytes": found.bytes,
        "dryRun": dry_run,
    }
    verb = "would remove" if dry_run else "removed"
    out.done(f"{verb} {_text(found)}; {len(found.kept)} backups stay", item, _COLUMNS)
    return EXIT_OK


def _text(plan: PrunePlan) -> str:
    return f"{len(plan.removed)} backups and {len(plan.objects)} objects ({size(plan.bytes)})"
