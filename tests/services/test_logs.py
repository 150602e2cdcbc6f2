"""The log: one line an answer where a setting says so, a defect's stack, and never a secret."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import httpx

from tests.services.service_processes import Process, writer

TOKEN = "a-token-that-no-log-may-have"


def _lines(process: Process) -> list[dict[str, Any]]:
    """Log lines of the service, from its start to its end."""
    process.process.send_signal(signal.SIGTERM)
    _, errors = process.ended()
    assert TOKEN not in errors
    return [json.loads(line) for line in errors.splitlines()]


def test_access_log_names_requests_and_no_secrets(tmp_path: Path) -> None:
    settings = {"token_admin": TOKEN, "access_log": True, "log_level": "debug"}
    with writer(tmp_path / "store", **settings) as process:
        headers = {"authorization": f"Bearer {TOKEN}", "x-request-id": "request-1"}
        httpx.get(f"{process.url}/v1/topics/a?access_token={TOKEN}", headers=headers)
        httpx.get(f"{process.url}/v1/topics?token={TOKEN}")
        lines = _lines(process)
    (answered,) = [line for line in lines if line.get("request_id") == "request-1"]
    assert answered["event"] == "answered"
    assert answered["route"] == "/v1/topics/{topic}"
    assert (answered["method"], answered["status"]) == ("GET", 400)
    assert answered["problem"] == "bad-parameter"
    assert answered["client"] == "127.0.0.1"
    assert answered["seconds"] > 0


def test_without_the_setting_no_answer_is_logged(tmp_path: Path) -> None:
    with writer(tmp_path / "store", token_admin=TOKEN) as process:
        httpx.get(f"{process.url}/v1/topics")
        assert "answered" not in [line["event"] for line in _lines(process)]
