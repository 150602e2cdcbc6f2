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


def test_all_workers_of_a_run_fork_from_one_server() -> None:
    process = start("http.server", "--bind", "127.0.0.1", "0")
    server = parent_of(parent_of(process.pid))
    process.kill()
    process.communicate()
    is_in_worker = "PYTEST_XDIST_WORKER" in os.environ
    assert parent_of(server) == (os.getppid() if is_in_worker else os.getpid())


def parent_of(pid: int) -> int:
    stat = Path(f"/proc/{pid}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[1])
