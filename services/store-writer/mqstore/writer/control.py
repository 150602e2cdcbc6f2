"""How a route outside of the hot path is added: its role, its answers, its place in the API."""

from __future__ import annotations

from typing import Any

from mqstore.service import problems
from mqstore.service.app import Api
from mqstore.service.auth import Role
from mqstore.service.problems import ProblemType, responses

Answers = dict[int | str, dict[str, Any]]


def answers(example: dict[str, Any], *kinds: ProblemType, status: int = 200) -> Answers:
    """OpenAPI responses: an example of the answer, and the problems instead of it."""
    return {status: {"content": {"application/json": {"example": example}}}, **responses(*kinds)}


def add(
    api: Api,
    method: str,
    path: str,
    endpoint: Any,
    summary: str,
    status: int,
    answered: Answers,
    *,
    tag: str,
    role: Role | None = None,
) -> None:
    """By default whoever may consume may look; only an administrator may change."""
    needed = role or (Role.CONSUME if method == "GET" else Role.ADMIN)
    api.app.add_api_route(
        path,
        endpoint,
        methods=[method],
        summary=summary,
        status_code=status,
        responses={**answered, **responses(*problems.OF_SHARDS, *problems.GUARDED)},
        tags=[tag],
        dependencies=[api.requires(needed)],
    )
