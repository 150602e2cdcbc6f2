"""The error that ends a process before it serves: one clear line, exit code 2."""

from __future__ import annotations


class ConfigurationError(Exception):
    """The service cannot start as it is configured; the message says what to do."""
