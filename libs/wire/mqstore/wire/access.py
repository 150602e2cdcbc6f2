"""The roles of a request's token, and what they allow."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from mqstore.wire.base import Reply
from mqstore.wire.operation import Operation, Role, Target


class Access(Reply):
    """The rights of the sender of the request."""

    token_needed: Annotated[
        bool, Field(description="Whether the service has tokens; without any, all is allowed.")
    ]
    roles: Annotated[tuple[Role, ...], Field(description="Roles of the token.")]
    allows: Annotated[
        tuple[Role, ...],
        Field(description="Roles whose operations are allowed: `admin` includes others."),
    ]


ACCESS: Final = Operation(
    name="access",
    targets=(Target.QUERY,),
    path="/v1/access",
    role=None,
    summary="The roles of the token, and what they allow",
    tag="access",
    reply=Access,
    example={"tokenNeeded": True, "roles": ["admin"], "allows": ["admin", "consume", "produce"]},
)
