"""What the commands share that ask a running service: where it is, and how they end."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated, Final

import typer
from pydantic import BaseModel

from mqstore.cli.looking import EXIT_REFUSED
from mqstore.client import QUERY_URL, Client, ProblemError, Unreachable

EXIT_UNREACHABLE: Final = 3

QueryUrl = Annotated[
    str,
    typer.Option(
        envvar="MQSTORE_QUERY_URL", help="The query service.", metavar="URL", show_default=QUERY_URL
    ),
]
Token = Annotated[
    str | None,
    typer.Option(
        envvar="MQSTORE_TOKEN", help="Bearer token, of the role consume.", metavar="TOKEN"
    ),
]
AsJson = Annotated[
    bool | None,
    typer.Option("--json/--table", help="Default: columns on a terminal, else JSON."),
]


def asked(query_url: str, token: str | None, ask: Callable[[Client], int]) -> int:
    """The exit code of ``ask``, or 2 for what the service refuses, 3 where none answers."""
    try:
        with Client(query_url=query_url, token=token) as client:
            return ask(client)
    except ProblemError as error:
        print(f"mqstore: {error.detail or error}", file=sys.stderr)
        return EXIT_REFUSED
    except Unreachable as error:
        print(f"mqstore: {query_url} does not answer ({error})", file=sys.stderr)
        return EXIT_UNREACHABLE


def in_json(as_json: bool | None) -> bool:
    return not sys.stdout.isatty() if as_json is None else as_json


def print_json(answer: BaseModel) -> None:
    """One line, with the names that the service gave."""
    print(answer.model_dump_json(by_alias=True))


def duration(milliseconds: int | None) -> str:
    """``2h 5m``: the two largest units; ``?`` when nobody knows."""
    if milliseconds is None:
        return "?"
    left = milliseconds // 1000
    if left == 0:
        return f"{milliseconds}ms"
    parts = []
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2])
