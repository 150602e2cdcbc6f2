"""Digests of unique keys, and the table of those that were put lately."""

from collections.abc import Sequence

from mqstore.storage.kernel.read import Defect
from mqstore.storage.kernel.write import Placement

def key_digests(topic: str, keys: Sequence[str | None]) -> bytes:
    """8 bytes for each key of a topic, zeros for None and "": what ``KeyTable`` knows it by.

    Good for this process only.
    """

class KeyTable:
    """Digests of unique keys to physical offsets. For one thread at a time.

    16 bytes a slot, between three eighths and three quarters of them taken once there are 1,000.
    """

    def __init__(self) -> None: ...
    @property
    def count(self) -> int: ...
    @property
    def memory_size(self) -> int:
        """Bytes."""
    def find(self, digests: bytes) -> list[int] | None:
        """The offset of each, -1 where it is not known; None when none of them is."""
    def add(self, digests: bytes, placements: Sequence[Placement]) -> None:
        """Where each stands now."""
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
        """Add the unique keys of what clients put, by the records from ``position`` on, but
        for those that begin with ``made_here``. As ``check_run``: why and where it ended, how many
        records it passed, and the last one's STORETIMESTAMP.

        Of equal keys the first counts. Messages in the topics of delayed and half messages count
        under their REAL_TOPIC; copies of delayed messages and outcomes of transactions do not.
        """
