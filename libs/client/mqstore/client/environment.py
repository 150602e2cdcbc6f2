"""The token that environment variables name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from mqstore.wire.environment import TOKEN_FILE_VARIABLE, TOKEN_VARIABLE


def token_of(environment: Mapping[str, str]) -> str | Callable[[], str] | None:
    """Return the token, or a function that reads it from its file; None if none is named.

    The function raises OSError, and ValueError if the file holds no token.
    """
    token, path = environment.get(TOKEN_VARIABLE), environment.get(TOKEN_FILE_VARIABLE)
    if token or not path:
        return token or None
    return lambda: read_token(Path(path))


def read_token(path: Path) -> str:
    """Return the token in a file. Raises OSError, and ValueError if it holds none."""
    found = path.read_text().split()
    if not found:
        raise ValueError(f"{path} holds no token; write one into it")
    return found[0]
