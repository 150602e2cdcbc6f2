"""What the commands share that ask a running service: where it is, and how they end."""

from __future__ import annotations

import ssl
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer
from pydantic import BaseModel

from mqstore.cli.ending import EXIT_FINE, EXIT_REFUSED, end_of, refuse
from mqstore.client import QUERY_URL, WRITER_URL, Client, ClientError, Unreachable, trusting

EXIT_UNREACHABLE: Final = 3

QueryUrl = Annotated[
    str,
    typer.Option(
        envvar="MQSTORE_QUERY_URL", help="The query service.", metavar="URL", show_default=QUERY_URL
    ),
]
WriterUrl = Annotated[
    str,
    typer.Option(
        envvar="MQSTORE_WRITER_URL", help="store-writer.", metavar="URL", show_default=WRITER_URL
    ),
]
Token = Annotated[
    str | None,
    typer.Option(
        envvar="MQSTORE_TOKEN", help="Bearer token, of the role consume.", metavar="TOKEN"
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(envvar="MQSTORE_TOKEN_FILE", help="A file that holds the token.", metavar="FILE"),
]
Ca = Annotated[
    Path | None,
    typer.Option(
        envvar="MQSTORE_CA", help="Who signed the certificate of an https URL.", metavar="FILE"
    ),
]
Shard = Annotated[int | None, typer.Option(min=0, help="Of several shards the one that is asked.")]
AsJson = Annotated[
    bool | None,
    typer.Option("--json/--table", help="Default: columns on a terminal, else JSON."),
]


@dataclass(frozen=True, slots=True)
class Access:
    """What a service may want to see, and what it is trusted by."""

    token: str | None
    token_file: Path | None
    ca: Path | None
    shard: int | None

    def client(self, **urls: str) -> Client:
        """Raises ValueError for files that cannot be used."""
        query_url, writer_url = urls.get("query_url", QUERY_URL), urls.get("writer_url", WRITER_URL)
        token, tls = self._found_token(), self._tls()
        return Client(writer_url, query_url, token=token, tls=tls, shard=self.shard)

    def _tls(self) -> ssl.SSLContext | None:
        try:
            return None if self.ca is None else trusting(self.ca)
        except OSError as error:
            raise ValueError(f"--ca {error}") from error

    def _found_token(self) -> str | None:
        if self.token is not None or self.token_file is None:
            return self.token
        try:
            found = self.token_file.read_text().split()
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it is no text"
            raise ValueError(
                f"--token-file {self.token_file} cannot be read ({why}); name a file with a token"
            ) from error
        if not found:
            raise ValueError(f"--token-file {self.token_file} holds no token; write one into it")
        return found[0]


def asked(access: Access, ask: Callable[[Client], int], **url: str) -> int:
    """The exit code of ``ask``, or 2 for what the service refuses, 3 where none answers.

    ``url`` is of the one service that is asked: ``query_url=...`` or ``writer_url=...``.
    """
    return end_of(lambda: _asked(access, ask, url), refuse, unread=EXIT_FINE)


def _asked(access: Access, ask: Callable[[Client], int], url: dict[str, str]) -> int:
    try:
        with access.client(**url) as client:
            return ask(client)
    except Unreachable as error:
        refuse(f"{' '.join(url.values())} does not answer ({error})")
        return EXIT_UNREACHABLE
    except ClientError as error:
        refuse(getattr(error, "detail", "") or str(error))
        return EXIT_REFUSED


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
