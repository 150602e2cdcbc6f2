"""Commands are imported when they are invoked, and the table of their names is true."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from docs.generate.commands import all_commands
from mqstore.cli.command_table import COMMANDS
from mqstore.cli.lazy_group import Entry, Group, Leaf
from mqstore.cli.main import app
from mqstore.cli.mqadmin_names import MQADMIN

HEAVY = frozenset({"httpx", "pydantic", "rich", "asyncio", "mqstore.client", "mqstore.storage"})
"""Modules that help, version, contexts and completion of commands do without."""
NOT_FOR_REQUESTS = frozenset(
    {
        *("click", "crc32c", "pygments", "rich", "fastapi", "mqstore.storage"),
        *("asyncio", "mqstore.client.consumers", "mqstore.client.new_message"),
    }
)
"""Modules that a request of a command does without."""
MODELS = 22
"""Maximum number of models that a request defines, of more than 160."""
OWN_MODULES = 19
"""Maximum number of modules of ours that one command imports for its help."""
IMPORTS = """
import sys
from mqstore.cli import main
sys.argv[0] = "mqstore"
try:
    main.main()
finally:
    print(*sys.modules, file=sys.stderr)
"""
BELOW = """
def below(model):
    for each in model.__subclasses__():
        yield each
        yield from below(each)
"""
TOPIC = {"topic": "orders", "queues": 4, "readQueues": 4, "writeQueues": 4, "perm": 6}


def leaves(table: Mapping[str, Entry], *above: str) -> Iterator[tuple[str, Leaf]]:
    for name, entry in table.items():
        if isinstance(entry, Group):
            yield from leaves(entry.commands, *above, name)
        else:
            yield " ".join([*above, name]), entry


def modules_of(words: Sequence[str], home: Path) -> set[str]:
    """The modules that a new process has imported at the end of a command."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS, *words],
        env={"XDG_CONFIG_HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
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


@pytest.fixture
def topics_url() -> Iterator[str]:
    """The address of a service that replies with one topic."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"topics": [TOPIC | {"order": False}]}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_request_imports_what_its_operation_needs(topics_url: str, tmp_path: Path) -> None:
    words = ["topic", "ls", "--writer-url", topics_url]
    imported = modules_of(words, tmp_path)
    assert {"mqstore.client", "mqstore.wire.topics"} <= imported
    assert NOT_FOR_REQUESTS & imported == set()


def test_a_request_defines_few_models(topics_url: str) -> None:
    code = f"""
import sys
from mqstore.client import Client
with Client(sys.argv[1]) as client:
    assert client.topics().topics[0].topic == "orders"
from pydantic import BaseModel
{BELOW}
print(len({{each for each in below(BaseModel) if each.__module__.startswith("mqstore.")}}))
"""
    done = subprocess.run(
        [sys.executable, "-c", code, topics_url], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) <= MODELS


def test_replies_are_built_when_they_are_used() -> None:
    code = f"""
from mqstore.wire.base import Reply
from mqstore.wire.operation import all_operations
requests = {{each.request for each in all_operations()}}
{BELOW}
replies = list(set(below(Reply)) - requests)
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
        same = {"lag": "group lag", "tx show": "tx info", "context show": "context info"}
        shown = same.get(name, name)
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


@pytest.mark.parametrize(
    ("words", "suggested"),
    [
        (("topci", "ls"), "'topic'"),
        (("topic", "crate"), "'create'"),
        (("tx", "resolv"), "'resolve'"),
        (("mesage", "ls"), "'message'"),
    ],
)
def test_a_wrong_name_of_a_command_gets_a_suggestion(
    words: tuple[str, ...], suggested: str
) -> None:
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 2
    assert "Did you mean" in done.stderr
    assert suggested in done.stderr


def test_a_name_that_is_like_no_command_gets_none() -> None:
    assert "Did you mean" not in CliRunner().invoke(app, ("xyzzy",)).stderr


@pytest.mark.parametrize(
    ("words", "former", "present"),
    [
        (("message", "ls", "t"), "--to", "--until"),
        (("message", "find", "t", "k"), "--to", "--until"),
        (("dlq", "ls", "g"), "--since", "--from"),
        (("dlq", "resend", "g"), "--since", "--from"),
        (("dlq", "export", "g", "-"), "--since", "--from"),
        (("dlq", "purge", "g"), "--since", "--from"),
    ],
)
def test_an_earlier_name_of_an_option_is_accepted_and_not_shown(
    words: tuple[str, ...], former: str, present: str
) -> None:
    shown = CliRunner().invoke(app, (*words[:2], "--help")).stdout
    assert present in shown
    assert f"{former} " not in shown
    for given in ((former, "no time"), (f"{former}=no time",)):
        done = CliRunner().invoke(app, (*words, *given))
        assert (done.exit_code, "no time" in done.stderr) == (2, True), done.output
        assert "No such option" not in done.stderr


def test_a_thing_is_shown_by_info_in_each_group() -> None:
    names = [name for name, entry in leaves(COMMANDS) if not entry.hidden]
    assert not [name for name in names if name.endswith(" show")]
    for name in ("tx", "context"):
        shown = CliRunner().invoke(app, (name, "show", "--help"))
        assert (shown.exit_code, f"mqstore {name} info" in shown.stdout) == (0, True)
