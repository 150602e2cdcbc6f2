"""The request that other shards get when a topic is changed here."""

from __future__ import annotations

import json

import pytest

from mqstore.wire.topics import Topic
from mqstore.writer.topic_routes import _spec_of


@pytest.mark.parametrize(("queues", "perm"), [(4, 6), (2_000, 6), (8, 7)])
def test_the_request_has_the_topic_unchanged_even_if_a_broker_created_it(
    queues: int, perm: int
) -> None:
    made = Topic(
        topic="t",
        queues=queues,
        read_queues=queues,
        write_queues=queues,
        perm=perm,
        order=True,
        filter_type="SINGLE_TAG",
        attributes={},
    )
    assert json.loads(_spec_of(made).model_dump_json(by_alias=True, exclude_none=True)) == {
        "readQueues": queues,
        "writeQueues": queues,
        "perm": perm,
        "order": True,
        "filterType": "SINGLE_TAG",
    }
