"""Packages that only some commands need: extras of the distribution mqstore-cli."""

from __future__ import annotations

import importlib.util
from typing import Final, Literal

import typer

from mqstore.cli.exit_codes import EXIT_REFUSED, refuse

PACKAGES: Final = {
    "store": ("mqstore.storage",),
    "backup": ("mqstore.storage", "fsspec"),
    "run": (
        *("mqstore.storage", "mqstore.service"),
        *("mqstore.writer", "mqstore.query", "mqstore.coordinator"),
    ),
}
"""Packages that each extra installs; pyproject.toml names the distributions."""


def require(extra: Literal["store", "backup", "run"]) -> None:
    """Check that an extra is installed, before a command imports modules that need it.

    Raises typer.Exit with code 2, after one line that names the extra.
    """
    for package in PACKAGES[extra]:
        if importlib.util.find_spec(package) is None:
            refuse(f"{package} is not installed: pip install 'mqstore-cli[{extra}]'")
            raise typer.Exit(EXIT_REFUSED)


def require_parquet() -> None:
    """Check that pyarrow is installed. Raises ValueError that names the extra."""
    if importlib.util.find_spec("pyarrow") is None:
        raise ValueError("Parquet needs pyarrow: pip install 'mqstore-cli[parquet]'")
