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
from mqstore.cli.session import SHARED_OPTIONS

APPS: Final = {"mqstore": app, "kubectl-mqstore": plugin}
PLUGIN: Final = "kubectl mqstore"
"""How users write the command ``kubectl-mqstore``."""


def commands(of: str) -> str:
    """A section for each command of ``mqstore`` or of ``kubectl-mqstore``."""
    found = dict(all_commands(of))
    parts = [_section(name, command) for name, command in found.items()]
    if APPS[of] is plugin:
        group: Any = typer.main.get_command(plugin)
        shared = [each for each in group.params if getattr(each, "help", None)]
    else:
        shared = [each for each in found["mqstore topic ls"].params if each.name in SHARED_OPTIONS]
    shown = [each for each in shared if not each.hidden]
    parts.insert(0, table(("option", "default", "meaning"), map(_option, shown)))
    return "\n\n".join(parts)


def all_commands(of: str, *, hidden: bool = False) -> Iterator[tuple[str, Any]]:
    """Every command of ``mqstore`` or of ``kubectl-mqstore``, with its full name."""
    name = PLUGIN if APPS[of] is plugin else of
    for full_name, command in _below(name, typer.main.get_command(APPS[of])):
        if hidden or not command.hidden:
            yield full_name, command


def _below(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    if not hasattr(command, "list_commands"):
        yield name, command
        return
    for each in command.list_commands(None):
        yield from _below(f"{name} {each}", command.get_command(None, each))


def _section(name: str, command: Any) -> str:
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option"]
    if has_shared := {each.name for each in options} >= SHARED_OPTIONS:
        options = [each for each in options if each.name not in SHARED_OPTIONS]
    usage = " ".join(
        [name, *(["[OPTIONS]"] if options or has_shared else []), *map(_metavar, arguments)]
    )
    parts = [f"### {name}", f"```text\n{usage}\n```", _help(command)]
    if arguments:
        rows = ((code(_metavar(each)), each.help or "") for each in arguments)
        parts.append(table(("argument", "meaning"), rows))
    if options:
        parts.append(table(("option", "default", "meaning"), map(_option, options)))
    if has_shared:
        parts.append("It also has the [options of commands that call services](#mqstore).")
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
