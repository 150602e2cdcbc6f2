"""Items of the index, gathered in the order of the log."""

from collections.abc import Iterable

from mqstore.storage.kernel.dispatch import Stop

class IndexItems:
    """Index items of records in the order of the log, divided by ranges of slots.

    An item takes 24 bytes of this machine's order: its number among all of them 4, hash 4, physical
    offset 8, store time in ms 8. For one thread.
    """

    records: int
    """Number of records added since the last ``take``."""
    items: int
    """Number of their items."""
    before_last: int
    """Number of items of the records before the last one."""

    def __init__(self, parts: int, slots: int, index_tags: bool) -> None:
        """An item of slot ``slot`` belongs to part ``slot * parts // slots``."""

    def add(
        self, view: memoryview, position: int, stop: int, base: int, max_records: int
    ) -> tuple[Stop, int]:
        """Add the records that begin in ``view[position:stop]``, as ``dispatch_run`` indexes them.

        ``base`` is the physical offset of ``view[0]``; the last record may end after ``stop``.
        Returns why it stopped (LIMIT: there are ``max_records``) and the position of the first
        record that was not added. Body CRCs are not compared.
        """

    def add_record(self, hashes: Iterable[int], physical_offset: int, store_timestamp: int) -> None:
        """Add one record with its index hashes."""

    def take(self) -> list[bytes]:
        """Remove and return the items by part."""

def index_chain(
    items: bytes,
    start: int,
    file: memoryview,
    layout: tuple[int, int],
    slots_of_part: tuple[int, int],
    chunk: tuple[int, int, int],
    first: int,
    begin_ms: int,
    carried_ms: int,
) -> tuple[int, int]:
    """Put items of one part of ``IndexItems`` into an index file, in the slots of that part only.

    ``layout`` is the file's slots and entries, ``slots_of_part`` the part's first slot and its end,
    ``chunk`` the least physical offset, the end of the greatest, and the number of items of all
    parts. ``first`` is the number in the file that item 0 of all parts has or would have; items
    from byte ``start`` on are put up to the last that the file has room for. ``begin_ms`` is the
    store time of the file's item 1, ``carried_ms`` that of the last item of the previous file, 0
    without one. The header is left alone. Returns (the first byte that was not used, slots that
    were empty). Raises ValueError for an item outside of these ranges, or out of order. Releases
    the GIL; writes stay within the file for any items.
    """

def item_at(items: bytes, number: int) -> tuple[int, int] | None:
    """(physical offset, store time in ms) of an item of ``IndexItems.take``."""
