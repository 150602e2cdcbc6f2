"""Topics: their settings, and their deletion."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import ConfigDict, Field

from mqstore.wire import problems
from mqstore.wire.base import NewerFlag, NewerInteger, Reply, Request
from mqstore.wire.examples import groups as examples
from mqstore.wire.limits import QUEUES_MAX
from mqstore.wire.operation import Operation, Role, Target, json_of
from mqstore.wire.parameters import ListParameters, Parameters
from mqstore.wire.shards import OfShards

QueueCount = Annotated[int, Field(ge=1, le=QUEUES_MAX, strict=True)]
Flag = Annotated[bool, Field(strict=True)]
Attributes = Annotated[
    dict[str, str], Field(max_length=16, description="Only in a store of format 5.x.")
]


class TopicSpec(Request):
    """Settings of a topic; one that is not given stays as it is. Default: 4 queues, perm 6."""

    queues: Annotated[QueueCount | None, Field(description="Both read and write queues.")] = None
    read_queues: QueueCount | None = None
    write_queues: QueueCount | None = None
    perm: Annotated[
        Literal[2, 4, 6] | None, Field(description="2 write, 4 read, 6 both, as in RocketMQ.")
    ] = None
    order: Flag | None = None
    filter_type: Literal["SINGLE_TAG", "MULTI_TAG"] | None = None
    attributes: Attributes | None = None
    allow_unread: Annotated[
        Flag | None,
        Field(
            description="Take queues away although groups have not consumed them: their messages"
            " can be received no more."
        ),
    ] = None
    dry_run: Annotated[
        Flag | None, Field(description="Only return what the change would hide; change nothing.")
    ] = None

    model_config = ConfigDict(json_schema_extra={"example": {"queues": 4}})


class Topic(OfShards):
    """A topic with its settings."""

    topic: str
    queues: Annotated[int, Field(description="Write queues.")]
    read_queues: int
    write_queues: int
    perm: int
    order: bool
    filter_type: str = "SINGLE_TAG"
    attributes: dict[str, str] = Field(default_factory=dict)


class UnreadMessages(Reply):
    """Messages that a group has not consumed."""

    group: str
    messages: int


class ChangedTopic(Topic):
    """A topic as a request leaves it, and the messages that can be received no more."""

    hidden_queues: Annotated[
        NewerInteger, Field(description="Queues that the change takes away, of all shards.")
    ] = None
    hidden_messages: Annotated[
        NewerInteger, Field(description="Messages in them, which no consumer can receive.")
    ] = None
    unread: Annotated[
        tuple[UnreadMessages, ...],
        Field(description="Those of them that groups have not consumed, by group."),
    ] = ()
    dry_run: Annotated[
        NewerFlag, Field(description="Whether nothing was changed, and `topic` is as it was.")
    ] = None

    model_config = ConfigDict(json_schema_extra={"example": examples.CHANGED_TOPIC})


class Topics(Reply, title="TopicList"):
    """A page of the topics, by name."""

    topics: tuple[Topic, ...]
    next: Annotated[str | None, Field(description="The cursor to go on with.")] = None


class TopicDeletion(OfShards):
    """The data that is deleted with a topic."""

    topic: str
    queues: int
    messages: Annotated[
        int, Field(description="Messages in its queues; the log keeps them until they expire.")
    ]
    groups: Annotated[tuple[str, ...], Field(description="Groups whose offsets in it go too.")]
    dry_run: Annotated[bool, Field(description="Whether nothing was changed.")]

    model_config = ConfigDict(json_schema_extra={"example": examples.TOPIC_DELETION})


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
    reply=ChangedTopic,
    contents={201: ("Created.", json_of(ChangedTopic))},
    example=examples.CHANGED_TOPIC,
    problems=(
        *(*_CHANGES, problems.TOPIC_CONFIG, problems.QUEUES_UNREAD, problems.LIMIT_REACHED),
        *problems.WITH_BODY,
    ),
)
TOPICS: Final = Operation(
    name="topics",
    targets=(Target.WRITER,),
    path="/v1/topics",
    role=Role.CONSUME,
    summary="All topics",
    tag="topics",
    query=ListParameters,
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


class DeletionParameters(Parameters):
    """Whether a topic is deleted, or only the deletion shown."""

    dry_run: Annotated[
        bool, Field(description="Only return what would be deleted; change nothing.")
    ] = False


DELETE_TOPIC: Final = Operation(
    name="delete_topic",
    targets=(Target.WRITER,),
    method="DELETE",
    path=_PATH,
    role=Role.ADMIN,
    summary="Delete a topic",
    tag="topics",
    query=DeletionParameters,
    reply=TopicDeletion,
    example=examples.TOPIC_DELETION,
    problems=(problems.TOPIC_UNKNOWN, problems.FLUSH_TIMEOUT, *_CHANGES),
)
