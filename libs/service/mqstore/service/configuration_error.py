"""The error that ends a process before it serves: one line on stderr, exit code 2."""

from __future__ import annotations


class ConfigurationError(Exception):
    """The service cannot start with its configuration; the message states what to change."""
