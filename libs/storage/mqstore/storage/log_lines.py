"""Loggers of modules that log a line for each of many things: records of a damaged log, blocks,
messages.

Of the lines with the same text, the first 20 of a minute are logged, and then the 100th, 1,000th
and so on, with their number: a log is bounded, whatever a store or a client does.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pydantic import BaseModel

FIRST: Final = 20
"""Lines of one text that are logged one by one within ``WINDOW_S``."""
WINDOW_S: Final = 60.0


def bounded_log(name: str) -> logging.Logger:
    """Return the logger of a module, which leaves out lines as described above. Thread-safe."""
    logger = logging.getLogger(name)
    if not any(isinstance(each, _Repeated) for each in logger.filters):
        logger.addFilter(_Repeated())
    return logger


class _Repeated(logging.Filter):
    """Leaves out repeated lines. A count that two threads raise at once may lack one."""

    def __init__(self) -> None:
        super().__init__()
        self._counts: dict[str, tuple[float, int]] = {}
        """By text, the time of the window's first line, and the number of lines since."""

    def filter(self, record: logging.LogRecord) -> bool:
        text = str(record.msg)
        began, count = self._counts.get(text, (record.created, 0))
        if not 0 <= record.created - began < WINDOW_S:
            began, count = record.created, 0
        count += 1
        self._counts[text] = began, count
        if count == FIRST:
            record.msg = f"{text} (of more like it within a minute, only the number is logged)"
        elif count > FIRST:
            record.msg = f"{text} (number {count} of its kind within a minute)"
        return count <= FIRST or str(count).strip("0") == "1"


def bounded_json(value: BaseModel) -> str:
    """Return the JSON of a value for a log line, with ``FIRST`` items of each list and their
    number."""
    document = value.model_dump(mode="json", by_alias=True)
    for name, items in list(document.items()):
        if isinstance(items, list) and len(items) > FIRST:
            document[name] = items[:FIRST]
            document[f"{name}Listed"] = f"{FIRST} of {len(items)}"
    return json.dumps(document, separators=(",", ":"))
