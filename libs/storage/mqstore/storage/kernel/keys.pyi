"""Digests of unique keys, and the table of those that were put lately."""

from collections.abc import Sequence

from mqstore.storage.kernel.read import Defect
from mqstore.storage.kernel.write import Placement

def key_digests(topic: str, keys: Sequence[str | None]) -> bytes:
    """Compute 8 bytes for each key of a topic, zeros for None and "": the keys of ``KeyTable``.

    Valid for this process only.
    """

class KeyTable:
    """Maps digests of unique keys to physical offsets. For one thread at a time.

    16 bytes a slot; between three eighths and three quarters of the slots are used once there are
    1,000.
    """

    def __init__(self) -> None: ...
    @property
    def count(self) -> int:
        """Number of keys."""
    @property
    def memory_size(self) -> int:
        """Memory in bytes."""
    def find(self, digests: bytes) -> list[int] | None:
        """The offset of each digest, -1 where it is not known; None when none of them is."""
    def add(self, digests: bytes, placements: Sequence[Placement]) -> None:
        """Set the offset of each digest."""
    def add_run(
        self,
        view: memoryview,
        position: int,
        end: int,
        base: int,
        *,
        made_here: str,
        max_records: int,
    ) -> tuple[Defect, int, int, int]:
        """Add the clients' unique keys of the records from ``position`` on, except those that begin
        with ``made_here``.

        Returns as ``check_run`` why and where it ended, the number of passed records, and the last
        one's STORETIMESTAMP. Of equal keys the first counts. Messages in the topics of delayed and
        half messages count under their REAL_TOPIC; copies of delayed messages and outcomes of
        transactions do not.
        """
