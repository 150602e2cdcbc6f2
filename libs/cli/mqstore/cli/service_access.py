"""Options, client and exit codes that the commands which call a running service share."""

from __future__ import annotations

import ssl
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer
from pydantic import BaseModel

from mqstore.cli.exit_codes import EXIT_OK, EXIT_REFUSED, refuse, run_command
from mqstore.client import QUERY_URL, WRITER_URL, Client, ClientError, Unreachable, make_tls_context
from mqstore.client.environment import (
    CA_VARIABLE,
    QUERY_URL_VARIABLE,
    TOKEN_FILE_VARIABLE,
    TOKEN_VARIABLE,
    WRITER_URL_VARIABLE,
    read_token,
)

EXIT_UNREACHABLE: Final = 3

TIME_HELP: Final = "in RFC 3339, as 2026-11-26T12:00:00Z, or in milliseconds since the epoch"

QueryUrl = Annotated[
    str,
    typer.Option(
        envvar=QUERY_URL_VARIABLE,
        help="Address of the query service.",
        metavar="URL",
        show_default=QUERY_URL,
    ),
]
WriterUrl = Annotated[
    str,
    typer.Option(
        envvar=WRITER_URL_VARIABLE,
        help="Address of store-writer.",
        metavar="URL",
        show_default=WRITER_URL,
    ),
]
Token = Annotated[
    str | None,
    typer.Option(
        envvar=TOKEN_VARIABLE, help="Bearer token with the role consume.", metavar="TOKEN"
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(envvar=TOKEN_FILE_VARIABLE, help="File that holds the token.", metavar="FILE"),
]
Ca = Annotated[
    Path | None,
    typer.Option(envvar=CA_VARIABLE, help="CA bundle for https addresses (PEM).", metavar="FILE"),
]
Shard = Annotated[
    int | None, typer.Option(min=0, help="Number of the shard that gets the request.")
]
AsJson = Annotated[
    bool | None,
    typer.Option("--json/--table", help="Default: columns on a terminal, else JSON."),
]


@dataclass(frozen=True, slots=True)
class Access:
    """Credentials and shard of a command's requests.

    A token has precedence over a token file. ``ca`` is the CA bundle for https addresses (PEM).
    """

    token: str | None
    token_file: Path | None
    ca: Path | None
    shard: int | None

    def client(self, **urls: str) -> Client:
        """A client of the services at ``query_url`` and ``writer_url``, for the chosen shard.

        Raises ValueError if the token file or the CA bundle is unusable.
        """
        query_url, writer_url = urls.get("query_url", QUERY_URL), urls.get("writer_url", WRITER_URL)
        token, tls = self._found_token(), self._tls()
        return Client(writer_url, query_url, token=token, tls=tls, shard=self.shard)

    def _tls(self) -> ssl.SSLContext | None:
        try:
            return None if self.ca is None else make_tls_context(self.ca)
        except OSError as error:
            raise ValueError(f"--ca {error}") from error

    def _found_token(self) -> str | None:
        if self.token is not None or self.token_file is None:
            return self.token
        try:
            return read_token(self.token_file)
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it is no text"
            raise ValueError(
                f"--token-file {self.token_file} cannot be read ({why}); name a file with a token"
            ) from error
        except ValueError as error:
            raise ValueError(f"--token-file {error}") from error


def run_with_client(access: Access, action: Callable[[Client], int], **url: str) -> int:
    """Run ``action`` with a client of one service and return the command's exit code.

    The code is that of ``action``; 2 if the service rejects a request, 3 if it does not answer.
    ``url`` names the service: ``query_url=...`` or ``writer_url=...``.
    """
    return run_command(lambda: _run(access, action, url), refuse, unread=EXIT_OK)


def _run(access: Access, action: Callable[[Client], int], url: dict[str, str]) -> int:
    try:
        with access.client(**url) as client:
            return action(client)
    except Unreachable as error:
        refuse(f"{' '.join(url.values())} does not answer ({error})")
        return EXIT_UNREACHABLE
    except ClientError as error:
        refuse(getattr(error, "detail", "") or str(error))
        return EXIT_REFUSED


def in_json(as_json: bool | None) -> bool:
    """Whether a command prints JSON: as its option says, by default if stdout is no terminal."""
    return not sys.stdout.isatty() if as_json is None else as_json


def print_json(answer: BaseModel) -> None:
    """Print a reply of a service as one line of JSON, with the field names of the API."""
    print(answer.model_dump_json(by_alias=True))


def duration(milliseconds: int | None) -> str:
    """A duration in its two largest units, as ``2h 5m``; ``?`` if it is unknown (None)."""
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
