"""Commands are imported when they are invoked, and the table of their names is true."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from docs.generate.commands import all_commands
from mqstore.cli.command_table import COMMANDS
from mqstore.cli.exit_codes import EXIT_UNREACHABLE
from mqstore.cli.lazy_group import Entry, Group, Leaf
from mqstore.cli.main import app
from mqstore.cli.mqadmin_names import MQADMIN

HEAVY = frozenset({"httpx", "pydantic", "rich", "asyncio", "mqstore.client", "mqstore.storage"})
"""Modules that help, version, contexts and completion of commands do without."""
NOT_FOR_REQUESTS = frozenset({"click", "crc32c", "pygments", "rich", "fastapi", "mqstore.storage"})
"""Modules that a request of a command does without."""
OWN_MODULES = 18
"""Maximum number of modules of ours that one command imports for its help."""
IMPORTS = """
import sys
from mqstore.cli.main import app
try:
    app(sys.argv[1:], prog_name="mqstore")
finally:
    print(*sys.modules, file=sys.stderr)
"""


def leaves(table: Mapping[str, Entry], *above: str) -> Iterator[tuple[str, Leaf]]:
    for name, entry in table.items():
        if isinstance(entry, Group):
            yield from leaves(entry.commands, *above, name)
        else:
            yield " ".join([*above, name]), entry


def modules_of(words: Sequence[str], home: Path, code: int = 0) -> set[str]:
    """The modules that a new process has imported at the end of a command."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS, *words],
        env={"XDG_CONFIG_HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return set(done.stderr.split())


def made() -> dict[str, Any]:
    return {
        name.removeprefix("mqstore "): command
        for name, command in all_commands("mqstore", hidden=True)
    }


@pytest.mark.parametrize(
    "words",
    [
        ["--version"],
        ["--help"],
        ["topic", "--help"],
        ["topic", "ls", "--help"],
        ["produce", "--help"],
        ["consume", "--help"],
        ["group", "reset", "--help"],
        ["context", "ls"],
        ["store", "verify", "--help"],
    ],
    ids=" ".join,
)
def test_a_start_without_a_service_imports_few_modules(words: list[str], tmp_path: Path) -> None:
    imported = modules_of(words, tmp_path)
    assert not HEAVY & imported
    assert sum(each.startswith("mqstore.") for each in imported) <= OWN_MODULES, imported


def test_a_request_imports_no_module_of_a_server_or_a_terminal(tmp_path: Path) -> None:
    words = ["topic", "ls", "--writer-url", "http://127.0.0.1:9"]
    imported = modules_of(words, tmp_path, code=EXIT_UNREACHABLE)
    assert "mqstore.client" in imported
    assert not NOT_FOR_REQUESTS & imported


def test_the_replies_of_the_client_are_built_when_they_are_used() -> None:
    code = """
import mqstore.client
from mqstore.wire.base import Reply
def below(model):
    for each in model.__subclasses__():
        yield each
        yield from below(each)
replies = list(below(Reply))
print(len(replies) > 50, [each for each in replies if each.__pydantic_complete__])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True []\n"


def test_each_command_of_the_table_has_its_function_and_says_the_same() -> None:
    commands = made()
    for name, leaf in leaves(COMMANDS):
        command = commands[name]
        assert command.name == name.split()[-1]
        assert leaf.help.endswith("."), name
        assert len(leaf.help) <= 64, name


def test_each_command_has_examples_of_itself() -> None:
    for name, command in made().items():
        _, _, examples = command.help.partition("Examples:")
        shown = "group lag" if name == "lag" else name
        assert f"mqstore {shown}" in examples, name


def test_names_of_options_have_no_capitals() -> None:
    for name, command in made().items():
        for parameter in command.params:
            long = [each for each in parameter.opts if each.startswith("--")]
            assert [each for each in long if each != each.lower()] == [], name


def test_each_command_of_the_plugin_has_examples_of_itself() -> None:
    for name, command in all_commands("kubectl-mqstore"):
        _, _, examples = command.help.partition("Examples:")
        assert name in examples, name


def test_each_command_that_changes_something_has_a_dry_run() -> None:
    changing = {
        *("topic create", "topic update", "topic delete", "produce", "message resend"),
        *("group update", "group reset", "group seek", "group clone", "group delete"),
        *("dlq resend", "dlq export", "dlq purge", "tx resolve", "retention run", "index rebuild"),
        *("scrub start", "bench produce", "bench consume", "bench tx", "debug bundle", "promote"),
        *("store repair", "store rebuild", "store import", "store adopt", "store accept-loss"),
        *("backup create", "backup prune", "restore"),
    }
    commands = made()
    for name in changing:
        assert "dry_run" in {each.name for each in commands[name].params}, name
    plugin = dict(all_commands("kubectl-mqstore"))
    changing = {
        *("pause", "resume", "switchover", "report", "rebuild", "scale", "grow"),
        *("backup", "restore", "replicas"),
    }
    for name in changing:
        assert "dry_run" in {each.name for each in plugin[f"kubectl mqstore {name}"].params}, name


def test_the_help_of_a_group_names_its_commands() -> None:
    shown = CliRunner().invoke(app, ["topic", "--help"]).output
    assert [line.split()[0] for line in shown.split("Commands:")[1].splitlines() if line] == [
        "ls",
        "info",
        "create",
        "update",
        "delete",
    ]
    assert "lag " not in CliRunner().invoke(app, ["--help"]).output


def test_an_unknown_command_is_a_usage_error() -> None:
    found = CliRunner().invoke(app, ["topik"])
    assert (found.exit_code, "No such command 'topik'" in found.output) == (2, True)


@pytest.mark.parametrize("name", MQADMIN)
def test_a_name_of_mqadmin_prints_a_command_that_there_is(name: str) -> None:
    found = CliRunner().invoke(app, [name, "-n", "localhost:9876", "-t", "orders"])
    assert found.exit_code == 2
    assert found.stderr == f"mqstore: mqadmin's {name} is here: {MQADMIN[name]}\n"
    words = MQADMIN[name].replace(",", " ").replace(";", " ").split()[1:]
    names = set(made())
    assert words[0] in names or " ".join(words[:2]) in names


def test_the_root_is_a_group_for_typer() -> None:
    root = typer.main.get_command(app)
    assert {each.name for each in root.params} >= {"version"}
