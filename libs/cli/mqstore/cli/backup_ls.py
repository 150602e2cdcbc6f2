"""``mqstore backup ls``: lists the backups of a place."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from mqstore.cli.backup_place import (
    BACKUP_COLUMNS,
    Url,
    backup_item,
    open_repository,
    run_backup_command,
)
from mqstore.cli.exit_codes import EXIT_FINDINGS, EXIT_OK, refuse
from mqstore.cli.output import Output
from mqstore.cli.session import Form
from mqstore.cli.times import duration, parse_duration


def ls(
    url: Url,
    max_age: Annotated[
        str | None,
        typer.Option(help="Exit code 1 if the newest backup is older, as 26h.", metavar="DURATION"),
    ] = None,
    output: Form = None,
) -> None:
    """List the backups of a place, the oldest first.

    Exit code 0: all manifests can be read, or there is none; 1: one cannot, or the newest backup is
    older than --max-age; 2: refused, as where there is no such place.

    Examples:

    \b
        mqstore backup ls /mnt/backups/shard-0
        mqstore backup ls s3://bucket/shard-0 --max-age 26h
    """
    raise run_backup_command(lambda out: _ls(out, url, max_age), output)


def _ls(out: Output, url: str, max_age: str | None) -> int:
    most_ms = None if max_age is None else parse_duration(max_age)
    repository = open_repository(url)
    whole, unreadable = [], []
    for each in repository.listed():
        if each.backup is None:
            unreadable.append(each)
        else:
            whole.append(backup_item(each.backup))
    if not whole and not unreadable:
        refuse(f"{repository.objects.place} has no backup")
    out.items(whole, BACKUP_COLUMNS)
    for each in unreadable:
        refuse(f"backup {each.id}: {each.why}")
    code = EXIT_FINDINGS if unreadable else EXIT_OK
    if most_ms is not None:
        age_ms = time.time_ns() // 1_000_000 - whole[-1]["createdMs"] if whole else None
        if age_ms is None or age_ms > most_ms:
            age = "there is no backup" if age_ms is None else f"it is {duration(age_ms)} old"
            refuse(f"the newest backup may be {max_age} old, and {age}")
            code = EXIT_FINDINGS
    return code
