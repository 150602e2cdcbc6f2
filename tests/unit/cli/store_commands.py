"""Runs `mqstore store COMMAND ROOT` in this process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from mqstore.cli.main import app


def invoke(command: str, root: Path, *options: str) -> Result:
    """Run a command over the store at ``root``."""
    return CliRunner().invoke(app, ["store", command, str(root), *options])


def invoke_for_json(command: str, root: Path, *options: str) -> Result:
    """Run a command, with output in JSON unless the options choose another form."""
    form = () if "-o" in options else ("-o", "json")
    return invoke(command, root, *form, *options)


def lines_of(result: Result) -> list[dict[str, Any]]:
    """The objects of an output with one on each line."""
    return [json.loads(line) for line in result.stdout.splitlines()]
