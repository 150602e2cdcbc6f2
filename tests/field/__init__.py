"""Stores that real brokers wrote, as archives, with what is right to find in them.

| store | written by | holds |
| --- | --- | --- |
| pop5 | 5.4.0, clean stop | 10 messages; a POP group took all and acknowledged 5 |
| lmqc, lmqc4 | 5.4.0, 4.9.7, enableLmq | 40 messages, of which group billing has read 24 |
| txt5 | 5.4.0 | a half message that the broker's timer delivered into the half topic |
"""

from __future__ import annotations

import tarfile
from pathlib import Path

_ARCHIVES = Path(__file__).parent


def unpack(name: str, directory: Path) -> Path:
    """Unpack a store below ``directory``; return its root."""
    with tarfile.open(_ARCHIVES / f"{name}.tar.xz") as archive:
        archive.extractall(directory, filter="data")
    return directory / name
