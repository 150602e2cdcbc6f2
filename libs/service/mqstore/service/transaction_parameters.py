"""Parameters of the transaction operations, which coordinator and store-writer both offer."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Header
from fastapi import Path as PathParameter

from mqstore.service import bodies, problems
from mqstore.service.http import HotRequest, refuse_unknown
from mqstore.service.problems import Problem
from mqstore.wire.checks import PRODUCER_NAME, SECRET_HEADER, SECRET_LENGTH_MAX
from mqstore.wire.examples import transactions as examples
from mqstore.wire.transactions import ID_LENGTH_MAX, ID_TEXT

VALUES_MAX: Final = 25_000
"""JSON values of a begin: those of 100 messages with 100 keys and 100 properties each."""
TransactionId = Annotated[
    str,
    PathParameter(
        alias="id",
        max_length=ID_LENGTH_MAX,
        description=ID_TEXT,
        openapi_examples={"one": {"value": examples.ID}},
    ),
]
Group = Annotated[str, PathParameter(min_length=1, max_length=120, description="Producer group.")]
Name = Annotated[
    str,
    PathParameter(
        pattern=f"^{PRODUCER_NAME}$", description="Name of the producer, unique in its group."
    ),
]
ProducerSecret = Annotated[
    str | None,
    Header(
        alias=SECRET_HEADER,
        max_length=SECRET_LENGTH_MAX,
        description="Secret of the registration.",
    ),
]


async def body_of_begin(request: HotRequest) -> bytes:
    """Receive the body of a begin. Raises Problem (413) for more than VALUES_MAX JSON values."""
    body = await request.body()
    bodies.check_values(body, VALUES_MAX)
    return body


def transaction_id(request: HotRequest) -> str:
    """Return the transaction id in the path. Raises Problem (400) for one that is too long."""
    found = request.params["id"]
    check_transaction_id(found)
    return found


def check_transaction_id(found: str) -> None:
    """Raise Problem (400) for a transaction id that is too long."""
    if len(found) > ID_LENGTH_MAX:
        raise Problem(problems.BAD_PARAMETER, f"id has more than {ID_LENGTH_MAX} characters")


def check_query(request: HotRequest) -> None:
    """Raise Problem (400) for a request with a query."""
    if query := request.query():
        refuse_unknown(query, ())
