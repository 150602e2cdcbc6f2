"""What happens in a store, as store-writer tells it: server-sent events (the HTML standard's
``text/event-stream``, as far as store-writer uses it)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

EVENTS_PATH: Final = "/v1/events"
HEARTBEAT_S: Final = 15.0
"""Something comes at least so often, if only a comment."""


@dataclass(frozen=True, slots=True)
class StoreEvent:
    """One thing that happened; ``id`` is what ``Client.events(after=...)`` goes on behind."""

    id: str
    kind: str
    at_ms: int
    data: dict[str, Any]
    """What belongs to the kind."""


def events_of(parts: Iterable[str]) -> Iterator[StoreEvent]:
    """The events of a stream, each as soon as it is whole."""
    fields: dict[str, str] = {}
    for line in _lines(parts):
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
            continue
        if "data" in fields:
            data = json.loads(fields["data"])
            yield StoreEvent(fields["id"], data.pop("kind"), data.pop("atMs"), data)
        fields = {}


def _lines(parts: Iterable[str]) -> Iterator[str]:
    """By line feeds alone: JSON may hold what else Unicode takes for the end of a line."""
    rest = ""
    for part in parts:
        *whole, rest = (rest + part).split("\n")
        yield from whole
