"""Forked processes behave as processes that an interpreter of their own runs."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.forked_processes import run_mqstore, start


def test_a_command_has_its_own_arguments_environment_output_and_exit_code(tmp_path: Path) -> None:
    given = {**os.environ, "MQSTORE_NO_SUCH_SETTING": "1"}
    refused = run_mqstore("lag", "--query-url", "http://127.0.0.1:9", environment=given)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "MQSTORE_NO_SUCH_SETTING" in refused.stderr
    assert "MQSTORE_NO_SUCH_SETTING" not in os.environ
    printed = run_mqstore("--help")
    assert (printed.returncode, printed.stderr) == (0, "")
    assert "Usage" in printed.stdout


def test_a_process_runs_until_a_signal_ends_it() -> None:
    process = start("http.server", "--bind", "127.0.0.1", "0")
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=0)
    assert Path(f"/proc/{process.pid}").exists()
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    process.kill()  # does nothing to an ended process
