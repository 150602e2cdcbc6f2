"""The machine of a run, and its load when the run began."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime

from tests.bench import rocketmq


def facts(rounds: int) -> dict[str, str]:
    """The facts of a machine on which a run's figures depend."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "began": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "cores": str(os.cpu_count()),
        "memory": f"{pages / (1 << 30):.0f} GiB",
        "kernel": platform.release(),
        "python": platform.python_version(),
        "java": _java_version(),
        "load": " ".join(f"{each:.1f}" for each in os.getloadavg()),
        "rounds": str(rounds),
    }


def sentence(found: Mapping[str, str]) -> str:
    """The facts in words."""
    return (
        f"{found['began']}; {found['cores']} cores, {found['memory']} of memory, "
        f"Linux {found['kernel']}, Python {found['python']}, Java: {found['java']}; "
        f"load at the start (1, 5, 15 minutes): {found['load']}; rounds: {found['rounds']}."
    )


def _java_version() -> str:
    if rocketmq.missing() is not None:
        return "none"
    done = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    return done.stderr.splitlines()[0]
