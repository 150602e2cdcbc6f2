"""Consumer groups: their settings, committed offsets and subscriptions."""

from __future__ import annotations

from typing import Final

from mqstore.wire import problems
from mqstore.wire.examples import groups as examples
from mqstore.wire.groups import (
    Group,
    GroupOffsets,
    Groups,
    GroupSpec,
    OffsetCommit,
    OffsetReset,
    OffsetsReset,
    Subscription,
    Subscriptions,
    SubscriptionSpec,
)
from mqstore.wire.operation import Nothing, Operation, Role, Target, json_of

_PATH: Final = "/v1/groups/{group}"
_OFFSETS: Final = _PATH + "/offsets"
_SUBSCRIPTIONS: Final = _PATH + "/subscriptions"
_SUBSCRIPTION: Final = _SUBSCRIPTIONS + "/{topic}"
_UNKNOWN: Final = (problems.GROUP_UNKNOWN, problems.GROUP_INVALID)
_REFUSED: Final = (problems.TOPIC_UNKNOWN, problems.QUEUE_UNKNOWN, problems.GROUP_INVALID)
_UNWRITTEN: Final = (problems.STORE_READ_ONLY, problems.STORE_FAILED)
_NO_OFFSETS: Final = (*_REFUSED, problems.OFFSET_REFUSED, *_UNWRITTEN, *problems.WITH_BODY)

GROUPS: Final = Operation(
    name="groups",
    targets=(Target.WRITER,),
    path="/v1/groups",
    role=Role.CONSUME,
    summary="All groups",
    tag="groups",
    reply=Groups,
)
GROUP: Final = Operation(
    name="group",
    targets=(Target.WRITER,),
    path=_PATH,
    role=Role.CONSUME,
    summary="One group",
    tag="groups",
    reply=Group,
    example=examples.GROUP,
    problems=_UNKNOWN,
)
PUT_GROUP: Final = Operation(
    name="put_group",
    targets=(Target.WRITER,),
    method="PUT",
    path=_PATH,
    role=Role.ADMIN,
    summary="Create a group, or change it",
    tag="groups",
    request=GroupSpec,
    reply=Group,
    contents={201: ("Created.", json_of(Group))},
    problems=(problems.GROUP_INVALID, *_UNWRITTEN, *problems.WITH_BODY),
)
DELETE_GROUP: Final = Operation(
    name="delete_group",
    targets=(Target.WRITER,),
    method="DELETE",
    path=_PATH,
    role=Role.ADMIN,
    summary="Delete a group",
    tag="groups",
    reply=Nothing,
    status=204,
    problems=(*_UNKNOWN, *_UNWRITTEN),
)
OFFSETS: Final = Operation(
    name="group_offsets",
    targets=(Target.WRITER,),
    path=_OFFSETS,
    role=Role.CONSUME,
    summary="Where a group stands",
    tag="groups",
    reply=GroupOffsets,
    example=examples.OFFSETS,
    problems=_REFUSED,
)
COMMIT_OFFSETS: Final = Operation(
    name="commit_offsets",
    targets=(Target.WRITER,),
    method="PUT",
    path=_OFFSETS,
    role=Role.CONSUME,
    summary="Commit offsets",
    tag="groups",
    request=OffsetCommit,
    reply=GroupOffsets,
    example=examples.OFFSETS,
    problems=_NO_OFFSETS,
)
RESET_OFFSETS: Final = Operation(
    name="reset_offsets",
    targets=(Target.WRITER,),
    method="POST",
    path=_OFFSETS + ":reset",
    role=Role.ADMIN,
    summary="Move a group",
    tag="groups",
    request=OffsetReset,
    reply=OffsetsReset,
    example=examples.RESET_DONE,
    problems=_NO_OFFSETS,
)
SUBSCRIPTIONS: Final = Operation(
    name="subscriptions",
    targets=(Target.WRITER,),
    path=_SUBSCRIPTIONS,
    role=Role.CONSUME,
    summary="A group's subscriptions",
    tag="groups",
    reply=Subscriptions,
    problems=(problems.GROUP_INVALID,),
)
SUBSCRIPTION: Final = Operation(
    name="subscription",
    targets=(Target.WRITER,),
    path=_SUBSCRIPTION,
    role=Role.CONSUME,
    summary="One subscription",
    tag="groups",
    reply=Subscription,
    example=examples.SUBSCRIPTION,
    problems=(problems.SUBSCRIPTION_UNKNOWN, problems.GROUP_INVALID),
)
SUBSCRIBE: Final = Operation(
    name="put",
    targets=(Target.WRITER,),
    method="PUT",
    path=_SUBSCRIPTION,
    role=Role.CONSUME,
    summary="Subscribe with an expression",
    tag="groups",
    request=SubscriptionSpec,
    reply=Subscription,
    example=examples.SUBSCRIPTION,
    problems=(
        problems.TOPIC_UNKNOWN,
        problems.BAD_FILTER,
        *problems.WITH_BODY,
        *_UNWRITTEN,
        problems.GROUP_INVALID,
    ),
)
UNSUBSCRIBE: Final = Operation(
    name="remove",
    targets=(Target.WRITER,),
    method="DELETE",
    path=_SUBSCRIPTION,
    role=Role.CONSUME,
    summary="End a subscription",
    tag="groups",
    reply=Nothing,
    status=204,
    problems=(problems.SUBSCRIPTION_UNKNOWN, *_UNWRITTEN, problems.GROUP_INVALID),
)
