"""Options, places and output that the commands of backups share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from mqstore.cli.exit_codes import EXIT_FINDINGS, refuse
from mqstore.cli.extras import require
from mqstore.cli.output import Column, Format, Output, size
from mqstore.cli.session import choose_form
from mqstore.cli.times import show_time

if TYPE_CHECKING:
    from mqstore.storage.backup import Repository

Url = Annotated[
    str,
    typer.Argument(
        help="Directory of the backups, or a URL of fsspec, as s3://bucket/shard-0 (extra backup).",
        metavar="URL",
    ),
]
BackupId = Annotated[
    str | None,
    typer.Option("--backup", help="Id of the backup. [default: the newest]", metavar="ID"),
]
_FILE: Final = "file://"
_FIRST: Final = "the first `mqstore backup create` makes it"

BACKUP_COLUMNS: Final = (
    Column("backup", lambda each: each["id"]),
    Column("created", lambda each: each["createdMs"], show_time),
    Column("begin", lambda each: each["begin"], right=True),
    Column("end", lambda each: each["end"], right=True),
    Column("last-message", lambda each: each["lastMs"], show_time),
    Column("log", lambda each: each["logBytes"], size, right=True),
    Column("copied", lambda each: each["copiedBytes"], size, right=True),
    Column("damaged-blocks", lambda each: each["damagedBlocks"], right=True),
)
_SHOWN: Final = frozenset(
    {"id", "created_ms", "ended_ms", "store_id", "shard", "begin", "end", "last_ms"}
    | {"copied_bytes", "damaged_blocks"}
)


def backup_item(backup: Any) -> dict[str, Any]:
    """A backup as a document: its manifest without the objects."""
    found: dict[str, Any] = backup.model_dump(mode="json", by_alias=True, include=set(_SHOWN))
    return {**found, "logBytes": backup.log_bytes}


def run_backup_command(command: Callable[[Output], int], output: Format | None) -> typer.Exit:
    """Run a command of backups; returns the Exit that the caller raises.

    Its code is that of ``command``; 2 for a refusal.
    """
    require("store")
    from mqstore.cli import store_command  # slow, and not needed for help

    def run() -> int:
        return command(Output(choose_form(output)))

    return typer.Exit(store_command.run_command(run, refuse, unread=EXIT_FINDINGS))


def open_repository(url: str, *, is_new: bool = False) -> Repository:
    """The repository in a directory, or at a URL; with ``is_new`` it need not be there.

    Raises ValueError where there is none, OSError.
    """
    from mqstore.storage.backup import DirectoryObjects, Repository
    from mqstore.storage.host import production_seams

    seams = production_seams()
    path = directory_of(url)
    if path is not None:
        _require_directory(path, is_new=is_new)
        return Repository(DirectoryObjects(seams.files, path), seams)
    require("backup")
    from mqstore.cli.url_objects import UrlObjects

    objects = UrlObjects(url)
    if not is_new and not objects.has_any:
        raise ValueError(f"there is nothing at {objects.place}: check the URL; {_FIRST}")
    return Repository(objects, seams)


def directory_of(url: str) -> Path | None:
    """The directory that a place names; None for a URL of another file system."""
    path = url.removeprefix(_FILE)
    return None if "://" in path else Path(path).absolute()


def _require_directory(path: Path, *, is_new: bool) -> None:
    found = next((each for each in (path, *path.parents) if each.exists()), path)
    if found.exists() and not found.is_dir():
        raise ValueError(f"{found} is no directory: name a directory of backups")
    if found != path and not is_new:
        raise ValueError(f"there is no directory {path}: check the path; {_FIRST}")
