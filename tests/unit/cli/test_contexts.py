"""Contexts: their file, and the precedence of addresses and credentials."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from mqstore.cli.access import Access, Given, find
from mqstore.cli.contexts import Context, Contexts, contexts_path, load, save
from mqstore.cli.main import app

TOKEN = "a-secret-of-the-cluster"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path / "mqstore" / "contexts.json"


def run(*words: str) -> Result:
    return CliRunner().invoke(app, ["context", *words])


def test_the_first_context_comes_into_use_and_others_on_request(home: Path) -> None:
    assert run("add", "one", "--writer-url", "http://one:8081").exit_code == 0
    assert run("add", "two", "--token-env", "TWO_TOKEN").exit_code == 0
    shown = json.loads(run("show", "-o", "json").stdout)
    assert (shown["name"], shown["writerUrl"]) == ("one", "http://one:8081")
    assert run("use", "two").exit_code == 0
    rows = [json.loads(line) for line in run("ls", "-o", "json").stdout.splitlines()]
    assert [(each["name"], each["current"]) for each in rows] == [("one", False), ("two", True)]
    assert run("rm", "two").exit_code == 0
    none = run("show")
    assert (none.exit_code, "no context is in use" in none.stderr) == (2, True)


def test_a_context_is_replaced_on_request_only(home: Path) -> None:
    run("add", "one", "--writer-url", "http://one:8081")
    again = run("add", "one", "--writer-url", "http://other:8081")
    assert (again.exit_code, "--replace replaces it" in again.stderr) == (2, True)
    assert load(home).get("one").writer_url == "http://one:8081"
    assert run("add", "one", "--writer-url", "http://other:8081", "--replace").exit_code == 0
    assert load(home) == Contexts("one", {"one": Context("http://other:8081")})


def test_the_file_is_private_and_has_no_token(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    run("add", "one", "--token-file", str(file))
    assert stat.S_IMODE(home.stat().st_mode) == 0o600
    assert [each.name for each in home.parent.iterdir()] == ["contexts.json"]
    assert TOKEN not in home.read_text() + run("show", "one").stdout
    access = Access(find(Given(), "one", {"XDG_CONFIG_HOME": str(tmp_path)}))
    with access.client() as client:
        assert client._headers == {"authorization": f"Bearer {TOKEN}"}


@pytest.mark.parametrize("name", ["", "a b", "-x", "é", "a" * 64])
def test_a_name_that_is_none_is_refused(home: Path, name: str) -> None:
    found = run("add", "--", name)
    assert (found.exit_code, "is no name of a context" in found.stderr) == (2, True)
    assert not home.exists()


def test_a_name_that_is_none_of_a_variable_is_refused(home: Path) -> None:
    found = run("add", "one", "--token-env", "A B")
    assert (found.exit_code, "'A B' is no name of a variable" in found.stderr) == (2, True)
    assert not home.exists()


def test_an_unknown_context_is_refused_with_those_that_there_are(home: Path) -> None:
    run("add", "one")
    for words in (("use", "two"), ("rm", "two"), ("show", "two")):
        found = run(*words)
        assert found.exit_code == 2
        assert "no context 'two'; there are: one" in found.stderr
    found = CliRunner().invoke(app, ["topic", "ls", "--context", "two"])
    assert (found.exit_code, found.stderr.count("\n")) == (2, 1)


@pytest.mark.parametrize("text", ["no json", "[]", "{}", '{"contexts": 1, "current": null}'])
def test_a_file_that_is_unusable_is_named(home: Path, text: str) -> None:
    home.parent.mkdir()
    home.write_text(text)
    found = run("ls")
    assert (found.exit_code, str(home) in found.stderr) == (2, True)


def test_contexts_come_back_as_they_were_saved(tmp_path: Path) -> None:
    contexts = Contexts("b", {"a": Context(), "b": Context("http://w", ca="/ca", token_env="T")})
    save(tmp_path / "contexts.json", contexts)
    assert load(tmp_path / "contexts.json") == contexts
    assert load(tmp_path / "none.json") == Contexts()


def test_the_file_is_where_xdg_says() -> None:
    assert contexts_path({"XDG_CONFIG_HOME": "/x"}) == Path("/x/mqstore/contexts.json")
    assert contexts_path({}) == Path.home() / ".config/mqstore/contexts.json"


def test_an_option_precedes_a_named_context_then_variables_then_the_context_in_use(
    tmp_path: Path,
) -> None:
    environment = {"XDG_CONFIG_HOME": str(tmp_path)}
    contexts = Contexts(
        "used", {"used": Context("u", "u", "u", ca="u"), "named": Context("n", token_env="N")}
    )
    save(contexts_path(environment), contexts)
    variables = environment | {"MQSTORE_WRITER_URL": "v", "MQSTORE_QUERY_URL": "v"}
    found = find(Given(), None, variables)
    assert (found.writer_url, found.query_url, found.coordinator_url) == ("v", "v", "u")
    named = find(Given(query_url="o"), "named", variables)
    assert (named.writer_url, named.query_url, named.coordinator_url) == ("n", "o", None)
    by_variable = find(Given(), None, environment | {"MQSTORE_CONTEXT": "named"})
    assert (by_variable.writer_url, by_variable.ca) == ("n", None)


def test_credentials_of_two_sources_are_not_mixed(tmp_path: Path) -> None:
    environment = {"XDG_CONFIG_HOME": str(tmp_path)}
    save(contexts_path(environment), Contexts("a", {"a": Context(token_env="A")}))
    assert find(Given(), None, environment).token_env == "A"
    found = find(Given(), None, environment | {"MQSTORE_TOKEN_FILE": "/f"})
    assert (found.token, found.token_file, found.token_env) == (None, "/f", None)
    given = find(Given(token="t"), "a", environment)
    assert (given.token, given.token_env) == ("t", None)


def test_a_variable_of_a_context_without_a_token_is_named(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NOT_SET", raising=False)
    run("add", "one", "--token-env", "NOT_SET")
    found = CliRunner().invoke(app, ["topic", "ls"])
    assert (found.exit_code, "NOT_SET of the context is not set" in found.stderr) == (2, True)
