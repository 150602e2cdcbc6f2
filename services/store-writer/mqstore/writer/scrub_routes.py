"""store-writer's routes of the scrub: how far it is, what it found, and to have it begin."""

from __future__ import annotations

from functools import partial
from http import HTTPStatus
from typing import Final

from mqstore.service import problems
from mqstore.service.app import Api
from mqstore.storage.scrub.service import ScrubProgress
from mqstore.writer import control, examples
from mqstore.writer.control import answers
from mqstore.writer.service import WriterService

_PATH: Final = "/v1/store/scrub"


class ScrubRoutes:
    """The log is compared with its block checksums, a little at a time."""

    def __init__(self, service: WriterService) -> None:
        self._service = service

    def add(self, api: Api) -> None:
        """Put the routes into store-writer's interface."""
        add = partial(control.add, tag="store")
        what = "What the disk has changed, and how far the look at it is"
        add(api, "GET", _PATH, self.progress, what, 200, answers(examples.SCRUB))
        begun = answers(examples.SCRUB, problems.STORE_READ_ONLY, status=HTTPStatus.ACCEPTED)
        add(api, "POST", _PATH + ":run", self.run, "Look now", HTTPStatus.ACCEPTED, begun)

    async def progress(self) -> ScrubProgress:
        """Each finding names the record, the field and the queue that it touches."""
        return self._service.store.scrub.progress

    async def run(self) -> ScrubProgress:
        """A pass over all checksums begins, unless one runs, at scrubBytesPerSecond; look again at
        `GET /v1/store/scrub`."""
        return self._service.store.run_scrub()
