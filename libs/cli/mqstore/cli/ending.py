"""How every command ends: exit codes, and what becomes one line and a code."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from typing import Final

EXIT_FINE: Final = 0
EXIT_FINDINGS: Final = 1
EXIT_REFUSED: Final = 2


def end_of(
    run: Callable[[], int],
    refuse: Callable[[str], None],
    *,
    unread: int,
    refused: type[Exception] = ValueError,
) -> int:
    """The exit code of ``run``; ``unread`` when the reader of its output closed the pipe before.

    Unknown variables, OSError, ValueError and ``refused`` are given to ``refuse``, with code 2.
    """
    unknown = _unknown_variables()
    if unknown is not None:
        refuse(unknown)
        return EXIT_REFUSED
    try:
        return run()
    except BrokenPipeError:
        # The reader has what it wanted. Nothing may be flushed to it at exit any more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return unread
    except (OSError, ValueError, refused) as error:
        refuse(str(error))
        return EXIT_REFUSED


def refuse(why: str) -> None:
    """Print why a command is refused to stderr, in one line."""
    print(f"mqstore: {why}", file=sys.stderr)


def _unknown_variables() -> str | None:
    """Why the environment is refused; None also without mqstore.storage, which has the names."""
    if importlib.util.find_spec("mqstore.storage") is None:
        return None
    from mqstore.storage.setting_names import unknown_variables

    return unknown_variables(os.environ)
