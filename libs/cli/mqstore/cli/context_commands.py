"""``mqstore context …``: names for the addresses and credentials of clusters."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final

import typer

from mqstore.cli.access import check_address
from mqstore.cli.completion import complete_context
from mqstore.cli.contexts import Context, Contexts, contexts_path, load, save, shown
from mqstore.cli.exit_codes import EXIT_OK, refuse, run_command
from mqstore.cli.output import Column, Format, Output, yes_no

Name = Annotated[str, typer.Argument(help="Name of the context.", autocompletion=complete_context)]
Form = Annotated[Format, typer.Option("--output", "-o", help="Form of the output.")]


def _column(heading: str, name: str, show: Callable[[object], str] = str) -> Column:
    return Column(heading, lambda item: item[name], show)


_COLUMNS: Final = (
    _column("name", "name"),
    _column("current", "current", yes_no),
    _column("writer", "writerUrl"),
    _column("query", "queryUrl"),
    _column("coordinator", "coordinatorUrl"),
    _column("token-file", "tokenFile"),
    _column("token-env", "tokenEnv"),
    _column("ca", "ca"),
)

VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def add(
    name: Name,
    writer_url: Annotated[
        str | None, typer.Option(metavar="URL", help="Address of store-writer.")
    ] = None,
    query_url: Annotated[
        str | None, typer.Option(metavar="URL", help="Address of the query service.")
    ] = None,
    coordinator_url: Annotated[
        str | None, typer.Option(metavar="URL", help="Address of the transaction coordinator.")
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File that holds the token.")
    ] = None,
    token_env: Annotated[
        str | None, typer.Option(metavar="VARIABLE", help="Variable that holds the token.")
    ] = None,
    ca: Annotated[
        Path | None, typer.Option(metavar="FILE", help="CA bundle for https addresses (PEM).")
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the context of that name.")
    ] = False,
) -> None:
    """Add a context; the first comes into use.

    The token itself is not stored: it stays in its file or variable.

    Examples:

    \b
        mqstore context add prod --writer-url https://mq.example.com:8081 \\
            --query-url https://mq.example.com:8082 --token-file ~/.mq-token
        mqstore context add local
    """
    if token_env is not None and not VARIABLE.fullmatch(token_env):
        raise typer.BadParameter(f"--token-env {token_env!r} is no name of a variable")
    if token_file is not None and token_env is not None:
        raise typer.BadParameter("give --token-file or --token-env, not both")
    paths = {"token_file": token_file, "ca": ca}
    context = Context(
        writer_url,
        query_url,
        coordinator_url,
        token_env=token_env,
        **{name: str(path.absolute()) for name, path in paths.items() if path is not None},
    )

    def change(found: Contexts) -> Contexts:
        for url in filter(None, (writer_url, query_url, coordinator_url)):
            check_address(url)
        if name in found.by_name and not replace:
            raise ValueError(f"there is a context {name} already; --replace replaces it")
        return found.with_context(name, context)

    _change(change, f"context {name} is saved")


def use(name: Name) -> None:
    """Use a context for the commands that name none.

    Examples:

    \b
        mqstore context use prod
    """
    _change(lambda found: found.using(name), f"commands use the context {name}")


def rm(name: Name) -> None:
    """Remove a context. Its token file stays.

    Examples:

    \b
        mqstore context rm old
    """
    _change(lambda found: found.without(name), f"context {name} is removed")


def ls(output: Form = Format.TABLE) -> None:
    """List the contexts.

    Examples:

    \b
        mqstore context ls
        mqstore context ls -o json
    """

    def print_all() -> int:
        """Print the contexts; returns the exit code."""
        found = load(contexts_path())
        rows = (
            shown(name, each, is_current=name == found.current)
            for name, each in found.by_name.items()
        )
        Output(output).items(rows, _COLUMNS)
        return EXIT_OK

    _exit(print_all)


def info(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Name of the context. [default: the current one]", autocompletion=complete_context
        ),
    ] = None,
    output: Form = Format.TABLE,
) -> None:
    """Show a context, by default the one in use.

    Examples:

    \b
        mqstore context info
        mqstore context info prod -o yaml
    """

    def print_one() -> int:
        """Print the context; returns the exit code."""
        found = load(contexts_path())
        chosen = name or found.current
        if chosen is None:
            raise ValueError("no context is in use; `mqstore context use NAME` chooses one")
        document = shown(chosen, found.get(chosen), is_current=chosen == found.current)
        Output(output).item(document, _COLUMNS)
        return EXIT_OK

    _exit(print_one)


def _change(change: Callable[[Contexts], Contexts], text: str) -> None:
    def run() -> int:
        path = contexts_path()
        save(path, change(load(path)))
        print(text)
        return EXIT_OK

    _exit(run)


def _exit(run: Callable[[], int]) -> None:
    raise typer.Exit(run_command(run, refuse, unread=EXIT_OK))
