"""store-writer's route by which another shard asks whether messages were put here before."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from mqstore.service import bodies, problems
from mqstore.service.app import Api, documented, json_content
from mqstore.service.auth import Role
from mqstore.service.http import HotRequest, HotRoute
from mqstore.service.reply import Reply
from mqstore.storage._kernel import placements_json
from mqstore.storage.errors import UniqueKeyTaken
from mqstore.wire.examples import stores as examples
from mqstore.writer import produce
from mqstore.writer.internal_models import (
    REPEATS_EXAMPLE,
    RepeatsAsked,
    RepeatsKnown,
    SentBefore,
)
from mqstore.writer.repeats import PATH
from mqstore.writer.service import WriterService


class RepeatRoute:
    """What it answers is known here; what it does not is asked for elsewhere from now on."""

    def __init__(self, service: WriterService) -> None:
        self._service = service
        self._decoder: Final = msgspec.json.Decoder(RepeatsAsked)

    def add(self, api: Api) -> None:
        """Put the route into store-writer's interface."""
        api.add_schemas(RepeatsAsked, SentBefore, RepeatsKnown)
        api.add_hot(HotRoute("POST", PATH, Role.SYSTEM, self._answer, _operation()))

    async def _answer(self, request: HotRequest) -> Reply:
        service = self._service
        service.require_writable()  # only a writer knows what was put before its opening
        produce.check_json_head(request)
        asked = bodies.decode(self._decoder, await request.body())
        sent = {each.uniq_key: each.digest for each in asked.messages}
        once = service.store.once
        try:
            found = {} if once is None else once.stored(asked.topic, sent)
        except UniqueKeyTaken as error:
            return Reply(msgspec.json.encode(RepeatsKnown([], str(error))))
        service.repeats.note_asked(asked.topic, sent.keys() - found.keys())
        keys, placements = list(found), list(found.values())
        if placements:
            await service.settled(max(each.end for each in placements), sync=asked.sync)
        numbers, shard = range(len(keys)), service.settings.shard
        placed = placements_json(placements, keys, shard, numbers, produce.quote)
        return Reply(b'{"messages":%b}' % placed)


def _operation() -> dict[str, Any]:
    known = examples.PRODUCED["messages"][0] | {"repeat": True}
    answers = documented(
        "RepeatsKnown",
        {"messages": [known]},
        *problems.WITH_BODY,
        problems.HEADERS_TOO_LARGE,
        problems.INTERNAL,
        *problems.READ_ONLY_KINDS,
        problems.STORE_FAILED,
        problems.FLUSH_TIMEOUT,
        *problems.GUARDED,
    )
    return {
        "operationId": "repeats",
        "tags": ["internal"],
        "summary": "Which messages were stored here before",
        "description": (
            "For a shard that was sent a repeat. What is not answered is stored here only as a "
            "repeat for some while, since the caller is about to store it."
        ),
        "requestBody": {"required": True, "content": json_content("RepeatsAsked", REPEATS_EXAMPLE)},
        "responses": {str(status): answer for status, answer in answers.items()},
    }
