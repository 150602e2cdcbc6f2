"""Output of ``mqstore store accept-loss``: one ``loss`` line, a ``lost`` line for each queue
range, a ``mark`` line for each tombstone, and ``planned`` or ``accepted``; a table is text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mqstore.cli.exit_codes import EXIT_FINDINGS, EXIT_OK, refuse
from mqstore.cli.output import Column, Format, Output
from mqstore.cli.session import choose_form
from mqstore.cli.store_command import Line, run_command
from mqstore.storage import StoreConfig
from mqstore.storage.formats import segment_name
from mqstore.storage.host import production_seams
from mqstore.storage.repair import AcceptedLoss, accept_loss, plan_loss


def _column(name: str) -> Column:
    return Column(name, lambda line: line.get(name))


_COLUMNS: Final = tuple(map(_column, ("t", "topic", "q", "from", "to", "qoff", "confirm")))


@dataclass(frozen=True, slots=True)
class StoreOnDisk:
    """The store's directory, and what only the operator may know of a broker's store."""

    root: Path
    segment_size: int | None
    commit_log: Path | None

    @property
    def config(self) -> StoreConfig:
        """RocketMQ's defaults with the segment size. Raises ValueError for one out of range."""
        if self.segment_size is None:
            return StoreConfig()
        return StoreConfig(mapped_file_size_commit_log=self.segment_size)


def run(store: StoreOnDisk, confirmation: str | None, form: Format | None) -> int:
    """Show the loss, or accept the one that is confirmed; the exit code."""
    return run_command(
        lambda: _run(store, confirmation, Output(choose_form(form))),
        refuse,
        unread=EXIT_FINDINGS,
    )


def _run(store: StoreOnDisk, confirmation: str | None, out: Output) -> int:
    seams, config, log = production_seams(), store.config, store.commit_log
    files, clock = seams.files, seams.clock
    if confirmation is None:
        planned = plan_loss(store.root, config, files, clock, commit_log=log)
    else:
        planned = accept_loss(store.root, config, files, clock, confirmation, commit_log=log)
    is_accepted = confirmation is not None
    if out.is_table:
        for text in _texts(store, planned, is_accepted):
            out.line(text)
    else:
        out.rows(_lines(planned, is_accepted), _COLUMNS)
    return EXIT_OK


def _lines(planned: AcceptedLoss, is_accepted: bool) -> Iterator[Line]:
    loss = planned.loss
    yield {"t": "loss", **loss.model_dump(by_alias=True, exclude={"queues"})}
    for lost in loss.queues:
        place = {"topic": lost.topic, "q": lost.queue_id}
        yield {"t": "lost", **place, "from": lost.first, "to": lost.end}
    for mark in planned.marks:
        place = {"topic": mark.topic, "q": mark.queue_id, "qoff": mark.queue_offset}
        yield {"t": "mark", **place}
    end = {"resumeAt": planned.resume_at, "confirm": loss.confirmation}
    yield {"t": "accepted" if is_accepted else "planned", **end}


def _texts(store: StoreOnDisk, planned: AcceptedLoss, is_accepted: bool) -> Iterator[str]:
    loss = planned.loss
    yield f"{loss.text}: {loss.messages} messages"
    for name in loss.segments:
        yield f"  absent: commitlog/{name}"
    for lost in loss.queues:
        offsets = f"queue offsets {lost.first} to {lost.end - 1}"
        yield f"  lost: {lost.topic} queue {lost.queue_id}, {offsets}"
    if loss.queue_count > len(loss.queues):
        yield f"  and {loss.queue_count - len(loss.queues)} more ranges"
    yield "The next opening for writing"
    if planned.resume_at is None:
        yield "  goes on at the log's end; no queue has lost its last message"
    else:
        name = segment_name(planned.resume_at)
        yield f"  goes on in the new segment commitlog/{name}, which begins"
        yield f"  with {len(planned.marks)} tombstones: each takes the next queue offset of a queue"
        yield "  that has lost its last message, so that no offset is given out again"
    if is_accepted:
        yield "Accepted. A store-writer that serves this store opens it for writing within seconds."
    else:
        yield f"Accept with: mqstore store accept-loss {_arguments(store, planned)}"


def _arguments(store: StoreOnDisk, planned: AcceptedLoss) -> str:
    """The arguments that accept the loss; the confirmation is the last."""
    size, log = store.segment_size, store.commit_log
    return (
        f"{store.root}"
        + (f" --segment-size {size}" if size is not None else "")
        + (f" --commit-log {log}" if log is not None else "")
        + f" --confirm {planned.loss.confirmation}"
    )
