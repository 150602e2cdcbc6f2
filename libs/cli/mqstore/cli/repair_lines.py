"""Runs ``mqstore store repair`` and ``rebuild``: prints the changes, then a summary (JSON and YAML:
an item ``planned``, ``repaired`` or ``rebuilt``)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mqstore.cli.exit_codes import EXIT_FINDINGS, EXIT_OK, refuse
from mqstore.cli.output import Column, Format, Output, size
from mqstore.cli.progress import show_progress
from mqstore.cli.session import choose_form
from mqstore.cli.store_command import index_sizes, run_command
from mqstore.storage import StoreConfig
from mqstore.storage.host import production_seams
from mqstore.storage.repair import Change, Remedy, RepairOutcome, StoreRepair

_COLUMNS: Final = (
    Column("action", lambda row: row["action"]),
    Column("topic", lambda row: row.get("topic")),
    Column("queue", lambda row: row.get("queueId"), right=True),
    Column("queue-offset", lambda row: row.get("queueOffset"), right=True),
    Column("offset", lambda row: row.get("physicalOffset"), right=True),
    Column("size", lambda row: row.get("size"), size, right=True),
    Column("key", lambda row: row.get("keys") or row.get("uniqKey")),
    Column("lost", lambda row: row.get("lost"), right=True),
    Column("file", lambda row: row.get("file")),
    Column("why", lambda row: row["why"]),
)


PARTS: Final = {"queues": Remedy.REMAKE_ENTRIES, "index": Remedy.REMAKE_INDEX}
"""Parts that a rebuild makes again, by the names of their options."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The command, as given. ``parts`` are those of a rebuild; a repair has none."""

    directory: Path
    acts: bool
    parts: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        """The command that does what the plan says."""
        name = "rebuild" if self.parts else "repair"
        options = "".join(f" --{part}" for part in self.parts if len(self.parts) < len(PARTS))
        return f"mqstore store {name} {self.directory}{options} --yes"


def run(choice: Choice, form: Format | None, hash_slots: int | None, index_num: int | None) -> int:
    """Plan a repair or a rebuild, or run it, and print all rows; the exit code."""
    return run_command(
        lambda: _run(choice, form, index_sizes(hash_slots, index_num)),
        refuse,
        unread=EXIT_FINDINGS,
    )


def _run(choice: Choice, form: Format | None, config: StoreConfig) -> int:
    out, acts = Output(choose_form(form)), choice.acts
    remakes = frozenset(PARTS[part] for part in choice.parts)
    root = choice.directory.absolute()
    with show_progress() as progress:
        repair = StoreRepair(root, config, production_seams(), progress, remakes)
        outcome = repair.run() if acts else repair.plan()
    summary = _summary(outcome, _verb(choice))
    if out.is_document:
        out.items([*rows(outcome), summary], _COLUMNS)
    elif outcome.changes.listed or not out.is_table:
        out.items(rows(outcome), _COLUMNS)
    if out.is_table:
        out.line(_text(outcome, choice))
    is_fine = not outcome.left and not outcome.changes.lost and (acts or not outcome.found)
    return EXIT_OK if is_fine else EXIT_FINDINGS


def rows(outcome: RepairOutcome) -> Iterator[dict[str, Any]]:
    """A row for each listed change, and one for each action with changes that are not listed."""
    for change in outcome.changes.listed:
        yield _row(change)
    for action, count in outcome.changes.unlisted.items():
        yield {"t": "change", "action": action.value, "why": f"and {count} more", "more": count}


def _row(change: Change) -> dict[str, Any]:
    fields = {
        "file": change.file,
        "physicalOffset": change.physical_offset,
        "size": change.length,
        "topic": change.topic,
        "queueId": change.queue_id,
        "queueOffset": change.queue_offset,
        "uniqKey": change.unique_key,
        "keys": change.keys,
        "lost": change.lost or None,
        "why": change.what,
    }
    known = {name: value for name, value in fields.items() if value is not None}
    return {"t": "change", "action": change.action.value, **known}


def _verb(choice: Choice) -> str:
    if not choice.acts:
        return "planned"
    return "rebuilt" if choice.parts else "repaired"


def _summary(outcome: RepairOutcome, verb: str) -> dict[str, Any]:
    changes = outcome.changes
    return {
        "t": verb,
        "found": {kind.value: count for kind, count in sorted(outcome.found.items())},
        "changes": {action.value: count for action, count in sorted(changes.counts.items())},
        "lost": changes.lost,
        "moved": changes.moved,
        "left": {kind.value: count for kind, count in sorted(outcome.left.items())},
        "brokerStarts": outcome.summary.broker_starts,
    }


def _text(outcome: RepairOutcome, choice: Choice) -> str:
    if not outcome.is_needed:
        return "nothing to repair"
    found = sum(outcome.found.values())
    changes = outcome.changes
    result = f"{changes.lost} messages lost, {changes.moved} moved, {found} findings"
    if outcome.left:
        kinds = ", ".join(f"{count} {kind.value}" for kind, count in sorted(outcome.left.items()))
        result += f", of which these stay: {kinds}"
    if choice.acts:
        aside = f"{choice.directory}/mqstore/quarantine"
        return f"{_verb(choice)}: {result}; changed and removed bytes are in {aside}"
    return f"plan: {result}; do it with: {choice.command}"
