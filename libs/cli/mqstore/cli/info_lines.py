"""The output of ``mqstore store info``: a table for readers, else one document."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, cast

from mqstore.cli.exit_codes import EXIT_FINDINGS, EXIT_OK, refuse
from mqstore.cli.output import Column, Format, Output, size, yes_no
from mqstore.cli.progress import show_progress
from mqstore.cli.session import choose_form
from mqstore.cli.store_command import index_sizes, run_command
from mqstore.cli.times import duration, show_time
from mqstore.storage import StoreConfig
from mqstore.storage.host import production_seams
from mqstore.storage.verify import Left, Overview, StoreAtRest, overview_of

_STATES: Final = {
    Left.OPEN: "open: a process has it",
    Left.CLOSED: "closed",
    Left.CRASHED: "not closed: the next opening recovers it",
    Left.FAILED: "not closed: its disk or a sync had failed",
    Left.RECOVERING: "not closed: a recovery was cut off",
}


def run(directory: Path, form: Format | None, hash_slots: int | None, index_num: int | None) -> int:
    """Print the overview of a store; the exit code."""
    return run_command(
        lambda: _run(directory, form, index_sizes(hash_slots, index_num)),
        refuse,
        unread=EXIT_OK,
    )


def _run(directory: Path, form: Format | None, config: StoreConfig) -> int:
    out = Output(choose_form(form))
    seams = production_seams()
    with show_progress() as progress:
        base = cast(Any, seams.files)
        store = StoreAtRest.open(directory.absolute(), config, seams, base, progress)
        found = overview_of(store)
    out.item(found, [column for column in COLUMNS if not out.is_table or _has(column, found)])
    return EXIT_FINDINGS if found.problems else EXIT_OK


def _has(column: Column, found: Overview) -> bool:
    return column.value(found) not in (None, "")


def _column(heading: str, value: Callable[[Overview], object]) -> Column:
    return Column(heading, value)


def _identity(found: Overview) -> str | None:
    if found.store_id is None:
        return None
    return f"{found.store_id}, shard {found.shard}, opened {found.openings} times"


def _format(found: Overview) -> str:
    version = found.format_version
    ours = "mqstore has never opened it" if version is None else f"format.json {version}"
    return f"RocketMQ {found.format.value}; {ours}"


def _state(found: Overview) -> str:
    by = " by a broker" if found.left_by_broker and found.left is Left.CLOSED else ""
    when = "" if found.left_ms is None else f"; {show_time(found.left_ms)}"
    return f"{_STATES[found.left]}{by}{when}"


def _owner(found: Overview) -> str | None:
    owner = found.owner
    return None if owner is None else f"process {owner.pid} on {owner.host}"


def _times(found: Overview) -> str | None:
    first, last = found.log.first_ms, found.log.last_ms
    return None if last is None else f"{show_time(first)} to {show_time(last)}"


def _segments(found: Overview) -> str:
    log = found.log
    text = f"{log.segments} of {size(log.segment_size)}, with {size(log.bytes)} of records"
    return f"{text}; {log.damaged} damaged stretches" if log.damaged else text


def _index(found: Overview) -> str:
    derived = found.derived
    known = derived.index_complete
    return f"{derived.index_files} files" + (
        "" if known is None else f"; complete: {yes_no(known)}"
    )


def _checkpoint(found: Overview) -> str | None:
    times = found.checkpoint
    if times is None:
        return "none"
    named = {"log": times.physic_ms, "queues": times.logics_ms, "index": times.index_ms}
    return ", ".join(f"{name} {show_time(ms or None)}" for name, ms in named.items())


def _recovery(found: Overview) -> str | None:
    done = found.recovery
    if done is None:
        return None
    text = f"{show_time(done.finished_at_ms)} in {duration(done.duration_ms)}; {done.start_reason}"
    return f"{text}; cut {size(done.cut_bytes)}" if done.cut_bytes else text


def _epochs(found: Overview) -> str | None:
    if not found.epochs:
        return None
    last = found.epochs[-1]
    return (
        f"{len(found.epochs)}; the last is {last.number}, from offset {last.start}, led by store"
        f" {last.leader or '-'}"
    )


def _quarantine(found: Overview) -> str:
    kept = found.quarantine
    if not kept.entries:
        return "empty"
    return f"{kept.entries} entries, {size(kept.bytes)}; the newest {show_time(kept.newest_ms)}"


def _joined(texts: Iterable[str]) -> str:
    return "; ".join(texts)


COLUMNS: Final = (
    _column("store", lambda each: each.root),
    _column("log-directory", lambda each: each.commit_log),
    _column("format", _format),
    _column("id", _identity),
    _column("state", _state),
    _column("opened-by", _owner),
    _column("follows", lambda each: each.leader),
    _column("offsets", lambda each: f"{each.log.min_offset} to {each.log.max_offset}"),
    _column("durable-to", lambda each: each.log.durable_offset),
    _column("times", _times),
    _column("segments", _segments),
    _column("topics", lambda each: each.tables.topics),
    _column("groups", lambda each: each.tables.groups),
    _column("queues", lambda each: f"{each.derived.queues}, in {each.derived.queue_files} files"),
    _column("index", _index),
    _column("checkpoint", _checkpoint),
    _column("last-recovery", _recovery),
    _column("epochs", _epochs),
    _column("quarantine", _quarantine),
    _column("accepted-losses", lambda each: each.accepted_losses or None),
    _column("holds", lambda each: _joined(each.holds)),
    _column("unfinished", lambda each: _joined(each.unfinished)),
    _column("states", lambda each: _joined(each.states)),
    _column("problems", lambda each: _joined(each.problems)),
)
"""Rows of the table; those without a value are left out."""
