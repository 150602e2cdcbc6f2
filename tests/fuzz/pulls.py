"""Pulls in one call over a mutated log and its queue: what the window reads, or no reply."""

from __future__ import annotations

import json

import msgspec

from mqstore.service import message_views
from mqstore.service.message_bodies import BodyForm
from mqstore.storage._kernel import LogWindow, PulledQueue, PullLane, messages_json
from mqstore.storage.codec.record import Record
from tests.unit.service import message_model

FORM = message_views.message_form(0, BodyForm())
END = b"\r\n\r\n"


class OneFile:
    """A queue of one file."""

    def __init__(self, entries: memoryview, index: int, count: int) -> None:
        """``index`` is the queue offset of the first entry."""
        self._entries = entries
        self.min_index = index
        self.max_index = index + count

    def block(self, index: int) -> tuple[memoryview, int] | None:
        position = 20 * (index - self.min_index)
        return (self._entries, position) if 0 <= position < len(self._entries) else None


def pull(window: LogWindow, topic: bytes, queue_id: int, queue: OneFile) -> list[bytes]:
    """Return the records of a reply, in one piece; nothing where there is none.

    The messages of the reply in JSON are as many.
    """
    pulled, found = PulledQueue(window, topic, queue_id), []
    pulled.aim(queue, queue.min_index)
    for form in (None, FORM):
        lane = PullLane(8, max_bytes=1 << 20, shard=0, sends_empty=True, form=form)
        reply = lane.pull(pulled, queue.min_index, b"", b"", b"\r\n")
        body = b"" if reply is None else reply.partition(END)[2]
        if form is None and body:
            found = [body]
        elif form is not None and reply is not None:
            assert len(json.loads(body)["messages"]) == lane.messages
    return found


def require_json(found: Record) -> None:
    """Require that the kernel shows a record as the model does."""
    assert messages_json(FORM, [found]) == msgspec.json.encode(
        message_model.message(found, 0, BodyForm())
    )
