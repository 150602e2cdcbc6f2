"""Answers of the release before, which a client meets during an upgrade and a rollback."""

from __future__ import annotations

import json

from mqstore.wire.groups import GroupOffsets
from mqstore.wire.stores import Writes


def test_offsets_without_shards_are_understood() -> None:
    queue = {"topic": "t", "queueId": 0, "committed": 1, "minOffset": 0, "maxOffset": 2, "lag": 1}
    answer = json.dumps({"group": "g", "offsets": [queue]})
    [found] = GroupOffsets.model_validate_json(answer).offsets
    assert (found.committed, found.shard) == (1, None)


def test_a_reply_without_the_field_taken_is_decoded() -> None:
    found = Writes.model_validate_json('{"paused": true, "reason": "r", "sinceMs": 1}')
    assert (found.paused, found.taken) == (True, None)
