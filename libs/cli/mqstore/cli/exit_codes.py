"""Exit codes of the commands, and the errors that a command prints as one line."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from typing import Final

from mqstore.cli.output import printable
from mqstore.wire.environment import VARIABLES

EXIT_OK: Final = 0
EXIT_FINDINGS: Final = 1
EXIT_REFUSED: Final = 2
EXIT_UNREACHABLE: Final = 3

_PREFIX: Final = "MQSTORE_"


def run_command(
    run: Callable[[], int],
    refuse: Callable[[str], None],
    *,
    unread: int,
    refused: type[Exception] = ValueError,
) -> int:
    """Run a command and return its exit code.

    The code is that of ``run``; ``unread`` if the reader of the output closed the pipe early; 2
    for unknown MQSTORE_ variables, OSError, ValueError and ``refused``, whose text ``refuse`` gets.
    """
    unknown = _unknown_variables()
    if unknown is not None:
        refuse(unknown)
        return EXIT_REFUSED
    try:
        return run()
    except BrokenPipeError:
        # The reader closed the pipe; the interpreter must not flush stdout to it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return unread
    except OSError as error:
        refuse(text_of(error))
        return EXIT_REFUSED
    except (ValueError, refused) as error:
        refuse(str(error))
        return EXIT_REFUSED


def text_of(error: OSError) -> str:
    """The file and the reason of an error of the system, without its number."""
    if error.strerror is None or error.filename is None:
        return error.strerror or str(error)
    return f"{error.filename}: {error.strerror}"


def refuse(why: str) -> None:
    """Print the reason for a refusal to stderr, in one line."""
    lines = (line.strip() for line in why.splitlines())
    print(printable(f"mqstore: {'; '.join(filter(None, lines))}"), file=sys.stderr)


def _unknown_variables() -> str | None:
    """The error text for unknown MQSTORE_ variables in the environment; None if there are none.

    Also None if mqstore.storage, which defines the names, is not installed. It is imported only if
    there are variables besides those of the commands.
    """
    given = {name for name in os.environ if name.upper().startswith(_PREFIX)}
    if given <= VARIABLES or importlib.util.find_spec("mqstore.storage") is None:
        return None
    from mqstore.storage.settings import unknown_variables

    return unknown_variables(os.environ)
