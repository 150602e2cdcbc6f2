"""Conversion of the store's results into replies of the query service."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from mqstore.query import replies, store_cursor
from mqstore.service.message_bodies import BodyForm
from mqstore.service.message_views import (
    extended,
    fields_beside_message,
    keys,
    message,
    message_form,
    unreadable,
)
from mqstore.service.problems import Problem
from mqstore.storage.formats import ExtUnit, Record, segment_name
from mqstore.storage.reads import (
    Entry,
    KeyAnswer,
    Pull,
    QueueRange,
    RecordPlace,
    messages_json,
)

Page = TypeVar("Page")

_BesideMessage: Final = fields_beside_message(replies.MessageDetail)


def message_detail(record: Record, shard: int, form: BodyForm, place: RecordPlace) -> bytes:
    """Encode a ``MessageDetail``: a record with its place in the store and its checksums."""
    beside = _BesideMessage(  # type: ignore[call-arg]  # no other fields
        segment=segment_name(place.segment),
        segment_position=place.position,
        queue_entry=queue_entry(record, place.entry, place.unit),
        checksum=replies.Checksum(
            body_crc=record.body_crc, blocks=place.cover.value, covered_bytes=place.covered
        ),
    )
    return extended(record, message_form(shard, form), beside)


def problem(found: Problem) -> replies.LookupProblem:
    """Return the view of the problem of one look-up among several."""
    return replies.LookupProblem(
        type=found.kind.urn,
        title=found.kind.title,
        status=found.kind.status,
        detail=found.detail,
        complete=found.extra.get("complete"),
        known=found.extra.get("known"),
    )


def header(record: Record) -> replies.DamagedHeader:
    """Return the fields that are readable in the header of a damaged record."""
    return replies.DamagedHeader(
        topic=record.topic,
        queue_id=record.queue_id,
        queue_offset=record.queue_offset,
        size=record.size,
        store_timestamp=record.store_timestamp_ms,
        born_timestamp=record.born_timestamp_ms,
        uniq_key=record.uniq_key,
        keys=keys(record),
        tags=record.tags,
    )


def queue_entry(
    record: Record, entry: Entry | None, unit: ExtUnit | None
) -> replies.QueueEntry | None:
    """Return the view of the queue entry at the record's queue offset, None without one."""
    if entry is None:
        return None
    names_it = (entry.physical_offset, entry.size) == (record.physical_offset, record.size)
    shown = unit and replies.Unit(
        tags_code=unit.tags_code,
        store_timestamp=unit.store_timestamp_ms,
        bitmap=unit.bitmap.hex(),
    )
    return replies.QueueEntry(
        physical_offset=entry.physical_offset,
        size=entry.size,
        tags_code=entry.tags_code,
        names_it=names_it,
        unit=shown,
    )


def pull(found: Pull, shard: int, form: BodyForm) -> bytes:
    """Encode a pull."""
    reply = replies.Pull(
        messages=(),
        unreadable=tuple([unreadable(each) for each in found.unreadable]),
        next=found.next_offset,
        min_offset=found.min_offset,
        max_offset=found.max_offset,
        status=found.status.value,
        shard=shard,
    )
    before, start, behind = msgspec.json.encode(reply).partition(b'{"messages":[')
    return messages_json(message_form(shard, form), found.records, before + start, behind)


def messages(found: KeyAnswer, shard: int, form: BodyForm, store_id: str) -> replies.Messages:
    """Return the view of a page of messages, with a cursor that names its store."""
    shown = message_form(shard, form)
    return page(replies.Messages, found, lambda each: message(each, shown), store_id)


def page(
    kind: Callable[..., Page], found: KeyAnswer, view: Callable[[Record], object], store_id: str
) -> Page:
    """Return a page of a kind, with the views of its records."""
    scanned, cursor = found.scanned, found.cursor
    return kind(
        messages=tuple([view(each) for each in found.records]),
        unreadable=tuple([unreadable(each) for each in found.unreadable]),
        next=None if cursor is None else store_cursor.add_store_id(cursor, store_id),
        complete=found.complete,
        scanned=replies.ScannedRange(
            from_ms=scanned.from_ms,
            to_ms=scanned.to_ms,
            candidates=scanned.candidates,
            min_offset=scanned.min_offset,
            max_offset=scanned.max_offset,
        ),
        store_id=store_id,
    )


def queue(found: QueueRange, shard: int) -> replies.Queue:
    """Return the view of a queue's bounds."""
    return replies.Queue(
        queue_id=found.queue_id,
        min_offset=found.min_offset,
        max_offset=found.max_offset,
        shard=shard,
    )
