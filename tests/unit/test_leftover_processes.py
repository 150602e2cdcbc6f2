"""A run of tests that is ended early leaves no process, and interrupts work however it began."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.leftover_processes import MARK
from tests.long_runs import few_first

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60.0
CONFTEST = "from tests import conftest"
# The started process has a session and pipes of its own, as a service may have.
STARTING = f'''
import subprocess, sys, time

REPORT = """
import os, signal, sys, time
ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
with open(sys.argv[1], "w") as report:
    report.write(f"{{os.getpid()}} {{ignored}}")
time.sleep({PATIENCE_S * 2})
"""

def test_starts_a_process():
    path = __file__.replace("test_starting.py", "report")
    subprocess.run([sys.executable, "-c", REPORT, path], start_new_session=True)
'''


@pytest.mark.parametrize("workers", few_first([["-n", "1"], []]), ids=["xdist", "alone"])
@pytest.mark.slow
def test_no_process_outlives_a_run_that_is_terminated_and_interrupts_reach_them(
    tmp_path: Path, workers: list[str]
) -> None:
    report = tmp_path / "report"
    os.mkfifo(report)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_starting.py").write_text(STARTING)
    environment = {name: value for name, value in os.environ.items() if name != MARK}
    command = ["/bin/sh", "-c", 'trap "" INT; exec "$@"', "sh", sys.executable, "-m", "pytest"]
    command += ["-q", "-p", "no:cacheprovider", *workers, "--rootdir", str(tmp_path)]
    with subprocess.Popen(
        [*command, str(tmp_path)], cwd=tmp_path, env=environment | {"PYTHONPATH": str(ROOT)}
    ) as run:
        pid, ignored = report.read_text().split()
        started = os.pidfd_open(int(pid))
        run.terminate()
    assert run.returncode == -signal.SIGTERM
    assert ignored == "False"
    assert select.select([started], [], [], PATIENCE_S)[0]
    os.close(started)
