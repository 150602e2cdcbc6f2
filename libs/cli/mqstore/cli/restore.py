"""``mqstore restore``: restores a store from a backup, whole or up to an offset or a time."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer

from mqstore.cli.backup_place import BackupId, Url, open_repository, run_backup_command
from mqstore.cli.exit_codes import EXIT_OK
from mqstore.cli.output import Column, Output, size
from mqstore.cli.progress import show_progress
from mqstore.cli.session import DryRun, Form, Yes, confirm
from mqstore.cli.times import TIME_HELP, parse_when, show_time

_COLUMNS: Final = (
    Column("target", lambda each: each["target"]),
    Column("backup", lambda each: each["backup"]),
    Column("begin", lambda each: each["begin"], right=True),
    Column("end", lambda each: each.get("end"), right=True),
    Column("last-message", lambda each: each.get("lastMs"), show_time),
    Column("cut", lambda each: each.get("cutBytes"), size, right=True),
    Column("lowered-offsets", lambda each: each.get("loweredOffsets"), right=True),
)


class _Consent(NamedTuple):
    """The options that permit what cannot be undone, or is unusual."""

    replace: bool
    large_queues: bool
    yes: bool


def restore(
    url: Url,
    target: Annotated[
        Path, typer.Argument(help="The store directory to make.", metavar="DIR", readable=False)
    ],
    backup_id: BackupId = None,
    to_offset: Annotated[
        int | None, typer.Option(help="End the log at or before this physical offset.", min=1)
    ] = None,
    to_time: Annotated[
        str | None,
        typer.Option(
            help=f"End the log before the first message stored after this time: {TIME_HELP}.",
            metavar="TIME",
        ),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace a directory that is not empty.")
    ] = False,
    large_queues: Annotated[
        bool,
        typer.Option(
            "--large-queues",
            help="Write begins of queues of more than 4 GiB, and of more than the log.",
        ),
    ] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    output: Form = None,
) -> None:
    """Restore a store into a new directory; queues and index are built from its log.

    The directory gets its name when the store is complete. Without --backup, the first backup that
    reaches --to-offset or --to-time is used, else the newest. Exit code 0: done; 2: refused.

    Examples:

    \b
        mqstore restore /mnt/backups/shard-0 /data/store
        mqstore restore s3://bucket/shard-0 /data/store --to-time '2h ago' --replace --yes
        mqstore restore /mnt/backups/shard-0 /data/store --to-offset 1073741824 --dry-run
    """
    if to_offset is not None and to_time is not None:
        raise typer.BadParameter("give --to-offset or --to-time, not both")

    def run(out: Output) -> int:
        """Restore with the options of the command."""
        ms = None if to_time is None else parse_when(to_time)
        cut = {"offset": to_offset, "ms": ms}
        path = target.absolute()
        consent = _Consent(replace=replace, large_queues=large_queues, yes=yes)
        return _restore(out, url, path, backup_id, cut, consent, dry_run=dry_run)

    raise run_backup_command(run, output)


def _restore(
    out: Output,
    url: str,
    target: Path,
    backup_id: str | None,
    place: dict[str, int | None],
    consent: _Consent,
    *,
    dry_run: bool,
) -> int:
    from mqstore.storage.backup import Cut, Restoration, choose
    from mqstore.storage.host import production_seams

    repository = open_repository(url)
    cut = Cut.at(**place)
    backup = choose(repository, cut) if backup_id is None else repository.get(backup_id)
    restoration = Restoration(
        *(repository, backup, target, production_seams()),
        cut=cut,
        large_queues=consent.large_queues,
    )
    is_full = restoration.check(replace=consent.replace)
    if dry_run:
        item: dict[str, Any] = {"target": str(target), "backup": backup.id, "begin": backup.begin}
        item |= {"readBytes": restoration.log_bytes, "replaces": is_full, "dryRun": True}
        text = f"would restore {size(restoration.log_bytes)} of log from backup {backup.id}"
        out.done(f"{text} to {target}{', which holds files' if is_full else ''}", item, _COLUMNS)
        return EXIT_OK
    if is_full:
        confirm(f"Replace {target} and lose what it holds?", yes=consent.yes)
    with show_progress() as progress:
        done = restoration.run(replace=consent.replace, progress=progress)
    item = {
        "target": str(done.target),
        "backup": done.backup,
        "begin": done.begin,
        "end": done.end,
        "lastMs": done.last_ms,
        "cutBytes": done.cut_bytes,
        "loweredOffsets": done.lowered_offsets,
        "dryRun": False,
    }
    out.done(
        f"{target} has the log of backup {done.backup} from {done.begin} to {done.end}; the last"
        f" message is of {show_time(done.last_ms)}",
        item,
        _COLUMNS,
    )
    return EXIT_OK
