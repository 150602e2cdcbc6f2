"""``mqstore backup verify``: reads backups and compares their checksums."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import typer

from mqstore.cli.backup_place import BackupId, Url, open_repository
from mqstore.cli.backup_report import Outcome, Report, access_of, run_reported
from mqstore.cli.exit_codes import EXIT_FINDINGS, EXIT_OK, refuse
from mqstore.cli.output import Column, Output, size
from mqstore.cli.progress import show_progress
from mqstore.cli.session import Ca, ContextName, Form, Token, TokenFile, WriterUrl

if TYPE_CHECKING:
    from mqstore.storage.backup import Backup, Listed

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
    from mqstore.storage.backup import BackupUnknown, Listed, flaws_of
    from mqstore.storage.host import production_seams

    repository = open_repository(url)
    if every:
        seen = _Seen(repository.listed())
    else:
        backup = repository.get(backup_id)
        seen = _Seen([Listed(backup.id, backup)])
    with show_progress() as progress:
        found = list(flaws_of(repository, seen.readable(), production_seams(), progress))
    if not seen.ids and not seen.unreadable:
        raise BackupUnknown(f"{repository.objects.place} has no backup")
    outcome.error = ""
    if seen.ids:
        outcome.backup, outcome.end_offset = seen.ids[-1], seen.end
    if found or seen.unreadable:
        first = found[0].name if found else seen.unreadable[0].id
        outcome.error = (
            f"{len(found)} objects and {len(seen.unreadable)} manifests are damaged: {first}"
        )
    for each in seen.unreadable:
        refuse(f"backup {each.id}: {each.why}")
    if found or not out.is_table:
        out.items(map(asdict, found), _COLUMNS)
    elif seen.ids:
        ids = f"{len(seen.ids)} backups are" if every else f"backup {seen.ids[0]} is"
        out.line(f"{ids} whole: {len(seen.sizes)} objects, {size(sum(seen.sizes.values()))}")
    return EXIT_FINDINGS if found or seen.unreadable else EXIT_OK


class _Seen:
    """Facts of the backups for the output; their manifests are read one by one, and not kept."""

    def __init__(self, listed: Iterable[Listed]) -> None:
        self._listed = listed
        self.unreadable: list[Listed] = []
        self.ids: list[str] = []
        self.end = 0
        """The end of the newest backup."""
        self.sizes: dict[str, int] = {}
        """Objects by name."""

    def readable(self) -> Iterator[Backup]:
        """Yield the backups whose manifests can be read."""
        for each in self._listed:
            if each.backup is None:
                self.unreadable.append(each)
                continue
            self.ids.append(each.id)
            self.end = each.backup.end
            self.sizes |= {part.name: part.size for part in each.backup.objects()}
            yield each.backup
