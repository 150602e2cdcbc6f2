"""query's operations on consumer groups: how far they are behind."""

from __future__ import annotations

from typing import Final

from mqstore.wire import problems
from mqstore.wire.examples import lags as examples
from mqstore.wire.lags import GroupLag, GroupLags
from mqstore.wire.operation import Operation, Role, Target

LAGS: Final = Operation(
    name="lags",
    targets=(Target.QUERY,),
    path="/v1/lag",
    role=Role.CONSUME,
    summary="How far all groups are behind",
    tag="groups",
    reply=GroupLags,
    example=examples.LAGS,
    problems=(problems.BAD_CURSOR,),
)
LAG: Final = Operation(
    name="lag",
    targets=(Target.QUERY,),
    path="/v1/groups/{group}/lag",
    role=Role.CONSUME,
    summary="How far a group is behind, by topic and queue",
    tag="groups",
    reply=GroupLag,
    example=examples.LAG,
    problems=(problems.GROUP_UNKNOWN, problems.GROUP_INVALID, problems.TOPIC_UNKNOWN),
)
