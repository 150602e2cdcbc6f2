"""``mqstore dlq export``: writes the dead letters of a group to a file of JSON lines."""

from __future__ import annotations

import base64
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TextIO

import typer

from mqstore.cli import dlq_options as options
from mqstore.cli.output import document, json_line
from mqstore.cli.session import DryRun, Session, service_command

if TYPE_CHECKING:
    from mqstore.client import DeadLetter

STDOUT: Final = Path("-")
_BODY_FIELDS: Final = ("body", "bodyBase64", "compression")


@service_command
@options.selecting
def export(
    session: Session,
    group: options.Group,
    file: Annotated[Path, typer.Argument(help="New file; - for stdout.", metavar="FILE")],
    selection: options.Selection,
    dry_run: DryRun = False,
) -> int:
    """Write the dead letters of a group with bodies and properties, a JSON object a line.

    The oldest come first; compressed bodies are inflated. The letters stay listed: `mqstore dlq
    purge` ends that, and `mqstore produce TOPIC --jsonl` stores copies of the lines. FILE appears
    when it is complete. Exit code 1: a shard is missing or a dead letter is damaged.

    Examples:

    \b
        mqstore dlq export billing letters.jsonl
        mqstore dlq export billing - --from "1d ago" | mqstore produce repaired --jsonl
        mqstore dlq export billing letters.jsonl --dry-run
    """
    wanted = selection.filter()
    if file != STDOUT and file.exists():
        raise ValueError(f"{file} exists; name a new file")
    listing = options.Listing(session, group, wanted)
    letters = listing.letters(order="oldest")
    if dry_run:
        session.out.done(f"would write {sum(1 for _ in letters)} dead letters to {file}")
        return listing.code
    count = write_lines((_whole(session, each) for each in letters), file)
    if file != STDOUT:
        session.out.done(
            f"wrote {count} dead letters to {file}", {"file": str(file), "letters": count}
        )
    return listing.code


def write_lines(documents: Iterable[dict[str, Any]], file: Path) -> int:
    """Write documents as JSON lines to stdout or a new file; returns their number.

    The file gets its name when it is complete and on disk; a failure leaves nothing.
    """
    if file == STDOUT:
        return _write(documents, sys.stdout)
    part = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with part.open("x", encoding="utf-8", errors="replace") as out:
            count = _write(documents, out)
            out.flush()
            os.fsync(out.fileno())
        part.rename(file)
    finally:
        part.unlink(missing_ok=True)
    return count


def _write(documents: Iterable[dict[str, Any]], out: TextIO) -> int:
    return sum(out.write(f"{json_line(each)}\n") > 0 for each in documents)


def _whole(session: Session, letter: DeadLetter) -> dict[str, Any]:
    """The JSON form of a dead letter; a compressed body is replaced by the inflated one."""
    found: dict[str, Any] = document(letter)
    if letter.compression is None:
        return found
    content = session.client.message_body(letter.offset_msg_id, inflate=True).content
    kept = {name: each for name, each in found.items() if name not in _BODY_FIELDS}
    return {**kept, "bodyBase64": base64.b64encode(content).decode()}
