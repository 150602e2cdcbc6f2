"""Commands that call running services: their shared options, client, output and exit codes.

``service_command`` turns a function of a ``Session`` into a command. Modules of commands import the
client only inside functions: help and completion do without it.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, Final, ParamSpec, cast

import typer

from mqstore.cli.access import Access, Given, find
from mqstore.cli.completion import complete_context, complete_shard
from mqstore.cli.exit_codes import (
    EXIT_FINDINGS,
    EXIT_OK,
    EXIT_REFUSED,
    EXIT_UNREACHABLE,
    refuse,
    run_command,
)
from mqstore.cli.output import Format, Output
from mqstore.wire.environment import (
    CA_VARIABLE,
    CONTEXT_VARIABLE,
    COORDINATOR_URL,
    COORDINATOR_URL_VARIABLE,
    OUTPUT_VARIABLE,
    QUERY_URL,
    QUERY_URL_VARIABLE,
    TOKEN_FILE_VARIABLE,
    TOKEN_VARIABLE,
    WRITER_URL,
    WRITER_URL_VARIABLE,
)

if TYPE_CHECKING:
    from mqstore.client import Client, Shards

P = ParamSpec("P")

DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print what would be done, and change nothing.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not wait for a confirmation.")]

ContextName = Annotated[
    str | None,
    typer.Option(
        "--context",
        help=f"Context that names the services (`mqstore context ls`). Variable:"
        f" {CONTEXT_VARIABLE}.",
        metavar="NAME",
        autocompletion=complete_context,
    ),
]
WriterUrl = Annotated[
    str | None,
    typer.Option(
        help=f"Address of store-writer. Variable: {WRITER_URL_VARIABLE}. [default: {WRITER_URL}]",
        metavar="URL",
    ),
]
QueryUrl = Annotated[
    str | None,
    typer.Option(
        help=f"Address of the query service. Variable: {QUERY_URL_VARIABLE}."
        f" [default: {QUERY_URL}]",
        metavar="URL",
    ),
]
CoordinatorUrl = Annotated[
    str | None,
    typer.Option(
        help="Address of the transaction coordinator. Variable:"
        f" {COORDINATOR_URL_VARIABLE}. [default: {COORDINATOR_URL}]",
        metavar="URL",
    ),
]
Token = Annotated[
    str | None,
    typer.Option("--token", help=f"Bearer token. Variable: {TOKEN_VARIABLE}.", metavar="TOKEN"),
]
TokenFile = Annotated[
    str | None,
    typer.Option(
        help=f"File that holds the token. Variable: {TOKEN_FILE_VARIABLE}.", metavar="FILE"
    ),
]
Ca = Annotated[
    str | None,
    typer.Option(
        help=f"CA bundle for https addresses (PEM). Variable: {CA_VARIABLE}.", metavar="FILE"
    ),
]
Shard = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="Number of the shard that gets the request.",
        autocompletion=complete_shard,
    ),
]
Form = Annotated[
    Format | None,
    typer.Option(
        "--output",
        "-o",
        help=f"Form of the output; json has one object a line. Variable: {OUTPUT_VARIABLE}."
        " [default: table]",
    ),
]


@dataclass(frozen=True)
class Session:
    """One run of a command: the client of its services, and its output."""

    access: Access
    out: Output
    opened: list[Client] = field(default_factory=list)

    @cached_property
    def client(self) -> Client:
        """The client, made at the first use."""
        client = self.access.client()
        self.opened.append(client)
        return client

    def close(self) -> None:
        """Close the client, if there is one."""
        for client in self.opened:
            client.close()

    def confirm(self, question: str, *, yes: bool) -> None:
        """See ``confirm``."""
        confirm(question, yes=yes)

    def warn_of_missing(self, shards: Shards | None) -> int:
        """Print the shards that did not reply to stderr; return 1 with one, else 0."""
        if shards is None or not shards.missing:
            return EXIT_OK
        for number in shards.missing:
            refuse(f"shard {number} is not included: {shards.why[str(number)]}")
        return EXIT_FINDINGS


def confirm(question: str, *, yes: bool) -> None:
    """Wait for the user's consent to a destruction, unless ``yes``.

    Raises ValueError without it, and without a terminal.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise ValueError(f"{question} Repeat the command with --yes, or see --dry-run")
    if not typer.confirm(question, err=True):
        raise ValueError("nothing was changed")


def _shared(
    context: ContextName = None,
    writer_url: WriterUrl = None,
    query_url: QueryUrl = None,
    coordinator_url: CoordinatorUrl = None,
    token: Token = None,
    token_file: TokenFile = None,
    ca: Ca = None,
    shard: Shard = None,
    output: Form = None,
) -> Session:
    """The session of the options that all commands of services share."""
    given = Given(writer_url, query_url, coordinator_url, token, token_file, None, ca)
    return Session(Access(find(given, context), shard), Output(choose_form(output)))


_SHARED: Final = tuple(
    each.replace(kind=inspect.Parameter.KEYWORD_ONLY)
    for each in inspect.signature(_shared, eval_str=True).parameters.values()
)
SHARED_OPTIONS: Final = frozenset(each.name for each in _SHARED)
"""Names of the parameters that each of these commands has."""


def service_command(
    function: Callable[Concatenate[Session, P], int | None],
) -> Callable[..., None]:
    """Make a command of a function: its own parameters, and the shared options.

    The exit code is what the function returns (None: 0); 2 if a service refuses a request or an
    argument is wrong; 3 if a service does not reply.
    """
    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]

    def command(**values: Any) -> None:
        options = {name: values.pop(name) for name in SHARED_OPTIONS}
        action = cast(Callable[..., "int | None"], function)
        raise typer.Exit(_run(lambda session: action(session, **values), options))

    parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own]
    parameters += _SHARED
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    command.__name__, command.__doc__ = function.__name__, function.__doc__
    command.__module__ = function.__module__
    return command


def _run(action: Callable[[Session], int | None], options: dict[str, Any]) -> int:
    def run() -> int:
        session = _shared(**options)
        try:
            return _with_errors(session, action)
        finally:
            session.close()

    return run_command(run, refuse, unread=EXIT_OK)


def _with_errors(session: Session, action: Callable[[Session], int | None]) -> int:
    try:
        return action(session) or EXIT_OK
    except (ValueError, OSError):
        raise
    except Exception as error:
        code = _refusal_code(session, error)
        if code is None:
            raise
        return code


def _refusal_code(session: Session, error: Exception) -> int | None:
    """Print an error of the client, and return its exit code; None for another error."""
    if "mqstore.client" not in sys.modules:
        return None
    from mqstore.client import ClientError, Unreachable

    if isinstance(error, Unreachable):
        refuse(f"{_address(session, str(error))} does not answer ({error})")
        return EXIT_UNREACHABLE
    if isinstance(error, ClientError):
        refuse(getattr(error, "detail", "") or str(error))
        return EXIT_REFUSED
    return None


def _address(session: Session, error: str) -> str:
    """The address of the service that an error names at its beginning."""
    names = ("writer", "query", "coordinator")
    found = dict(zip(names, session.access.urls, strict=True))
    return found.get(error.partition(" ")[0], session.access.urls[0])


def choose_form(output: Format | None) -> Format:
    """The form of output that an option or the environment names. Raises ValueError."""
    if output is not None:
        return output
    named = os.environ.get(OUTPUT_VARIABLE) or Format.TABLE.value
    try:
        return Format(named)
    except ValueError:
        forms = ", ".join(each.value for each in Format)
        raise ValueError(f"{OUTPUT_VARIABLE}={named!r} is no form of output; use {forms}") from None
