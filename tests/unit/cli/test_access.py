"""Token files and CA bundles that a command cannot use, and unknown environment variables."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mqstore.cli.main import app

COMMANDS = (["lag"], ["events"], ["message", "trace", "KEY", "--topic", "t"])


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize(
    ("option", "content", "reason"),
    [
        ("--ca", None, "cannot be used (No such file or directory)"),
        ("--ca", b"no certificate", "cannot be used ("),
        ("--token-file", None, "cannot be read (No such file or directory)"),
        ("--token-file", b"\xff", "cannot be read (it is no text)"),
        ("--token-file", b" \n", "holds no token"),
    ],
)
def test_file_that_cannot_be_used_is_named_with_its_option(
    tmp_path: Path, command: list[str], option: str, content: bytes | None, reason: str
) -> None:
    path = tmp_path / "given"
    if content is not None:
        path.write_bytes(content)
    result = CliRunner().invoke(app, [*command, option, str(path)])
    assert result.exit_code == 2
    assert result.stderr.startswith(f"mqstore: {option} {path} {reason}")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("url", ["query", "ftp://host", "http://", "http://host:99999", "//host"])
def test_what_is_no_address_is_refused_as_such(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for command in (["lag"], ["context", "add", "x"]):
        result = CliRunner().invoke(app, [*command, "--query-url", url])
        said = f"mqstore: {url!r} is no address of a service; write it as http://HOST:PORT\n"
        assert (result.exit_code, result.stderr) == (2, said)


def test_a_token_that_no_header_can_have_is_refused_and_not_shown() -> None:
    result = CliRunner().invoke(app, ["lag", "--token", "secret\nsecret"])
    assert result.exit_code == 2
    assert "the token has characters that no token has" in result.stderr
    assert "secret" not in result.stderr


def test_an_error_has_no_characters_that_control_the_terminal() -> None:
    result = CliRunner().invoke(app, ["lag", "--context", "x\x1b[2Jy"])
    assert result.exit_code == 2
    assert "\x1b" not in result.stderr


def test_a_reply_of_another_program_is_named_with_its_address() -> None:
    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(404)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Other) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{other.server_port}"
        result = CliRunner().invoke(app, ["topic", "ls", "--writer-url", url])
        other.shutdown()
    said = f"mqstore: {url}/v1/topics replied 404 Not Found, no more\n"
    assert (result.exit_code, result.stderr) == (2, said)


@pytest.mark.parametrize("command", [["lag"], ["events"], ["store", "verify", "/none"]])
def test_an_unknown_variable_is_refused_by_every_command(
    command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MQSTORE_QUERY_URI", "http://127.0.0.1:1")
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 2
    assert "unknown variable MQSTORE_QUERY_URI (did you mean MQSTORE_QUERY_URL?)" in result.output


def test_a_time_that_is_none_is_refused_before_a_service_is_called() -> None:
    words = ["consume", "orders", "--from", "x y", "--query-url", "http://127.0.0.1:9"]
    found = CliRunner().invoke(app, words)
    assert (found.exit_code, "'x y' is no time" in found.stderr) == (2, True)
