"""The lease of an index rebuild beside a writer: requested, renewed by a thread, released."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from mqstore.client import Client, ClientError, IndexRebuild, ProblemError
from mqstore.jobs.errors import JobError
from mqstore.jobs.rebuild.settings import RebuildSettings

LEASE_S: Final = 60
"""Seconds until the writer drops the lease of a killed job."""
BEAT_S: Final = 15.0
_UNKNOWN: Final = 404

log = logging.getLogger(__name__)


class Lease:
    """The lease of one rebuild, which a thread renews until ``end``."""

    def __init__(self, client: Client, rebuild: IndexRebuild, *, beat_s: float = BEAT_S) -> None:
        self.rebuild = rebuild
        self._client = client
        self._beat_s = beat_s
        self._lost: ProblemError | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="lease", daemon=True)
        self._thread.start()

    def require(self) -> None:
        """Raise JobError if the writer has dropped the lease."""
        if self._lost is not None:
            raise JobError(
                f"the writer gave the rebuild up, as it was not heard of in time ({self._lost});"
                " nothing was changed, run the job again"
            )

    def end(self) -> None:
        """Stop renewing the lease, and wait for the thread."""
        self._ended.set()
        self.join()

    def join(self) -> None:
        """Wait until the thread has stopped."""
        self._thread.join()

    def _beat(self) -> None:
        while not self._ended.wait(self._beat_s):
            try:
                self._client.renew_index_rebuild(self.rebuild.id, ttl_s=LEASE_S)
            except ClientError as error:
                if isinstance(error, ProblemError) and error.status == _UNKNOWN:
                    self._lost = error
                    return
                log.warning("the lease of the rebuild was not renewed: %s", error)


@contextmanager
def begun(client: Client, settings: RebuildSettings) -> Iterator[Lease]:
    """Begin a rebuild and hold its lease for the context; an error within ends the rebuild.

    Raises ClientError, also if another rebuild runs.
    """
    wanted = settings.store_format
    rebuild = client.begin_index_rebuild(
        settings.owner,
        ttl_s=LEASE_S,
        store_format=None if wanted is None else wanted.value,
        hash_slots=settings.hash_slots,
        index_num=settings.index_num,
        disk_ratio=settings.disk_ratio,
    )
    lease = Lease(client, rebuild)
    try:
        yield lease
    except BaseException:
        lease.end()
        with suppress(ClientError):  # the first error is the one to report; the lease expires
            client.end_index_rebuild(rebuild.id)
        raise
    finally:
        lease.end()
