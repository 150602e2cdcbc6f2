"""Groups of commands whose modules are imported when a command is invoked, not before.

Names and short help stand in a table: help and completion import no other command.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from mqstore.cli.exit_codes import EXIT_REFUSED, refuse


@dataclass(frozen=True, slots=True)
class Leaf:
    """A command: its function, as ``module:name`` in ``mqstore.cli``, and its short help."""

    function: str
    help: str
    hidden: bool = False
    former: Mapping[str, str] = field(default_factory=dict)
    """Options by their earlier names, which are still accepted and no longer shown."""


@dataclass(frozen=True, slots=True)
class Group:
    """A group of commands, by name."""

    help: str
    commands: Mapping[str, Leaf | Group]
    hidden: bool = False


Entry = Leaf | Group
_PACKAGE: Final = "mqstore.cli"


class LazyGroup(TyperGroup):
    """A group that makes a command when it is requested."""

    table: Mapping[str, Entry] = {}
    foreign: Mapping[str, str] = {}
    """Commands of another program, with ours; they are hidden, and print ours."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        shown = (name for name, each in self.table.items() if not each.hidden)
        self.commands = dict.fromkeys(shown)  # type: ignore[assignment] # names, for suggestions

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of all commands."""
        return list(self.table)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name, made now; None for an unknown one."""
        entry = self.table.get(cmd_name)
        if entry is None:
            return _pointer(cmd_name, ours) if (ours := self.foreign.get(cmd_name)) else None
        return _group(cmd_name, entry) if isinstance(entry, Group) else _command(cmd_name, entry)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the table of commands to the help, without importing them."""
        rows = [(name, each.help) for name, each in self.table.items() if not each.hidden]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


class RenamingCommand(TyperCommand):
    """A command that accepts earlier names of its options."""

    former: Mapping[str, str] = {}

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse arguments, with the present names of options."""
        end = args.index("--") if "--" in args else len(args)
        return super().parse_args(ctx, [*map(self._renamed, args[:end]), *args[end:]])

    def _renamed(self, argument: str) -> str:
        name, equals, value = argument.partition("=")
        return self.former.get(name, name) + equals + value


def make_app(name: str, help_text: str, table: Mapping[str, Entry], **options: Any) -> typer.Typer:
    """An application of a table's commands."""
    foreign = options.pop("foreign", {})
    group = type("_Group", (LazyGroup,), {"table": table, "foreign": foreign})
    return typer.Typer(
        name=name,
        help=help_text,
        cls=group,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
        **options,
    )


def _group(name: str, entry: Group) -> Any:
    app = make_app(name, entry.help, entry.commands, add_completion=False)
    app.callback()(_nothing)
    return _named(app, name, hidden=entry.hidden)


def _nothing() -> None:
    pass


def _command(name: str, entry: Leaf) -> Any:
    module, _, attribute = entry.function.partition(":")
    function = getattr(importlib.import_module(f"{_PACKAGE}.{module}"), attribute)
    if not entry.former:
        return _made(name, function, hidden=entry.hidden)
    renaming = type("_Renaming", (RenamingCommand,), {"former": entry.former})
    return _made(name, function, hidden=entry.hidden, cls=renaming)


def _made(name: str, function: Callable[..., None], *, hidden: bool, **options: Any) -> Any:
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    app.command(name, **options)(function)
    return _named(app, name, hidden=hidden)


def _named(app: typer.Typer, name: str, *, hidden: bool) -> Any:
    command = typer.main.get_command(app)
    command.name, command.hidden = name, hidden
    return command


def _pointer(name: str, ours: str) -> Any:
    """A hidden command that prints ours, and changes nothing."""

    def print_ours() -> None:
        """Print the command of mqstore that does the same."""
        refuse(f"mqadmin's {name} is here: {ours}")
        raise typer.Exit(EXIT_REFUSED)

    free = {"allow_extra_args": True, "ignore_unknown_options": True}
    return _made(name, print_ours, hidden=True, context_settings=free, add_help_option=False)
