"""Between mqstore's services: committed offsets, and damage that readers of the store met."""

from __future__ import annotations

from typing import Final

from mqstore.wire import problems
from mqstore.wire.examples import internal as examples
from mqstore.wire.internal import AllOffsets, DamageReply, DamageSpec
from mqstore.wire.operation import Operation, Role, Target

ALL_OFFSETS: Final = Operation(
    name="offsets",
    targets=(Target.WRITER,),
    path="/v1/internal/offsets",
    role=Role.CONSUME,
    summary="Committed offsets of all groups",
    tag="internal",
    reply=AllOffsets,
    example=examples.OFFSETS,
)
REPORT_DAMAGE: Final = Operation(
    name="damage",
    targets=(Target.WRITER,),
    method="POST",
    path="/v1/internal/damage",
    role=Role.SYSTEM,
    summary="Report damage of the log",
    tag="internal",
    request=DamageSpec,
    reply=DamageReply,
    example=examples.DAMAGE,
    status=202,
    problems=problems.WITH_BODY,
)
