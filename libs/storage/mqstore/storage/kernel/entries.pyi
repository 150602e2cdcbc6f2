"""Results of pulls."""

from mqstore.storage.codec.record import Record
from mqstore.storage.kernel.filter import Tags
from mqstore.storage.kernel.lookup import LogWindow
from mqstore.storage.lookup.answers import PullStatus, Unreadable
from mqstore.storage.lookup.views import QueueView

class Pull:
    """Records of one queue, ascending; ``next_offset`` is the offset of the next pull.

    Neighbours share memory: keeping one record keeps up to 64 KiB of others.
    """

    status: PullStatus
    records: list[Record]
    unreadable: list[Unreadable]
    next_offset: int
    min_offset: int
    max_offset: int

    def __init__(
        self,
        status: PullStatus,
        records: list[Record],
        unreadable: list[Unreadable],
        next_offset: int,
        min_offset: int,
        max_offset: int,
    ) -> None: ...
    def __len__(self) -> int: ...
    def take(
        self,
        window: LogWindow,
        kind: type[Record],
        entries: memoryview,
        position: int,
        queue: QueueView,
        count: int,
        taken: int,
        max_bytes: int,
    ) -> tuple[int, bool]:
        """Add records by ``LogWindow.records`` from ``next_offset`` on; returns the bytes of the
        answer by then, and whether one of its bounds was reached."""
    def add(self, found: Record) -> None:
        """Add one record."""
    def take_tagged(
        self,
        window: LogWindow,
        kind: type[Record],
        tags: Tags,
        entries: memoryview,
        position: int,
        queue: QueueView,
        most: int,
        count: int,
        taken: int,
        max_bytes: int,
    ) -> tuple[int, bool]:
        """Add records by ``LogWindow.read_tagged`` from ``next_offset`` on; returns as ``take``."""

class Slices:
    """Records of one queue as bytes of the log, ascending, for RocketMQ clients to decode.

    Joined, ``parts`` are ``count`` whole records: copies, so that they never change.
    """

    status: PullStatus
    parts: list[bytes]
    unreadable: list[Unreadable]
    next_offset: int
    min_offset: int
    max_offset: int
    count: int

    @property
    def self_checked(self) -> int:
        """Number of records whose own checks alone passed."""

    def __init__(
        self,
        status: PullStatus,
        parts: list[bytes],
        unreadable: list[Unreadable],
        next_offset: int,
        min_offset: int,
        max_offset: int,
    ) -> None: ...
    def __len__(self) -> int: ...
    def take(
        self,
        window: LogWindow,
        kind: type[Record],
        entries: memoryview,
        position: int,
        queue: QueueView,
        count: int,
        taken: int,
        max_bytes: int,
    ) -> tuple[int, bool]:
        """Add records as ``Pull.take``, by ``LogWindow.slices``."""
    def add(self, found: Record) -> None:
        """Add one record."""
    def take_tagged(
        self,
        window: LogWindow,
        kind: type[Record],
        tags: Tags,
        entries: memoryview,
        position: int,
        queue: QueueView,
        most: int,
        count: int,
        taken: int,
        max_bytes: int,
    ) -> tuple[int, bool]:
        """Add records by ``LogWindow.read_tagged`` from ``next_offset`` on; returns as ``take``."""
