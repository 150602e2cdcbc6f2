"""Topics: create, change, list, delete."""

from __future__ import annotations

from typing import Final

from mqstore.wire import problems
from mqstore.wire.examples import groups as examples
from mqstore.wire.operation import Operation, Role, Target, json_of
from mqstore.wire.topics import Topic, TopicDeletion, Topics, TopicSpec

_PATH: Final = "/v1/topics/{topic}"
_CHANGES: Final = (problems.TOPIC_INVALID, problems.STORE_READ_ONLY, problems.STORE_FAILED)

PUT_TOPIC: Final = Operation(
    name="put_topic",
    targets=(Target.WRITER,),
    method="PUT",
    path=_PATH,
    role=Role.ADMIN,
    summary="Create a topic, or change it",
    tag="topics",
    request=TopicSpec,
    reply=Topic,
    contents={201: ("Created.", json_of(Topic))},
    problems=(*_CHANGES, problems.TOPIC_CONFIG, *problems.WITH_BODY),
)
TOPICS: Final = Operation(
    name="topics",
    targets=(Target.WRITER,),
    path="/v1/topics",
    role=Role.CONSUME,
    summary="All topics",
    tag="topics",
    reply=Topics,
)
TOPIC: Final = Operation(
    name="topic",
    targets=(Target.WRITER,),
    path=_PATH,
    role=Role.CONSUME,
    summary="One topic",
    tag="topics",
    reply=Topic,
    problems=(problems.TOPIC_UNKNOWN,),
)
DELETE_TOPIC: Final = Operation(
    name="delete_topic",
    targets=(Target.WRITER,),
    method="DELETE",
    path=_PATH,
    role=Role.ADMIN,
    summary="Delete a topic",
    tag="topics",
    reply=TopicDeletion,
    example=examples.TOPIC_DELETION,
    problems=(problems.TOPIC_UNKNOWN, problems.FLUSH_TIMEOUT, *_CHANGES),
)
