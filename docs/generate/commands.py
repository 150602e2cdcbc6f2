"""Commands: arguments, options and exit codes of each, from the definitions of the command line."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any, Final

import typer

from docs.generate.markdown import code, table
from mqstore.cli.kube.main import app as plugin
from mqstore.cli.main import app

APPS: Final = {"mqstore": app, "kubectl-mqstore": plugin}
PLUGIN: Final = "kubectl mqstore"
"""How users write the command ``kubectl-mqstore``."""


def commands(of: str) -> str:
    """A section for each command of ``mqstore`` or of ``kubectl-mqstore``."""
    group = typer.main.get_command(APPS[of])
    shared = [each for each in group.params if getattr(each, "help", None)]
    parts = [_section(name, command) for name, command in all_commands(of)]
    if shared:
        parts.insert(0, table(("option", "default", "meaning"), map(_option, shared)))
    return "\n\n".join(parts)


def all_commands(of: str) -> Iterator[tuple[str, Any]]:
    """Every command of ``mqstore`` or of ``kubectl-mqstore``, with its full name."""
    name = PLUGIN if APPS[of] is plugin else of
    yield from _below(name, typer.main.get_command(APPS[of]))


def _below(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    below = getattr(command, "commands", None)
    if below is None:
        yield name, command
        return
    for each in below.values():
        yield from _below(f"{name} {each.name}", each)


def _section(name: str, command: Any) -> str:
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option"]
    usage = " ".join([name, *(["[OPTIONS]"] if options else []), *map(_metavar, arguments)])
    parts = [f"### {name}", f"```text\n{usage}\n```", _help(command)]
    if arguments:
        rows = ((code(_metavar(each)), each.help or "") for each in arguments)
        parts.append(table(("argument", "meaning"), rows))
    if options:
        parts.append(table(("option", "default", "meaning"), map(_option, options)))
    return "\n\n".join(parts)


def _metavar(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name.upper()).strip("{}")


def _option(option: Any) -> tuple[str, str, str]:
    spellings = ", ".join(code(each) for each in [*option.opts, *option.secondary_opts])
    is_given = option.default not in (None, False, "", ()) and not callable(option.default)
    variable = f" Variable: {code(option.envvar)}." if option.envvar else ""
    return spellings, code(option.default) if is_given else "", (option.help or "") + variable


def _help(command: Any) -> str:
    text = inspect.cleandoc(command.help or "").replace("\b", "").replace("\f", "")
    return re.sub(r"^(Exit codes?)", r"**\1**", text, flags=re.MULTILINE)
