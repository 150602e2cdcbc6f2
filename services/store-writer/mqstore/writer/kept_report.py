"""A report of a job that store-writer keeps beside its store.

The file is sealed, and outlives the process, so that metrics keep their values over restarts. It
may be removed at any time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import BaseModel

from mqstore.service import logs
from mqstore.storage import MessageStore
from mqstore.storage.directory import StorePaths, read_sealed, write_sealed
from mqstore.storage.host import FileSystem
from mqstore.writer.service import WriterService

Report = TypeVar("Report", bound=BaseModel)

log = logs.get(__name__)


class KeptReport(Generic[Report]):
    """The last report of one kind, read once for each opened store. Used on the event loop."""

    def __init__(
        self,
        service: WriterService,
        model: type[Report],
        path: Callable[[StorePaths], Path],
    ) -> None:
        """``path`` returns the file of the report among the paths of a store."""
        self._service = service
        self._model = model
        self._path = path
        self._known: tuple[MessageStore, Report | None] | None = None

    def get(self) -> Report | None:
        """Return the last report; None before the first one. Raises Problem: no store is open."""
        store = self._service.store
        if self._known is None or self._known[0] is not store:
            self._known = (
                store,
                _load(self._service.seams.files, self._path(store.paths), self._model),
            )
        return self._known[1]

    async def put(self, report: Report) -> None:
        """Replace the last report; it is durable on return. Raises Problem, OSError."""
        store = self._service.store
        path = self._path(store.paths)
        await asyncio.to_thread(write_sealed, self._service.seams.files, path, report)
        self._known = store, report


def _load(files: FileSystem, path: Path, model: type[Report]) -> Report | None:
    """Return the saved report, None without one and for one that cannot be read."""
    try:
        return read_sealed(files, path, model)
    except (OSError, ValueError) as error:
        log.warning("the last report cannot be read", file=path.name, error=str(error))
        return None
