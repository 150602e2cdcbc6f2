"""Parameters of the transaction operations, which coordinator and store-writer both offer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from fastapi import Header, Query
from fastapi import Path as PathParameter

from mqstore.service import bodies, problems
from mqstore.service.http import HotRequest, refuse_unknown
from mqstore.service.problems import Problem
from mqstore.wire.checks import PRODUCER_NAME, SECRET_HEADER, SECRET_LENGTH_MAX
from mqstore.wire.examples import transactions as examples
from mqstore.wire.transactions import ID_LENGTH_MAX, ID_TEXT, TransactionState

LIST_MAX: Final = 1_000
CURSOR_LENGTH_MAX: Final = 4_000
GROUP_LENGTH_MAX: Final = 255
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


@dataclass(frozen=True, slots=True)
class ListQuery:
    """The filter and the page of a list of transactions."""

    state: TransactionState | None
    group: str | None
    older_than_s: int
    limit: int
    cursor: str | None


def list_query(
    state: Annotated[
        TransactionState | None, Query(description="Default: pending and set-aside.")
    ] = None,
    group: Annotated[
        str | None, Query(max_length=GROUP_LENGTH_MAX, description="Producer group.")
    ] = None,
    older_than: Annotated[
        int, Query(alias="olderThan", ge=0, le=2**31, description="Minimum age in seconds.")
    ] = 0,
    limit: Annotated[int, Query(ge=1, le=LIST_MAX)] = 100,
    cursor: Annotated[
        str | None,
        Query(max_length=CURSOR_LENGTH_MAX, description="`next` of the previous reply."),
    ] = None,
) -> ListQuery:
    """Parse the query of a list; a FastAPI dependency."""
    return ListQuery(state, group, older_than, limit, cursor)


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
