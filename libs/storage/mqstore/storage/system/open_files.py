"""The process's limit of open files: each written file of a store keeps one open."""

from __future__ import annotations

import resource


def raise_open_files_limit() -> None:
    """Raise the soft limit of open files to the hard one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
