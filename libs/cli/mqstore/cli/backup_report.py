"""Reports the result of a command of backups to store-writer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from mqstore.cli.access import USER_INFO, Access, Given, find
from mqstore.cli.backup_place import directory_of, run_backup_command
from mqstore.cli.exit_codes import refuse
from mqstore.cli.output import Format, Output

if TYPE_CHECKING:
    from mqstore.client import Client

Report = Annotated[
    bool,
    typer.Option(
        "--report",
        help="Report the result to the store-writer of the store, which shows it. Needs a token of"
        " the role system.",
    ),
]
Action = Literal["create", "verify"]
_TIMEOUT_S: Final = 10.0
_TEXT_MAX: Final = 1_000
"""Characters of a place and of an error, which the service accepts."""


@dataclass
class Outcome:
    """The known part of the result of a command."""

    backup: str | None = None
    end_offset: int | None = None
    copied_bytes: int = 0
    error: str = "the command was interrupted"
    """Why the backup is not whole; empty once it is known to be."""


def run_reported(
    command: Callable[[Output, Outcome], int],
    output: Format | None,
    action: Action,
    url: str,
    access: Callable[[], Access] | None,
) -> typer.Exit:
    """Run a command of backups; report its result with ``access``, None: to no service.

    Returns the Exit that the caller raises; a report that fails does not change its code.
    """

    def run(out: Output) -> int:
        if access is None:
            return command(out, Outcome())
        with access().client() as client, _reported(client, action, url) as outcome:
            return command(out, outcome)

    return run_backup_command(run, output)


def access_of(
    writer_url: str | None,
    token: str | None,
    token_file: str | None,
    ca: str | None,
    context: str | None,
) -> Access:
    """The access of the options of ``--report``. Raises ValueError, OSError."""
    given = Given(writer_url=writer_url, token=token, token_file=token_file, ca=ca)
    return Access(find(given, context), timeout_s=_TIMEOUT_S)


@contextmanager
def _reported(client: Client, action: Action, url: str) -> Iterator[Outcome]:
    outcome, began_ms = Outcome(), _now_ms()
    try:
        yield outcome
    except BrokenPipeError:  # the reader of the output has left; the outcome stands
        raise
    except Exception as error:
        outcome.error = str(error) or type(error).__name__
        raise
    finally:
        _send(client, action, url, began_ms, outcome)


def _send(client: Client, action: Action, url: str, began_ms: int, outcome: Outcome) -> None:
    from mqstore.client import ClientError
    from mqstore.wire.backup_reports import BackupResult

    place = directory_of(url)
    result = BackupResult(
        action=action,
        place=USER_INFO.sub("", url if place is None else str(place))[:_TEXT_MAX],
        began_ms=began_ms,
        ended_ms=_now_ms(),
        is_whole=not outcome.error,
        backup=outcome.backup,
        end_offset=outcome.end_offset,
        copied_bytes=outcome.copied_bytes,
        error=USER_INFO.sub("", outcome.error)[:_TEXT_MAX],
    )
    try:
        client.put_backup_result(result)
    except ClientError as error:
        why = getattr(error, "detail", "") or str(error)
        refuse(f"the result is not reported: {why}")


def _now_ms() -> int:
    return int(time.time() * 1000)
