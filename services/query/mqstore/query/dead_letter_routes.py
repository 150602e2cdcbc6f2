"""The route that lists the dead letters of a group."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Final

import msgspec
from fastapi import Query, Request, Response

from mqstore.query import replies, shard_search, store_cursor, views
from mqstore.query.routes import json_reply
from mqstore.query.service import QueryService
from mqstore.service import message_views, problems
from mqstore.service.app import Api, GroupName
from mqstore.service.endpoint import Endpoint
from mqstore.service.message_bodies import BodyForm
from mqstore.service.problems import Problem
from mqstore.storage import topic_names
from mqstore.storage.errors import TopicUnknown
from mqstore.storage.formats import Record, decode_cursor
from mqstore.storage.reads import (
    DeadLetter,
    DeadLetterQuery,
    MessageForm,
    first_open,
    settled_of,
    unknown_group,
)
from mqstore.storage.topic_names import DLQ_PREFIX
from mqstore.wire import dead_letters as operations

_BesideMessage: Final = message_views.fields_beside_message(replies.DeadLetter)


class DeadLetterRoutes:
    """Serves the dead letters of groups."""

    def __init__(self, service: QueryService) -> None:
        self._service = service
        self._shard = service.settings.shard

    def add(self, api: Api) -> None:
        """Register the route with ``api``."""
        Endpoint(operations.DEAD_LETTERS, self.dead_letters).add(api)

    async def dead_letters(
        self,
        group: GroupName,
        request: Request,
        wanted: Annotated[operations.DeadLettersParameters, Query()],
    ) -> Response:
        """Messages of `%DLQ%GROUP` that were not resent or purged, newest first. All filters that
        are given must match. `from` and `to` are times at which messages became dead letters."""
        service = self._service
        topic_names.check_group(group)
        from_, to, limit, cursor = wanted.from_, wanted.to, wanted.limit, wanted.cursor
        if to < from_:
            raise Problem(problems.BAD_PARAMETER, f"from ({from_}) is after to ({to}); swap them")
        query = DeadLetterQuery(
            *(DLQ_PREFIX + group, from_, to, wanted.order == "newest", ()),
            *(wanted.topic, wanted.key, wanted.tag, wanted.reason),
        )
        form = service.body_form(wanted)
        max_bytes = service.reply_bytes_max(inflate=wanted.inflate)
        _ = service.reader
        here = partial(self._find, group, query, limit, max_bytes, form)
        if not service.shards.fans_out(request.scope):
            return json_reply(await service.run(lambda: here(cursor)))
        scope, newest = repr(query), query.newest_first
        paging = shard_search.paging(scope, query, limit, max_bytes, newest_first=newest)
        return json_reply(await shard_search.find(service, request, here, paging, scope, cursor))

    def _find(
        self,
        group: str,
        query: DeadLetterQuery,
        limit: int,
        max_bytes: int,
        form: BodyForm,
        cursor: str | None,
    ) -> bytes:
        """Encode a page of this shard's dead letters. Runs in the pool."""
        store = self._service.store
        self._require_group(group, query.topic)
        queues = store.reader.queues
        query = query.with_settled(settled_of(queues, query.topic, store.settled.now()))
        start = None if query.newest_first else first_open(queues, query.topic, query.settled)
        if cursor is not None:
            start = decode_cursor(store_cursor.remove_store_id(cursor, store.id), repr(query))
        found = store.reader.scans.scan_from(query, start, limit=limit, max_bytes=max_bytes)
        view = partial(_view, form=message_views.message_form(self._shard, form))
        return msgspec.json.encode(views.page(replies.DeadLetters, found, view, store.id))

    def _require_group(self, group: str, topic: str) -> None:
        """Raises GroupUnknown for a group without dead letters and offsets."""
        try:
            self._service.store.require_topic(topic)
        except TopicUnknown:
            if group not in self._service.group_offsets().table.groups():
                raise unknown_group(group) from None


def _view(found: Record, *, form: MessageForm) -> msgspec.Raw:
    letter = DeadLetter(found)
    beside = _BesideMessage(  # type: ignore[call-arg]  # no other fields
        source_topic=letter.source_topic,
        origin_message_id=letter.origin_message_id,
        reason=letter.reason,
        delivery_attempts=letter.attempts,
        dead_since=found.store_timestamp_ms,
    )
    return msgspec.Raw(message_views.extended(found, form, beside))
