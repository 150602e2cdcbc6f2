"""Token files and CA bundles that a command cannot use, and unknown environment variables."""

from __future__ import annotations

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


@pytest.mark.parametrize("command", [["lag"], ["events"], ["store", "verify", "/none"]])
def test_an_unknown_variable_is_refused_by_every_command(
    command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MQSTORE_QUERY_URI", "http://127.0.0.1:1")
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 2
    assert "unknown variable MQSTORE_QUERY_URI (did you mean MQSTORE_QUERY_URL?)" in result.output
