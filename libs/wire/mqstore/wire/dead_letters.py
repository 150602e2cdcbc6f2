"""Dead letters of consumer groups: messages of ``%DLQ%GROUP``, which no consumer gets any more."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final, Literal, Self

from pydantic import ConfigDict, Field, StringConstraints, model_validator

from mqstore.wire import problems
from mqstore.wire.base import INT32_MAX, INT64_MAX, Milliseconds, Offset, Reply, Request
from mqstore.wire.examples import dead_letters as examples
from mqstore.wire.limits import COUNT_MAX, DEAD_LETTERS_DEFAULT, REASON_LENGTH_MAX
from mqstore.wire.messages import Message, Messages, PageParameters
from mqstore.wire.operation import Operation, Role, Target
from mqstore.wire.parameters import CursorParameters
from mqstore.wire.shards import OfShards
from mqstore.wire.times import Time

Text = Annotated[str, StringConstraints(min_length=1, max_length=32_767)]
Flag = Annotated[bool, Field(strict=True)]
Ids = Annotated[
    list[Annotated[str, StringConstraints(min_length=1, max_length=56)]],
    Field(min_length=1, max_length=COUNT_MAX, description="`offsetMsgId` of dead letters."),
]


class DeadLetter(Message, title="DeadLetter"):
    """A dead letter: the copy of a message in `%DLQ%GROUP`."""

    source_topic: Annotated[
        str | None,
        Field(
            description="The topic that the message was produced to; null for a message that a"
            " producer sent to `%DLQ%GROUP`."
        ),
    ]
    origin_message_id: Annotated[
        str | None, Field(description="Offset message id of the first copy of the message.")
    ]
    reason: Annotated[str | None, Field(description="The reason of the last return.")]
    delivery_attempts: Annotated[
        int,
        Field(
            description="How often the group got the message. In a dead letter that a broker made"
            " it is the number of returns."
        ),
    ]
    dead_since: Milliseconds


class DeadLetters(Messages, title="DeadLetters"):
    """Dead letters that were not resent or purged."""

    messages: tuple[DeadLetter, ...]


Most = Annotated[
    int,
    Field(
        ge=1,
        le=COUNT_MAX,
        strict=True,
        description="Maximum number that each shard resends; then `next` is set. Without `ids`"
        " only.",
    ),
]


class DeadLetterFilter(Request):
    """Dead letters that match all fields that are given."""

    topic: Annotated[Text | None, Field(description="The source topic.")] = None
    key: Annotated[
        Text | None, Field(description="Unique key, one of KEYS, or the origin message id.")
    ] = None
    tag: Text | None = None
    reason: Annotated[
        str | None, Field(max_length=REASON_LENGTH_MAX, description="A part of the reason.")
    ] = None
    from_ms: Annotated[Time, Field(alias="from", description="Dead at or after this time.")] = 0
    to_ms: Annotated[Time, Field(alias="to", description="Dead at or before this time.")] = (
        INT64_MAX
    )

    @model_validator(mode="after")
    def _is_a_range(self) -> Self:
        if self.to_ms < self.from_ms:
            raise ValueError("from is after to; swap them")
        return self


class ResendTarget(StrEnum):
    """The destination of dead letters."""

    TOPIC = "topic"
    GROUP = "group"


class ResendSpec(Request):
    """The dead letters to resend: those with `ids`, those that match `filter`, or `all`."""

    ids: Ids | None = None
    filter: DeadLetterFilter | None = None
    all: Flag = False
    to: Annotated[
        ResendTarget,
        Field(
            description="topic: the source topic, so that each group of it gets them. group: the"
            " retry topic of this group only."
        ),
    ] = ResendTarget.TOPIC
    max: Most = DEAD_LETTERS_DEFAULT
    dry_run: Annotated[Flag, Field(description="Only show what would be resent.")] = False

    model_config = ConfigDict(json_schema_extra={"example": examples.RESEND})

    @model_validator(mode="after")
    def _selects(self) -> Self:
        if (self.ids is not None) + (self.filter is not None) + self.all != 1:
            raise ValueError("give one of ids, filter and all: true")
        return self


class LetterStatus(StrEnum):
    """The result of one dead letter."""

    DONE = "done"
    SETTLED = "settled"
    UNKNOWN = "unknown"
    REFUSED = "refused"
    UNREACHABLE = "unreachable"


class LetterResult(Reply):
    """The result of one dead letter."""

    id: Annotated[str, Field(description="`offsetMsgId` of the dead letter.")]
    status: Annotated[
        LetterStatus,
        Field(
            description="done: resent or purged; in a dry run, it would be. settled: it was resent"
            " or purged before. unknown: the group has no such dead letter, or it expired. refused:"
            " `detail` says why it cannot be resent. unreachable: a shard that may have it did not"
            " reply; repeat the request."
        ),
    ]
    topic: Annotated[str | None, Field(description="The topic that it was resent to.")]
    copy_id: Annotated[
        str | None, Field(description="`offsetMsgId` of the message that was resent.")
    ]
    detail: str


class ResentLetters(OfShards):
    """The results of a resend."""

    group: str
    dry_run: bool
    results: tuple[LetterResult, ...]
    next: Annotated[
        str | None,
        Field(description="While there may be more: repeat the request with it as `cursor`."),
    ]


class PurgeSpec(Request):
    """The dead letters to purge: those with `ids`, those that match `filter`, those dead `before` a
    time, those in front of a queue `offset`, or `all`."""

    ids: Ids | None = None
    filter: DeadLetterFilter | None = None
    max: Annotated[Most, Field(description="As of a resend; with `filter` only.")] = (
        DEAD_LETTERS_DEFAULT
    )
    before: Annotated[Time | None, Field(description="Dead before this time.")] = None
    offset: Annotated[
        Offset | None,
        Field(description="With a queue offset below this one; with several shards, of `?shard=`."),
    ] = None
    all: Flag = False
    dry_run: Annotated[Flag, Field(description="Only show what would be purged.")] = False

    model_config = ConfigDict(json_schema_extra={"example": examples.PURGE})

    @model_validator(mode="after")
    def _selects(self) -> Self:
        selections = self.ids, self.filter, self.before, self.offset
        if sum(each is not None for each in selections) + self.all != 1:
            raise ValueError("give one of ids, filter, before, offset and all: true")
        return self


class PurgedQueue(Reply):
    """The effect of a purge on one queue."""

    shard: int
    queue_id: Annotated[int, Field(le=INT32_MAX)]
    purged: int


class PurgedLetters(OfShards):
    """The effect of a purge."""

    group: str
    dry_run: bool
    purged: Annotated[
        int, Field(description="Dead letters that are not listed any more, over all queues.")
    ]
    queues: Annotated[
        tuple[PurgedQueue, ...], Field(description="Without `ids` and `filter`.")
    ] = ()
    results: Annotated[tuple[LetterResult, ...], Field(description="With `ids` or `filter`.")] = ()
    next: Annotated[
        str | None,
        Field(description="While there may be more: repeat the request with it as `cursor`."),
    ] = None


_PATH: Final = "/v1/groups/{group}/dead-letters"
_CHANGES: Final = (
    problems.GROUP_UNKNOWN,
    problems.GROUP_INVALID,
    problems.BAD_MESSAGE_ID,
    problems.BAD_CURSOR,
    problems.MESSAGE_EXPIRED,
    problems.DEAD_LETTERS_FULL,
    *problems.WAIT_KINDS,
    problems.STORE_READ_ONLY,
    problems.STORE_FAILED,
    *problems.WITH_BODY,
)


class DeadLettersParameters(PageParameters):
    """A page of dead letters: which of them, and their form."""

    topic: Annotated[
        str | None, Field(max_length=32_767, description="Only of this source topic.")
    ] = None
    key: Annotated[
        str | None,
        Field(max_length=32_767, description="Unique key, one of KEYS, or the origin message id."),
    ] = None
    tag: Annotated[str | None, Field(max_length=32_767, description="Only with this tag.")] = None
    reason: Annotated[
        str | None, Field(max_length=REASON_LENGTH_MAX, description="A part of the reason.")
    ] = None
    order: Annotated[Literal["newest", "oldest"], Field(description="`oldest`: oldest first.")] = (
        "newest"
    )
    limit: Annotated[
        int, Field(ge=1, le=COUNT_MAX, description="Maximum number of messages in the reply.")
    ] = DEAD_LETTERS_DEFAULT


DEAD_LETTERS: Final = Operation(
    name="dead_letters",
    targets=(Target.QUERY,),
    path=_PATH,
    role=Role.CONSUME,
    summary="Dead letters of a group",
    tag="groups",
    query=DeadLettersParameters,
    reply=DeadLetters,
    example=examples.DEAD_LETTERS,
    problems=(
        problems.GROUP_UNKNOWN,
        problems.GROUP_INVALID,
        problems.BAD_CURSOR,
        problems.MESSAGE_EXPIRED,
    ),
)


RESEND: Final = Operation(
    name="resend_dead_letters",
    targets=(Target.WRITER,),
    method="POST",
    idempotent=True,
    path=_PATH + ":resend",
    role=Role.ADMIN,
    summary="Resend dead letters",
    tag="groups",
    request=ResendSpec,
    query=CursorParameters,
    reply=ResentLetters,
    example=examples.RESENT,
    problems=(
        *_CHANGES,
        problems.STORE_NOT_WRITABLE,
        problems.DISK_FULL,
        problems.PAGE_CACHE_BUSY,
        problems.WRITES_PAUSED,
    ),
)
PURGE: Final = Operation(
    name="purge_dead_letters",
    targets=(Target.WRITER,),
    method="POST",
    idempotent=True,
    path=_PATH + ":purge",
    role=Role.ADMIN,
    summary="Purge dead letters",
    tag="groups",
    request=PurgeSpec,
    query=CursorParameters,
    reply=PurgedLetters,
    example=examples.PURGED,
    problems=_CHANGES,
)
